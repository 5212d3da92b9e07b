#include "federation/model_history.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/directory.h"
#include "base/file.h"

static const char name_form[] = "round-%" SCNd64 ".safetensors%n";

char *model_history_path(const char *directory, int64_t round)
{
    Buffer path = {0};
    buffer_print(&path, "%s/rounds/round-%06" PRId64 ".safetensors", directory, round);
    return path.bytes;
}

/* Calls `visit` with every round that is kept. */
static void for_each(const char *directory, void (*visit)(void *context, int64_t round), void *context)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/rounds", directory);
    FREED_WITH(listing_close) DIR *listing = opendir(path);
    for (const struct dirent *entry; listing && (entry = readdir(listing));) {
        int64_t round;
        int used = 0;
        if (sscanf(entry->d_name, name_form, &round, &used) == 1 && used && !entry->d_name[used]) visit(context, round);
    }
}

typedef struct Pruning {
    const char *directory;
    int64_t first, last; /* that stay */
} Pruning;

static void prune(void *context, int64_t round)
{
    const Pruning *pruning = context;
    if (round >= pruning->first && round <= pruning->last) return;
    FREED char *path = model_history_path(pruning->directory, round);
    FREED char *model = directory_join(pruning->directory, "model.safetensors"), *retired = file_retired_path(model);
    if (rename(path, retired) != 0) unlink(path); /* the next model overwrites it */
}

bool model_history_keep(const char *directory, int64_t round, int64_t keep, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena names = {0};
    const char *folder = arena_format(&names, "%s/rounds", directory);
    const char *model = arena_format(&names, "%s/model.safetensors", directory);
    const char *unfinished = arena_format(&names, "%s/unfinished", folder);
    FREED char *path = model_history_path(directory, round);
    bool ok = mkdir(folder, 0777) == 0 || errno == EEXIST;
    unlink(unfinished);
    ok = ok && link(model, unfinished) == 0 && rename(unfinished, path) == 0;
    if (!ok) file_error(diagnostics, path, "cannot write");
    unlink(unfinished); /* rename leaves two names of one file as they are */
    if (ok) for_each(directory, prune, &(Pruning){directory, round - keep + 1, round});
    return ok;
}

/* ---- Going back ---- */

typedef struct Listing {
    int64_t rounds[256];
    int count;
} Listing;

static void list(void *context, int64_t round)
{
    Listing *listing = context;
    if (listing->count == sizeof listing->rounds / sizeof *listing->rounds) return;
    int at = listing->count++;
    for (; at > 0 && listing->rounds[at - 1] > round; at--) listing->rounds[at] = listing->rounds[at - 1];
    listing->rounds[at] = round;
}

static bool refuse(const char *directory, int64_t round, Diagnostics *diagnostics)
{
    Listing listing = {.count = 0};
    FREED_WITH(buffer_free) Buffer kept = {0};
    for_each(directory, list, &listing);
    for (int i = 0; i < listing.count; i++) buffer_print(&kept, "%s%" PRId64, i ? ", " : "", listing.rounds[i]);
    FREED_WITH(arena_free) Arena text = {0};
    const char *hint =
        listing.count
            ? arena_format(&text, "rounds kept: %s; keep: N in federation.yaml keeps more of them", buffer_text(&kept))
            : "keep: N in federation.yaml keeps the models of the last N rounds";
    return input_error(diagnostics, directory, hint,
                       "has no model after round %" PRId64 " any more: it was pruned, or never made", round);
}

static bool go_back(GlobalModel *now, const Federation *federation, const char *directory, const char *model,
                    const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(global_model_free) GlobalModel then = {0};
    bool ok = global_model_open_file(&then, federation->compiled.identity, path, outer_moments(federation->outer.kind),
                                     diagnostics);
    if (ok && then.round >= now->round)
        ok = input_error(diagnostics, directory, "leave --from-round out to go on",
                         "is at the model after round %" PRId64 ": there is nothing to go back over", now->round);
    then.branch = now->branch + 1;
    then.spent = now->spent;
    return ok && global_model_write(&then, model, diagnostics);
}

bool model_history_go_back(const Federation *federation, const char *directory, int64_t round, Diagnostics *diagnostics)
{
    FREED_WITH(global_model_free) GlobalModel now = {0};
    FREED_WITH(arena_free) Arena names = {0};
    const char *model = arena_format(&names, "%s/model.safetensors", directory);
    FREED char *path = model_history_path(directory, round);
    return (access(path, F_OK) == 0 || refuse(directory, round, diagnostics)) &&
           global_model_open_file(&now, federation->compiled.identity, model, 0, diagnostics) &&
           go_back(&now, federation, directory, model, path, diagnostics);
}

/* ---- The mean of the last ---- */

/* Takes the values alone: moments, control variates and remainders are of one round. */
static bool add_round(GlobalModel *model, double **sums, Hash identity, const char *path, Diagnostics *diagnostics)
{
    if (*sums) {
        if (!global_model_read(model, path, diagnostics)) return false;
    } else {
        if (!global_model_open_file(model, identity, path, 0, diagnostics)) return false;
        global_model_keep_control(model, false);
        free(model->remainder);
        model->remainder = NULL;
        *sums = memory_allocate(model->elements * sizeof **sums);
    }
    for (size_t i = 0; i < model->elements; i++) (*sums)[i] += model->values[i];
    return true;
}

int64_t model_history_average(const Federation *federation, const char *directory, int64_t round, int64_t rounds,
                              const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(global_model_free) GlobalModel model = {0};
    FREED double *sums = NULL;
    if (rounds > round) rounds = round; /* round 0 has made nothing */
    if (global_model_file_says(path, "averaged", rounds)) return rounds;
    bool ok = true;
    for (int64_t r = round - rounds + 1; r <= round && ok; r++) {
        FREED char *kept = model_history_path(directory, r);
        if (access(kept, F_OK) != 0) continue;
        ok = add_round(&model, &sums, federation->compiled.identity, kept, diagnostics);
        model.averaged++;
    }
    int64_t averaged = model.averaged;
    for (size_t i = 0; i < model.elements && ok; i++) model.values[i] = (float)(sums[i] / (double)averaged);
    if (ok && averaged) ok = global_model_write(&model, path, diagnostics);
    file_drop_retired(path);
    return ok ? averaged : -1;
}
