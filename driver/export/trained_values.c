#include "driver/export/trained_values.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/parts.h"
#include "runtime/storage/checkpoint_directory.h"
#include "runtime/storage/checkpoint_files.h"

/* Whether it was frozen; its value may then be missing. */
static bool is_frozen(const TrainedValues *values, const char *name)
{
    for (size_t i = 0; i < values->count; i++) {
        const char *frozen = safetensors_metadata(&values->files[i], "frozen");
        if (frozen && text_has_part(frozen, name, "\n")) return true;
    }
    return false;
}

bool trained_values_find(void *context, const char *name, TrainedTensor *trained)
{
    TrainedValues *values = context;
    *trained = (TrainedTensor){0};
    if (is_frozen(values, name)) return true;
    for (size_t i = 0; i < values->count; i++) {
        const SafeTensor *tensor = safetensors_find(&values->files[i], name);
        if (!tensor) tensor = safetensors_find(&values->files[i], arena_format(&values->arena, "param/%s", name));
        if (!tensor) continue;
        *trained = (TrainedTensor){tensor->dtype, tensor->shape, tensor->data};
        return true;
    }
    return false;
}

static bool open_file(TrainedValues *values, const char *path, Diagnostics *diagnostics)
{
    SafeTensors file;
    if (!safetensors_open(&file, path, diagnostics)) return false;
    array_push(values->files, values->count, values->capacity, file);
    return true;
}

static bool open_step(TrainedValues *values, const char *directory, int64_t step, Diagnostics *diagnostics)
{
    CheckpointManifest manifest;
    if (!checkpoint_read_manifest(&manifest, directory, step, diagnostics)) return false;
    char *path = checkpoint_path(directory, step);
    bool ok = true;
    for (int i = 0; ok && i < manifest.file_count; i++) {
        const char *file = arena_format(&values->arena, "%s/%s", path, manifest.files[i].name);
        ok = open_file(values, file, diagnostics) &&
             checkpoint_verify_file(&values->files[values->count - 1], &manifest.files[i], file, diagnostics);
    }
    free(path);
    free(manifest.files);
    return ok;
}

/* Whether the checkpoint in PATH/best is what the run with this newest one found best: of the same model, and the step
 * that its manifest names, or a later one. An earlier run may have left another. */
static bool belongs(const char *path, int64_t newest, const char *best, int64_t best_step)
{
    Diagnostics ignored = {0};
    CheckpointManifest of_run = {0}, of_best = {0};
    bool ok = checkpoint_read_manifest(&of_run, path, newest, &ignored) &&
              checkpoint_read_manifest(&of_best, best, best_step, &ignored) &&
              strcmp(of_run.model_hash, of_best.model_hash) == 0 && of_run.seed == of_best.seed &&
              of_run.low_rank.low == of_best.low_rank.low && of_run.low_rank.high == of_best.low_rank.high &&
              (of_run.best.step == best_step || best_step >= newest);
    free(of_run.files);
    free(of_best.files);
    diagnostics_free(&ignored);
    return ok;
}

/* The best checkpoint if training kept it (--keep-best), else the newest. */
static bool open_directory(TrainedValues *values, const char *path, Diagnostics *diagnostics)
{
    const char *best = arena_format(&values->arena, "%s/best", path);
    int64_t newest = checkpoint_newest(path, INT64_MAX), best_step = checkpoint_newest(best, INT64_MAX);
    if (newest < 0) return input_error(diagnostics, path, NULL, "holds no complete checkpoint");
    if (best_step >= 0 && belongs(path, newest, best, best_step))
        return open_step(values, best, best_step, diagnostics);
    return open_step(values, path, newest, diagnostics);
}

bool trained_values_open(TrainedValues *values, const char *path, Diagnostics *diagnostics)
{
    *values = (TrainedValues){.path = path};
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) return open_file(values, path, diagnostics);
    if (access(arena_format(&values->arena, "%s/MANIFEST.json", path), R_OK) == 0) {
        char *resolved = realpath(path, NULL); /* so that the step can be taken from the name, and "." has one */
        if (!resolved) memory_exhausted();
        const char *name = strrchr(resolved, '/') + 1;
        char *parent = arena_string(&values->arena, resolved);
        long long step = strncmp(name, "step-", 5) == 0 ? strtoll(name + 5, NULL, 10) : -1;
        free(resolved);
        if (step >= 0) return open_step(values, dirname(parent), step, diagnostics);
    }
    return open_directory(values, path, diagnostics);
}

/* ---- Low-rank branches ---- */

const char *trained_values_low_rank(const TrainedValues *values)
{
    const char *text = NULL;
    for (size_t i = 0; i < values->count && !text; i++) text = safetensors_metadata(&values->files[i], "lora");
    return text;
}

static size_t count_branches(const TrainedValues *values)
{
    static const char end[] = ".lora_A.weight";
    size_t count = 0;
    for (size_t i = 0; i < values->count; i++)
        for (size_t t = 0; t < values->files[i].count; t++) {
            const char *name = values->files[i].tensors[t].name;
            bool is_value =
                strncmp(name, "adam.", 5) != 0 && strncmp(name, "momentum/", 9) != 0 && strncmp(name, "grad/", 5) != 0;
            count += is_value && strlen(name) > strlen(end) && strcmp(name + strlen(name) - strlen(end), end) == 0;
        }
    return count;
}

bool trained_values_merge(MergedWeights *merged, TrainedValues *values, const char *model, Diagnostics *diagnostics)
{
    LowRankSpec spec;
    if (!low_rank_parse(&spec, trained_values_low_rank(values), &values->arena, diagnostics)) return false;
    if (!merged_weights_open(merged, model, &spec, trained_values_find, values, diagnostics)) return false;
    size_t there = count_branches(values);
    return merged->count == there ||
           input_error(diagnostics, values->path,
                       "give the model that the checkpoint was trained from, compiled without --untie and --keep-ties",
                       "holds %zu low-rank branches, but only %zu belong to weights of this model", there,
                       merged->count);
}

void trained_values_free(TrainedValues *values)
{
    for (size_t i = 0; i < values->count; i++) safetensors_close(&values->files[i]);
    free(values->files);
    arena_free(&values->arena);
}
