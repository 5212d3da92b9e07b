#include "runtime/checkpoint.h"

#include <stdlib.h>
#include <string.h>

/* A rank that cannot write ends the run, and says why. */
static void insist(World *world, Diagnostics *diagnostics)
{
    int exit_code;
    if (diagnostics->errors) {
        diagnostics_print(diagnostics, stderr);
        world_fail(world, "the checkpoint cannot be written");
    }
    world_agree(world, diagnostics, &exit_code);
}

void checkpoint_save(World *world, const Execution *execution, const char *directory, CheckpointManifest manifest,
                     int64_t keep)
{
    Diagnostics diagnostics = {0};
    if (world->rank == 0) checkpoint_prepare(directory, manifest.step, &diagnostics);
    insist(world, &diagnostics);
    CheckpointFile mine = {0}, *all = memory_allocate((size_t)world->size * sizeof *all);
    checkpoint_write_file(execution, directory, manifest.step, world->rank, &mine, &diagnostics);
    insist(world, &diagnostics);
    world_allgather(world, &mine, sizeof mine, all, "its part of the checkpoint");
    manifest.files = all;
    manifest.file_count = world->size;
    if (world->rank == 0) {
        checkpoint_write_manifest(&manifest, directory, &diagnostics);
        if (!diagnostics.errors && keep > 0) checkpoint_prune(directory, keep);
    }
    insist(world, &diagnostics);
    free(all);
}

static void check_model(const SkyProgram *program, const CheckpointManifest *manifest, const char *directory,
                        Diagnostics *diagnostics)
{
    if (strcmp(manifest->model_hash, program->model_hash) != 0)
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(directory), "name another --checkpoint directory",
                          "the checkpoint in it was made for another model");
    else if (manifest->optimizer != program->optimizer.kind)
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(directory), "compile with the same --optimizer",
                          "the checkpoint in it was made with another optimiser");
}

bool checkpoint_resume(World *world, Execution *execution, const char *directory, CheckpointManifest *manifest,
                       bool *found, Diagnostics *diagnostics)
{
    struct Choice {
        bool found, failed;
        CheckpointManifest manifest;
    } choice = {0};
    if (world->rank == 0) {
        int64_t step = checkpoint_newest(directory);
        choice.found = step >= 0;
        choice.failed = choice.found && !checkpoint_read_manifest(&choice.manifest, directory, step, diagnostics);
    }
    world_broadcast(world, &choice, sizeof choice, 0, "the choice of a checkpoint");
    *found = choice.found;
    if (choice.failed || !choice.found) return !choice.failed;
    size_t bytes = (size_t)choice.manifest.file_count * sizeof *choice.manifest.files;
    if (world->rank != 0) choice.manifest.files = memory_allocate(bytes);
    world_broadcast(world, choice.manifest.files, bytes, 0, "the files of the checkpoint");
    check_model(execution->program, &choice.manifest, directory, diagnostics);
    bool ok = !diagnostics->errors && checkpoint_load(execution, &choice.manifest, directory, diagnostics);
    free(choice.manifest.files);
    choice.manifest.files = NULL;
    *manifest = choice.manifest;
    return ok;
}
