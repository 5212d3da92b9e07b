/* Amendments at the coordinator: between rounds it takes those whose round has come, and passes them on. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "federation/amendment.h"
#include "federation/coordinator.h"

void coordinator_fit_counted(Coordinator *coordinator)
{
    GlobalModel *model = &coordinator->model;
    size_t sites = (size_t)coordinator->federation->site_count;
    if (model->counted_count >= sites) return;
    int64_t *counted = memory_allocate(sites * sizeof *counted);
    if (model->counted_count) memcpy(counted, model->counted, model->counted_count * sizeof *counted);
    free(model->counted);
    model->counted = counted;
    model->counted_count = sites;
}

/* The federation has more sites than the coordinator knew. */
static void make_room(Coordinator *coordinator, int before)
{
    int sites = coordinator->federation->site_count;
    if (sites > before) {
        KnownSite *known = memory_allocate((size_t)sites * sizeof *known);
        memcpy(known, coordinator->sites, (size_t)before * sizeof *known);
        free(coordinator->sites);
        coordinator->sites = known;
        coordinator_fit_counted(coordinator);
    }
}

static void say(const Coordinator *coordinator, const Amendment *amendment)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    amendment_describe(amendment, &text);
    coordinator_say(coordinator, "amendment %" PRId64 " from round %" PRId64 " on:%s\n", amendment->number,
                    amendment->from_round, buffer_text(&text));
}

/* The console says once what is wrong with an amendment, and again if something else is. */
static void complain(Coordinator *coordinator, int64_t number, Diagnostics *diagnostics)
{
    const char *problem = diagnostics->last->message;
    uint64_t hash = hash_bytes(problem, strlen(problem)).low;
    if (coordinator->said_problem == hash) return;
    coordinator->said_problem = hash;
    if (coordinator->console) diagnostics_print(diagnostics, coordinator->console);
    coordinator_say(coordinator, "amendment %" PRId64 " is not taken\n", number);
}

/* The log was replaced by a wider one. */
static void append_to_new_log(const Coordinator *coordinator)
{
    FREED_WITH(descriptor_close) int descriptor = open(coordinator->log_path, O_WRONLY | O_APPEND | O_CLOEXEC);
    fflush(coordinator->log);
    if (descriptor < 0 || dup3(descriptor, fileno(coordinator->log), O_CLOEXEC) < 0)
        coordinator_say(coordinator, "warning: %s cannot be opened: rounds are missing from it\n",
                        coordinator->log_path);
}

static bool take(Coordinator *coordinator, const Amendment *amendment, const char *path, Diagnostics *diagnostics)
{
    Federation *federation = coordinator->federation;
    int before = federation->site_count;
    if (!federation_amend(federation, amendment, path, diagnostics)) return false;
    make_room(coordinator, before);
    say(coordinator, amendment);
    /* Where there is no room on disk it is taken again when the coordinator is started again, in the same round. */
    if (!federation_write(federation, coordinator->directory, diagnostics) ||
        (coordinator->log_path && !coordinator_widen_log(federation, coordinator->log_path, diagnostics)))
        diagnostics_print(diagnostics, coordinator->console ? coordinator->console : stderr);
    if (coordinator->log && coordinator->log_path) append_to_new_log(coordinator);
    return true;
}

bool coordinator_take_amendments(Coordinator *coordinator)
{
    const Federation *federation = coordinator->federation;
    bool any = false, more = federation->compiled.owner && coordinator->model.round < coordinator->rounds;
    while (more) {
        FREED_WITH(amendment_free) Amendment amendment = {0};
        FREED_WITH(arena_free) Arena arena = {0};
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        int64_t number = federation->compiled.amended + 1;
        const char *path = amendment_path(&arena, coordinator->directory, number);
        more = amendment_open_file(&amendment, federation, path, &diagnostics);
        if (more && amendment.from_round > coordinator->model.round + 1)
            more = false;
        else if (more)
            more = take(coordinator, &amendment, path, &diagnostics);
        if (diagnostics.errors) complain(coordinator, number, &diagnostics);
        any |= more;
    }
    return any;
}

/* Appends the text of an amendment that was taken. False: the file is gone. */
static bool read_amendment(const Coordinator *coordinator, int64_t number, Buffer *text)
{
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(file_unmap) MappedFile file = {0};
    FREED_WITH(diagnostics_free) Diagnostics unsaid = {0};
    if (!file_map(&file, amendment_path(&arena, coordinator->directory, number), &unsaid)) return false;
    buffer_append(text, file.bytes, file.size);
    return true;
}

bool coordinator_amends(Coordinator *coordinator, int number, const Request *request, const char **refusal,
                        Buffer *amendment)
{
    const Federation *federation = coordinator->federation;
    const FederationSite *site = &federation->sites[number];
    KnownSite *known = &coordinator->sites[number];
    uint64_t amended = (uint64_t)federation->compiled.amended;
    if (request->amended < amended) {
        known->withholds = request->kind == REQUEST_ASK && request->size == 1 && request->payload[0] == ASK_WITHHOLDS;
        if (!read_amendment(coordinator, (int64_t)request->amended + 1, amendment))
            *refusal = "lacks an amendment whose file is gone from the coordinator's directory";
        return true;
    }
    known->withholds = false;
    if (request->amended > amended)
        *refusal = "has taken an amendment that the coordinator has not";
    else if (site->left)
        *refusal = "was removed from the federation by an amendment";
    else if (known->uses_former && coordinator->model.round + 1 > site->rekeyed)
        *refusal = "uses a key that an amendment has replaced";
    return *refusal != NULL;
}
