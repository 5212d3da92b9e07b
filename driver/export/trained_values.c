#include "driver/export/trained_values.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/order.h"
#include "runtime/storage/checkpoint_directory.h"
#include "runtime/storage/checkpoint_files.h"

/* A parameter that was frozen, so that its value may be missing. */
typedef struct FrozenValue {
    const char *name;
    uint64_t check; /* of its value; 0: not known */
} FrozenValue;

/* The metadata have a name per line, and what is known of its value in the same line of others. */
static void list_frozen(TrainedValues *values)
{
    size_t capacity = 0;
    array_push(values->frozen, values->frozen_count, capacity, ((FrozenValue){"", 0}));
    for (size_t i = 0; i < values->count; i++) {
        const char *names = safetensors_metadata(&values->files[i], "frozen");
        const char *checks = safetensors_metadata(&values->files[i], "frozen_checks");
        for (size_t length; names && *names; names += length + (names[length] == '\n')) {
            length = strcspn(names, "\n");
            FrozenValue frozen = {arena_string_n(&values->arena, names, length),
                                  checks && *checks != '\n' ? strtoull(checks, NULL, 16) : 0};
            array_push(values->frozen, values->frozen_count, capacity, frozen);
            checks = checks ? strchr(checks, '\n') : NULL;
            if (checks) checks++;
        }
    }
    qsort(values->frozen, values->frozen_count, sizeof *values->frozen, order_texts);
}

bool trained_values_find(void *context, const char *name, TrainedTensor *trained)
{
    TrainedValues *values = context;
    *trained = (TrainedTensor){0};
    if (!values->frozen) list_frozen(values);
    const FrozenValue *frozen = bsearch(&name, values->frozen, values->frozen_count, sizeof *frozen, order_texts);
    if (frozen) {
        trained->check = frozen->check;
        return true;
    }
    for (size_t i = 0; i < values->count; i++) {
        const SafeTensor *tensor = safetensors_find(&values->files[i], name);
        if (!tensor) tensor = safetensors_find(&values->files[i], arena_format(&values->arena, "param/%s", name));
        if (!tensor) continue;
        *trained = (TrainedTensor){tensor->dtype, tensor->shape, tensor->data, 0};
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
    FREED char *path = checkpoint_path(directory, step);
    bool ok = true;
    for (int i = 0; ok && i < manifest.file_count; i++) {
        const char *file = arena_format(&values->arena, "%s/%s", path, manifest.files[i].name);
        if (access(file, F_OK) != 0)
            ok = input_error(diagnostics, file,
                             "copy the step directories of all sites, or hosts, into one and export from that",
                             "is a part of the checkpoint that is not here: each site of a pipeline holds its own");
        ok = ok && open_file(values, file, diagnostics) &&
             checkpoint_verify_file(&values->files[values->count - 1], &manifest.files[i], file, diagnostics);
    }
    free(manifest.files);
    return ok;
}

/* Whether the checkpoint in PATH/best is what the run with this newest one found best: of the same model, and the step
 * that its manifest names, or a later one. An earlier run may have left another. */
static bool belongs(const char *path, int64_t newest, const char *best, int64_t best_step)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    CheckpointManifest of_run = {0}, of_best = {0};
    bool ok = checkpoint_read_manifest(&of_run, path, newest, &ignored) &&
              checkpoint_read_manifest(&of_best, best, best_step, &ignored) &&
              strcmp(of_run.model_hash, of_best.model_hash) == 0 && of_run.seed == of_best.seed &&
              of_run.low_rank.low == of_best.low_rank.low && of_run.low_rank.high == of_best.low_rank.high &&
              (of_run.best.step == best_step || best_step >= newest);
    free(of_run.files);
    free(of_best.files);
    return ok;
}

/* The best checkpoint if training kept it (--keep-best), else the newest. */
static bool open_directory(TrainedValues *values, const char *path, Diagnostics *diagnostics)
{
    const char *best = arena_format(&values->arena, "%s/best", path);
    int64_t newest = checkpoint_newest(path), best_step = checkpoint_newest(best);
    const char *global = arena_format(&values->arena, "%s/model.safetensors", path); /* of a federation's coordinator */
    if (newest < 0 && access(global, F_OK) == 0) return open_file(values, global, diagnostics);
    if (newest < 0) {
        const char *federation = arena_format(&values->arena, "%s/federation.yaml", path);
        const char *coordinator = arena_format(&values->arena, "%s/coordinator/federation.yaml", path);
        const char *hint = access(coordinator, F_OK) == 0  ? "name its folder coordinator, which has the model"
                           : access(federation, F_OK) == 0 ? "name DIR/coordinator, which has the model"
                                                           : NULL;
        return input_error(diagnostics, path, hint, "holds no complete checkpoint");
    }
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
            bool is_value = strncmp(name, "adam.", 5) != 0 && strncmp(name, "momentum/", 9) != 0 &&
                            strncmp(name, "variance/", 9) != 0 && strncmp(name, "control/", 8) != 0 &&
                            strncmp(name, "remainder/", 10) != 0 && strncmp(name, "grad/", 5) != 0;
            count += is_value && strlen(name) > strlen(end) && strcmp(name + strlen(name) - strlen(end), end) == 0;
        }
    return count;
}

bool trained_values_merge(MergedWeights *merged, TrainedValues *values, const char *model, Diagnostics *diagnostics)
{
    LowRankSpec spec;
    const char *text = trained_values_low_rank(values);
    if (text && !low_rank_parse(&spec, text, &values->arena, diagnostics)) return false;
    if (!merged_weights_open(merged, model, text ? &spec : NULL, trained_values_find, values, diagnostics))
        return false;
    if (!text) return true;
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
    free(values->frozen);
    arena_free(&values->arena);
}
