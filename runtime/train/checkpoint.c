#include "runtime/train/checkpoint.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/storage/checkpoint_directory.h"

static const double file_pause = 1e-3;                   /* between looks whether a file is written */
static const double lock_patience = 6, lock_pause = 0.1; /* seconds; a failing rank takes up to four to end */

/* Each site has its own directory, in which its lowest rank writes the manifest; without sites rank 0 writes it. */
static int leader_of(const SkyProgram *program, uint32_t site)
{
    uint32_t rank = 0;
    while (program->site_count > 1 && program->rank_sites[rank] != site) rank++;
    return (int)rank;
}

static bool leads(const World *world, const SkyProgram *program)
{
    return world->rank == leader_of(program, program->site);
}

static uint32_t directory_count(const SkyProgram *program) { return program->site_count > 1 ? program->site_count : 1; }

/* Whether this rank has the lock; reports why not. */
static bool lock(World *world, const char *directory, const char *name, Diagnostics *diagnostics)
{
    CheckpointLock lock;
    double begin = monotonic_seconds();
    while ((lock = checkpoint_lock(directory, name, NULL, diagnostics)) == CHECKPOINT_LOCK_HELD &&
           monotonic_seconds() - begin < lock_patience)
        world_sleep_until(world, monotonic_seconds() + lock_pause);
    if (lock != CHECKPOINT_LOCK_HELD) return lock == CHECKPOINT_LOCKED;
    return diagnostics_error(diagnostics, EXIT_RUN_FAILED, PLACE_FILE(directory),
                             "wait until that run has ended, or name another --checkpoint directory; each of several "
                             "sites needs its own",
                             "another run is using this directory for its checkpoints");
}

bool checkpoint_lock_directory(World *world, const SkyProgram *program, const char *directory, Diagnostics *diagnostics,
                               int *exit_code)
{
    char host[sizeof world->names->host + 5];
    snprintf(host, sizeof host, "host-%s", world->names[world->rank].host);
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '_';
    if (world->rank == world->first_here && checkpoint_check_directory(directory, diagnostics) &&
        (!leads(world, program) || lock(world, directory, "run", diagnostics)))
        lock(world, directory, host, diagnostics);
    return world_agree(world, diagnostics, exit_code);
}

/* A rank that cannot write reports why and ends the run. */
static void insist(World *world, Diagnostics *diagnostics)
{
    int exit_code;
    if (diagnostics->errors) {
        const Diagnostic *error = diagnostics->first;
        while (!error->is_error) error = error->next;
        diagnostics_print(diagnostics, stderr);
        world_fail(world, "the checkpoint cannot be written: %s%s%s", error->place.file ? error->place.file : "",
                   error->place.file ? ": " : "", error->message);
    }
    world_agree(world, diagnostics, &exit_code);
}

/* Collective. A checkpoint with values that are not finite must not replace a good one. */
static void check_finite(World *world, const Execution *execution)
{
    FREED_WITH(arena_free) Arena arena = {0};
    uint32_t stage;
    const char *name = checkpoint_not_finite(execution, &arena, &stage);
    if (name)
        world_diverged(world, "'%s' (stage %u) is not finite: no checkpoint is written; a lower --lr may help", name,
                       stage);
    world_barrier(world, "agreement that all parameters are finite");
}

/* The steps that have a manifest in the directory of every site, newest first; free() them. The rank that writes
 * manifests lists them, because each host may have its own directory. */
static int64_t *common_steps(World *world, const SkyProgram *program, const char *directory, size_t *count)
{
    static const char what[] = "the checkpoints that there are";
    int64_t *common = NULL;
    for (uint32_t site = 0; site < directory_count(program); site++) {
        int root = leader_of(program, site);
        size_t have = 0, both = 0;
        int64_t *steps = world->rank == root ? checkpoint_newest_steps(directory, &have) : NULL;
        world_broadcast(world, WIRE_CHECKPOINT, &have, sizeof have, root, what);
        if (world->rank != root) steps = memory_allocate(have * sizeof *steps);
        if (have) world_broadcast(world, WIRE_CHECKPOINT, steps, have * sizeof *steps, root, what);
        if (site == 0) {
            common = steps;
            *count = have;
            continue;
        }
        for (size_t i = 0, j = 0; i < *count && j < have;) { /* both descend */
            if (common[i] == steps[j]) common[both++] = common[i];
            bool step_i = common[i] >= steps[j], step_j = common[i] <= steps[j];
            i += step_i;
            j += step_j;
        }
        *count = both;
        free(steps);
    }
    return common;
}

static void prune(const CheckpointWriter *writer)
{
    World *world = writer->world;
    const SkyProgram *program = writer->execution->program;
    size_t count = 0;
    FREED int64_t *kept = common_steps(world, program, writer->directory, &count);
    if ((int64_t)count > writer->keep) count = (size_t)writer->keep;
    if (world->rank == world->first_here)
        checkpoint_prune(writer->directory, kept, count, !leads(world, program), writer->retires);
}

/* ---- Saving ---- */

bool checkpoint_writer_open(CheckpointWriter *writer, World *world, const Execution *execution, bool in_background,
                            Diagnostics *diagnostics)
{
    size_t bytes = checkpoint_copy_bytes(execution);
    bool fits = in_background && bytes <= execution->program->spare_bytes;
    FREED bool *all = memory_allocate((size_t)world->size * sizeof *all);
    world_allgather(world, &fits, sizeof fits, all, "room for copies of what checkpoints save");
    for (int r = 0; r < world->size; r++) fits = fits && all[r];
    *writer = (CheckpointWriter){.world = world, .execution = execution, .in_background = fits};
    return !fits ||
           memory_map(&writer->copy, bytes, execution->threads, "a copy of what checkpoints save", diagnostics);
}

void checkpoint_writer_close(CheckpointWriter *writer)
{
    if (writer->thread) pthread_join(writer->writing, NULL);
    memory_unmap(&writer->copy);
    if (writer->retires && writer->directory && writer->world->rank == writer->world->first_here)
        checkpoint_drop_retired(writer->directory);
}

/* What the thread does: first the file of this rank, then the manifest. */
static void *write_part(void *context)
{
    CheckpointWriter *writer = context;
    if (writer->listed)
        checkpoint_write_manifest(&writer->manifest, writer->directory, &writer->diagnostics);
    else
        checkpoint_write_file(writer->execution, writer->copy.bytes, writer->directory, writer->manifest.step,
                              writer->world->rank, &writer->file, &writer->diagnostics);
    atomic_store(&writer->written, true);
    return NULL;
}

/* In a thread, if there are copies. Signals are for the thread that trains. */
static void start_writing(CheckpointWriter *writer)
{
    sigset_t all, before;
    atomic_store(&writer->written, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    writer->thread = writer->in_background && pthread_create(&writer->writing, NULL, write_part, writer) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!writer->thread) write_part(writer);
}

void checkpoint_begin(CheckpointWriter *writer, const char *directory, CheckpointManifest manifest, int64_t keep)
{
    World *world = writer->world;
    Diagnostics diagnostics = {0};
    check_finite(world, writer->execution);
    if (leads(world, writer->execution->program)) checkpoint_prepare(directory, manifest.step, &diagnostics);
    insist(world, &diagnostics);
    writer->directory = directory;
    writer->manifest = manifest;
    writer->keep = keep;
    writer->file = (CheckpointFile){0};
    writer->begun = true;
    writer->listed = false;
    if (writer->copy.bytes) checkpoint_copy(writer->execution, writer->copy.bytes);
    start_writing(writer);
    if (!writer->in_background) checkpoint_finish(writer);
}

bool checkpoint_is_being_written(const CheckpointWriter *writer)
{
    return writer->begun && !atomic_load(&writer->written);
}

/* All files are complete, and their ranks tell the others what the manifest says of them. */
static void list_files(CheckpointWriter *writer)
{
    World *world = writer->world;
    CheckpointManifest *manifest = &writer->manifest;
    manifest->files = memory_allocate((size_t)world->size * sizeof *manifest->files);
    world_allgather(world, &writer->file, sizeof writer->file, manifest->files, "its part of the checkpoint");
    manifest->file_count = 0;
    for (int r = 0; r < world->size; r++)
        if (manifest->files[r].name[0]) manifest->files[manifest->file_count++] = manifest->files[r];
    writer->listed = true;
    if (leads(world, writer->execution->program)) start_writing(writer);
}

void checkpoint_advance(CheckpointWriter *writer)
{
    if (!writer->begun) return;
    if (writer->thread) pthread_join(writer->writing, NULL);
    writer->thread = false;
    insist(writer->world, &writer->diagnostics);
    if (!writer->listed) {
        list_files(writer);
        return;
    }
    free(writer->manifest.files);
    writer->begun = false;
    if (writer->keep > 0) prune(writer);
}

void checkpoint_finish(CheckpointWriter *writer)
{
    while (writer->begun) {
        while (checkpoint_is_being_written(writer)) world_sleep_until(writer->world, monotonic_seconds() + file_pause);
        checkpoint_advance(writer);
    }
}

void checkpoint_save_only(World *world, const Execution *execution, const char *directory, CheckpointManifest manifest)
{
    CheckpointWriter writer = {.world = world, .execution = execution};
    checkpoint_begin(&writer, directory, manifest, 0);
    checkpoint_finish(&writer);
    if (world->rank == world->first_here) checkpoint_remove_others(directory, manifest.step);
}

/* ---- Resuming ---- */

static bool check_model(const SkyProgram *program, const CheckpointManifest *manifest, const char *directory,
                        Diagnostics *diagnostics)
{
    if (strcmp(manifest->model_hash, program->model_hash) != 0)
        return input_error(diagnostics, directory, "name another --checkpoint directory",
                           "the checkpoint in it was made for another model");
    Hash low_rank = checkpoint_low_rank(program);
    if (memcmp(&manifest->low_rank, &low_rank, sizeof low_rank) != 0)
        return input_error(diagnostics, directory, "compile with the same --lora",
                           "the checkpoint in it is of programs compiled %s --lora",
                           manifest->low_rank.high || manifest->low_rank.low ? "with another" : "without");
    if (manifest->optimizer != program->optimizer.kind)
        return input_error(diagnostics, directory, "compile with the same --optimizer",
                           "the checkpoint in it was made with another optimiser");
    return true;
}

typedef struct Choice {
    int64_t step; /* -1: none is left */
    CheckpointManifest manifest;
} Choice;

/* Whether two manifests list the same files of the same step. */
static bool is_copy(const CheckpointManifest *one, const CheckpointManifest *other)
{
    if (one->step != other->step || one->file_count != other->file_count) return false;
    for (int f = 0; f < one->file_count; f++)
        if (strcmp(one->files[f].name, other->files[f].name) != 0 || one->files[f].bytes != other->files[f].bytes ||
            !hash_equal(one->files[f].hash, other->files[f].hash))
            return false;
    return true;
}

/* The newest step below `before` that every site has, with rank 0's manifest. Reports manifests that cannot be read or
 * differ from that one. */
static Choice choose(World *world, const SkyProgram *program, const char *directory, int64_t before,
                     Diagnostics *damage)
{
    Choice choice = {.step = -1};
    CheckpointManifest mine = {0};
    size_t count;
    FREED int64_t *steps = common_steps(world, program, directory, &count);
    for (size_t i = 0; i < count && choice.step < 0; i++)
        if (steps[i] < before) choice.step = steps[i];
    bool reads = choice.step >= 0 && leads(world, program);
    bool read = reads && checkpoint_read_manifest(&mine, directory, choice.step, damage);
    if (world->rank == 0) choice.manifest = mine;
    world_broadcast(world, WIRE_CHECKPOINT, &choice, sizeof choice, 0, "the choice of a checkpoint");
    size_t bytes = (size_t)choice.manifest.file_count * sizeof *choice.manifest.files;
    if (world->rank != 0) choice.manifest.files = bytes ? memory_allocate(bytes) : NULL;
    if (bytes) world_broadcast(world, WIRE_CHECKPOINT, choice.manifest.files, bytes, 0, "the files of the checkpoint");
    if (bytes && read && !is_copy(&mine, &choice.manifest)) {
        FREED char *path = checkpoint_path(directory, choice.step);
        input_error(damage, path, NULL, "is not of the run that the other sites' checkpoint of this step is of");
    }
    if (world->rank != 0) free(mine.files);
    return choice;
}

/* True if no rank found damage. Otherwise the lowest rank that did warns: an earlier step may still be good. */
static bool is_intact(World *world, Diagnostics *damage)
{
    int mine = damage->errors > 0, first = -1;
    FREED int *all = memory_allocate((size_t)world->size * sizeof *all);
    world_allgather(world, &mine, sizeof mine, all, "agreement on a checkpoint");
    for (int r = world->size - 1; r >= 0; r--)
        if (all[r]) first = r;
    if (world->rank == first) {
        for (Diagnostic *d = damage->first; d; d = d->next) d->is_error = false;
        diagnostics_print(damage, stderr);
    }
    diagnostics_free(damage);
    return first < 0;
}

bool checkpoint_resume(World *world, Execution *execution, const char *directory, CheckpointManifest *manifest,
                       bool *found, Diagnostics *diagnostics)
{
    bool ok = true, intact = false;
    *found = false;
    for (int64_t before = INT64_MAX; ok && !intact;) {
        Diagnostics damage = {0};
        Choice choice = choose(world, execution->program, directory, before, &damage);
        if (choice.step < 0 && before == INT64_MAX) return true;
        if (choice.step < 0)
            return input_error(diagnostics, directory, "without --resume, training starts at its beginning",
                               "holds no checkpoint that is whole");
        if (choice.manifest.file_count) {
            ok = check_model(execution->program, &choice.manifest, directory, diagnostics);
            if (ok) checkpoint_load(execution, &choice.manifest, directory, &damage);
        }
        intact = is_intact(world, &damage) && choice.manifest.file_count;
        free(choice.manifest.files);
        choice.manifest.files = NULL;
        *manifest = choice.manifest;
        before = choice.step;
    }
    *found = ok;
    return ok;
}
