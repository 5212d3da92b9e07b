/* skycc coordinate: runs the coordinator of a federation until its last round. */
#include <malloc.h>
#include <signal.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/input_files.h"
#include "base/owned_files.h"
#include "base/text.h"
#include "driver/commands/commands.h"
#include "driver/coordinate/steering.h"
#include "federation/connect/serve.h"
#include "federation/model_history.h"
#include "runtime/storage/checkpoint_directory.h"

static volatile sig_atomic_t ended;

static void end(int signal) { ended = signal; }

typedef struct Coordinate {
    const Options *options;
    Arena arena;
    Federation federation;
    WireKeys keys;
    Coordinator coordinator;
    Steering steering;
    Server server;
    const char *log_path;
    FILE *log;
} Coordinate;

static bool open_keys(Coordinate *coordinate, Diagnostics *diagnostics)
{
    const char *path = coordinate->options->key ? coordinate->options->key : "coordinator.key";
    if (!wire_keys_read(&coordinate->keys, path, diagnostics)) return false;
    return strcmp(coordinate->keys.public_key, coordinate->federation.key) == 0 ||
           input_error(diagnostics, path, "give the right one with --key FILE",
                       "does not match the coordinator's public key in federation.yaml");
}

/* Two coordinators would overwrite each other's models. */
static bool lock(const char *directory, Diagnostics *diagnostics)
{
    switch (checkpoint_lock(directory, "coordinator", NULL, diagnostics)) {
    case CHECKPOINT_LOCKED: return true;
    case CHECKPOINT_LOCK_HELD:
        return diagnostics_error(diagnostics, EXIT_RUN_FAILED, PLACE_FILE(directory),
                                 "end that one first; its rounds are kept", "is in use by another coordinator");
    default: return diagnostics->errors == 0;
    }
}

/* The length of a log up to the model's round. A coordinator that was killed may have logged a later one. -1: the
 * log is not this federation's. */
static off_t whole_rounds(const Coordinate *coordinate, FILE *log)
{
    FREED_WITH(buffer_free) Buffer header = {0};
    FREED char *line = NULL;
    size_t capacity = 0;
    off_t kept = 0;
    coordinator_print_header(&coordinate->federation, &header);
    for (ssize_t length; (length = getline(&line, &capacity, log)) > 0; kept += length) {
        if (kept == 0 && strncmp(line, buffer_text(&header), (size_t)length) != 0) kept = -1;
        if (kept < 0 || line[length - 1] != '\n' || strtoll(line, NULL, 10) > coordinate->coordinator.model.round)
            break;
    }
    return kept;
}

/* Appends to the rounds of an earlier run. */
static bool open_log(Coordinate *coordinate, Diagnostics *diagnostics)
{
    const char *path = coordinate->log_path;
    struct stat status;
    if (!input_files_spare(path, diagnostics) || !owned_state_spares(coordinate->options->folder, path, diagnostics) ||
        !coordinator_widen_log(&coordinate->federation, path, diagnostics))
        return false;
    FILE *log = coordinate->log = fopen(path, "a+e");
    bool ok = log && fstat(fileno(log), &status) == 0, is_file = ok && S_ISREG(status.st_mode);
    off_t kept = is_file ? whole_rounds(coordinate, log) : 0;
    if (kept < 0)
        return input_error(diagnostics, path, "give another file with --log",
                           "is not a log of this federation's rounds");
    if (!ok || (is_file && ftruncate(fileno(log), kept) != 0)) return file_error(diagnostics, path, "cannot write");
    if (kept == 0) coordinator_log_header(&coordinate->federation, log);
    coordinate->coordinator.log = log;
    coordinate->coordinator.log_path = is_file ? path : NULL;
    return true;
}

static bool run(Coordinate *coordinate, Diagnostics *diagnostics)
{
    const Options *options = coordinate->options;
    Federation *federation = &coordinate->federation;
    FILE *console = options->quiet ? NULL : stdout;
    const char *path = arena_format(&coordinate->arena, "%s/federation.yaml", options->folder);
    coordinate->log_path =
        options->csv ? options->csv : arena_format(&coordinate->arena, "%s/rounds.csv", options->folder);
    if (!federation_read_compiled(federation, path, diagnostics) || !open_keys(coordinate, diagnostics) ||
        !lock(options->folder, diagnostics) ||
        (options->goes_back && !model_history_go_back(federation, options->folder, options->from_round, diagnostics)) ||
        !coordinator_open(&coordinate->coordinator, federation, options->folder, console, NULL, diagnostics) ||
        !open_log(coordinate, diagnostics) ||
        !steering_open(&coordinate->steering, &coordinate->coordinator, coordinate->log_path, diagnostics))
        return false;
    const char *address = options->listen ? options->listen : federation->address;
    if (!server_open(&coordinate->server, &coordinate->coordinator, &coordinate->keys, address, diagnostics))
        return false;
    int sites = 0;
    for (int s = 0; s < federation->site_count; s++) sites += !federation->sites[s].left; /* by amendments */
    if (console) {
        if (coordinator_is_done(&coordinate->coordinator))
            text_print(stdout, "all %lld rounds are done: listening at %s for sites that lack the model\n",
                       (long long)coordinate->coordinator.rounds, address);
        else
            text_print(stdout, "round %lld of %lld is next: listening at %s for %d sites\n",
                       (long long)coordinate->coordinator.model.round + 1, (long long)federation->rounds, address,
                       sites);
        fflush(console);
    }
    server_run(&coordinate->server, federation->round_timeout_s, &ended);
    steering_close(&coordinate->steering, monotonic_seconds());
    coordinator_report_traffic(&coordinate->coordinator);
    return !coordinate->coordinator.diverged ||
           diagnostics_error(
               diagnostics, EXIT_DIVERGED, PLACE_FILE(options->folder),
               "lower the learning rate of the site whose loss grew, or set clip_update in federation.yaml",
               "round %lld made a model that is not finite; the model of the round before is kept",
               (long long)coordinate->coordinator.model.round);
}

/* The coordinator continues without its output rather than lose rounds, and says so at the end. */
static bool check_outputs(Coordinate *coordinate, Diagnostics *diagnostics)
{
    bool logged = !coordinate->log || (fflush(coordinate->log) == 0 && !ferror(coordinate->log));
    if (fflush(stdout) != 0 || ferror(stdout)) {
        diagnostics_warning(diagnostics, PLACE_FILE("standard output"), NULL,
                            "cannot be written; the coordinator went on without it");
        __fpurge(stdout);
        clearerr(stdout);
    }
    return logged || input_error(diagnostics, coordinate->log_path,
                                 "free some disk space; the missing rounds were made and are in the model",
                                 "cannot be written completely: rounds are missing");
}

bool coordinate_command(const Options *options, Diagnostics *diagnostics)
{
    Coordinate coordinate = {.options = options};
    mallopt(M_MMAP_THRESHOLD, 4 << 20); /* pieces of a round come and go: their memory is used again */
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    bool ok = run(&coordinate, diagnostics);
    ok = check_outputs(&coordinate, diagnostics) && ok;
    server_close(&coordinate.server);
    if (coordinate.coordinator.sites) coordinator_free(&coordinate.coordinator);
    if (coordinate.log) fclose(coordinate.log);
    wire_keys_forget(&coordinate.keys);
    federation_free(&coordinate.federation);
    arena_free(&coordinate.arena);
    if (ok && ended) diagnostics->exit_code = 128 + ended;
    return ok && !ended;
}
