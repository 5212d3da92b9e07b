#include "runtime/storage/checkpoint_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/safetensors.h"
#include "runtime/storage/parameters.h"

static const char manifest_format[] = "skycc.checkpoint/1";
static const char *const optimizer_names[] = {"sgd", "momentum", "adam", "adamw", "lamb"};
enum { OPTIMIZER_COUNT = sizeof optimizer_names / sizeof *optimizer_names, SEAL_SIZE = 64 };

/* ---- Names ---- */

static char *join(const char *directory, const char *name)
{
    Buffer path = {0};
    buffer_print(&path, "%s/%s", directory, name);
    return path.bytes;
}

char *checkpoint_path(const char *directory, int64_t step)
{
    Buffer path = {0};
    buffer_print(&path, "%s/step-%08lld", directory, (long long)step);
    return path.bytes;
}

static char *manifest_path(const char *directory, int64_t step)
{
    char *path = checkpoint_path(directory, step), *manifest = join(path, "MANIFEST.json");
    free(path);
    return manifest;
}

static bool is_complete(const char *directory, int64_t step)
{
    char *path = manifest_path(directory, step);
    bool complete = access(path, R_OK) == 0;
    free(path);
    return complete;
}

/* The step that a directory entry is named after; -1 if it is none. */
static int64_t step_of(const char *name)
{
    if (strncmp(name, "step-", 5) != 0 || strlen(name) < 13 || strspn(name + 5, "0123456789") != strlen(name + 5))
        return -1;
    errno = 0;
    long long step = strtoll(name + 5, NULL, 10);
    return errno ? -1 : step;
}

static int descending(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? 1 : left > right ? -1 : 0;
}

/* All steps of the directory, complete or not, newest first; free() them. */
static int64_t *list_steps(const char *directory, size_t *count)
{
    int64_t *steps = NULL;
    size_t capacity = 0;
    *count = 0;
    DIR *stream = opendir(directory);
    for (struct dirent *entry; stream && (entry = readdir(stream));) {
        int64_t step = step_of(entry->d_name);
        if (step >= 0) array_push(steps, *count, capacity, step);
    }
    if (stream) closedir(stream);
    if (*count) qsort(steps, *count, sizeof *steps, descending);
    return steps;
}

int64_t checkpoint_newest(const char *directory, int64_t before)
{
    size_t count;
    int64_t *steps = list_steps(directory, &count), newest = -1;
    for (size_t i = 0; i < count && newest < 0; i++)
        if (steps[i] < before && is_complete(directory, steps[i])) newest = steps[i];
    free(steps);
    return newest;
}

/* ---- Writing ---- */

Hash checkpoint_low_rank(const SkyProgram *program)
{
    return *program->low_rank ? hash_bytes(program->low_rank, strlen(program->low_rank)) : (Hash){0};
}

/* Removes what this module writes into a step's directory; the manifest first, so that a half-removed step is none. */
static void empty_step(const char *path)
{
    char *manifest = join(path, "MANIFEST.json");
    unlink(manifest);
    free(manifest);
    DIR *stream = opendir(path);
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        if (strncmp(entry->d_name, "rank-", 5) == 0 || strncmp(entry->d_name, "MANIFEST.json.", 14) == 0) {
            char *inside = join(path, entry->d_name);
            unlink(inside);
            free(inside);
        }
    if (stream) closedir(stream);
}

static bool make_directory(const char *path, Diagnostics *diagnostics)
{
    struct stat status;
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && stat(path, &status) == 0 && S_ISDIR(status.st_mode))) return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), NULL, "cannot create: %s", strerror(errno));
}

bool checkpoint_check_directory(const char *directory, Diagnostics *diagnostics)
{
    if (!make_directory(directory, diagnostics)) return false;
    if (access(directory, W_OK | X_OK) == 0) return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(directory), NULL, "cannot write into it: %s",
                             strerror(errno));
}

CheckpointLock checkpoint_lock(const char *directory, const char *name, int *descriptor, Diagnostics *diagnostics)
{
    Buffer text = {0};
    struct stat status;
    buffer_print(&text, "%s/.lock-%s", directory, name);
    char *path = text.bytes;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    bool ok = file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    bool locked = ok && flock(file, LOCK_EX | LOCK_NB) == 0, held = ok && !locked && errno == EWOULDBLOCK;
    if (!ok)
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), NULL, "cannot be made a lock: %s",
                          file < 0 ? strerror(errno) : "it is no regular file");
    else if (!locked && !held)
        diagnostics_warning(diagnostics, PLACE_FILE(path), "see to it that no other run writes there",
                            "cannot be locked: %s", strerror(errno));
    if (!locked && file >= 0) close(file); /* else open until the process ends */
    if (descriptor) *descriptor = locked ? file : -1;
    free(path);
    return !ok ? CHECKPOINT_LOCK_FAILED : held ? CHECKPOINT_LOCK_HELD : CHECKPOINT_LOCKED;
}

bool checkpoint_prepare(const char *directory, int64_t step, Diagnostics *diagnostics)
{
    if (!make_directory(directory, diagnostics)) return false;
    char *path = checkpoint_path(directory, step);
    bool ok = make_directory(path, diagnostics);
    if (ok) empty_step(path);
    free(path);
    return ok;
}

static Shape tensor_shape(const SkyTensor *tensor)
{
    Shape shape = {.rank = (int)tensor->rank};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = tensor->dim[i];
    return shape;
}

/* The name under which state `index` of a parameter is kept; index -1 is its value. In `arena`. */
static const char *tensor_name(Arena *arena, const SkyParameter *parameter, int index)
{
    if (index < 0) return parameter->value.name;
    return arena_format(arena, "%s/%s", parameter_state_prefix(parameter->state_count, (uint32_t)index),
                        parameter->value.name);
}

static SkyLocation tensor_location(const SkyParameter *parameter, int index)
{
    return index < 0 ? parameter->value.location : parameter->states[index];
}

/* Whether the value stays what a file besides the checkpoint holds. */
static bool is_kept_elsewhere(const SkyParameter *parameter) { return parameter->frozen && parameter->initial_file; }

const char *checkpoint_not_finite(const Execution *execution, Arena *arena, uint32_t *stage)
{
    for (uint32_t s = 0; s < execution->program->stage_count; s++) {
        int state;
        const SkyParameter *parameter = execution_not_finite(execution, s, &state);
        *stage = execution->stages[s].stage->index;
        if (parameter) return tensor_name(arena, parameter, state);
    }
    return NULL;
}

static const float *transpose(Arena *arena, const float *data, Shape *shape)
{
    int64_t rows = shape->dim[0], columns = shape->dim[1];
    float *copy = arena_new_array(arena, float, (size_t)(rows * columns));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) copy[c * rows + r] = data[r * columns + c];
    *shape = (Shape){2, {columns, rows}};
    return copy;
}

/* The value once more under each of its other names; copies are made in `arena`. */
static void write_tied(const Execution *execution, uint32_t stage, const SkyParameter *parameter,
                       SafeTensorsWriter *writer, Arena *arena)
{
    for (uint32_t i = 0; i < parameter->tied_name_count; i++) {
        Shape shape = tensor_shape(&parameter->value);
        const float *data = execution_address(execution, stage, 0, parameter->value.location);
        if (parameter->tied_names[i].transposed) data = transpose(arena, data, &shape);
        safetensors_writer_add(writer, parameter->tied_names[i].name, DTYPE_F32, &shape, data);
    }
}

/* A parameter that several stages hold is written by the first of them on this rank. */
static bool held_by_earlier(const Execution *execution, uint32_t stage, const SkyParameter *parameter)
{
    for (uint32_t s = 0; s < stage; s++)
        for (uint32_t p = 0; p < execution->stages[s].stage->parameter_count; p++)
            if (execution->stages[s].stage->parameters[p].global_index == parameter->global_index) return true;
    return false;
}

static bool hash_file(const char *path, CheckpointFile *file, Diagnostics *diagnostics)
{
    MappedFile mapped;
    if (!file_map(&mapped, path, diagnostics)) return false;
    file->bytes = (int64_t)mapped.size;
    file->hash = hash_bytes(mapped.bytes, mapped.size);
    file_unmap(&mapped);
    return true;
}

/* Its names, a line each: whoever reads the file finds them elsewhere. */
static void note_frozen(Buffer *frozen, const SkyParameter *parameter)
{
    buffer_print(frozen, "%s%s", frozen->size ? "\n" : "", parameter->value.name);
    for (uint32_t i = 0; i < parameter->tied_name_count; i++)
        buffer_print(frozen, "\n%s", parameter->tied_names[i].name);
}

bool checkpoint_write_file(const Execution *execution, const char *directory, int64_t step, int rank,
                           CheckpointFile *file, Diagnostics *diagnostics)
{
    SafeTensorsWriter *writer = safetensors_writer();
    Arena names = {0}; /* and transposed copies */
    Buffer frozen = {0};
    for (uint32_t s = 0; s < execution->program->stage_count; s++) {
        const SkyStage *stage = execution->stages[s].stage;
        for (uint32_t p = 0; p < stage->parameter_count; p++) {
            const SkyParameter *parameter = &stage->parameters[p];
            if (held_by_earlier(execution, s, parameter)) continue;
            if (is_kept_elsewhere(parameter)) {
                note_frozen(&frozen, parameter);
                continue;
            }
            Shape shape = tensor_shape(&parameter->value);
            for (int i = -1; i < (int)parameter->state_count; i++)
                safetensors_writer_add(writer, tensor_name(&names, parameter, i), DTYPE_F32, &shape,
                                       execution_address(execution, s, 0, tensor_location(parameter, i)));
            write_tied(execution, s, parameter, writer, &names);
        }
    }
    if (frozen.size) safetensors_writer_metadata(writer, "frozen", buffer_text(&frozen));
    if (*execution->program->low_rank) safetensors_writer_metadata(writer, "lora", execution->program->low_rank);
    char *in = checkpoint_path(directory, step);
    snprintf(file->name, sizeof file->name, "rank-%02d.safetensors", rank);
    char *path = join(in, file->name);
    bool ok = make_directory(directory, diagnostics) && make_directory(in, diagnostics) &&
              safetensors_write(writer, path, diagnostics) && hash_file(path, file, diagnostics);
    free(path);
    free(in);
    buffer_free(&frozen);
    arena_free(&names);
    return ok;
}

/* The end of a manifest: the hash of all that stands before it. Returns the length. */
static int seal_of(const char *text, size_t size, char seal[static SEAL_SIZE])
{
    char hash[33];
    return snprintf(seal, SEAL_SIZE, ",\n \"hash\": \"%s\"\n}\n", hash_format(hash_bytes(text, size), hash));
}

void checkpoint_seal_manifest(Buffer *text)
{
    char seal[SEAL_SIZE];
    int length = seal_of(text->bytes, text->size, seal);
    buffer_append(text, seal, (size_t)length);
}

static bool check_seal(const char *path, Diagnostics *diagnostics)
{
    MappedFile file;
    char seal[SEAL_SIZE];
    if (!file_map(&file, path, diagnostics)) return false;
    const char *text = (const char *)file.bytes;
    size_t length = (size_t)seal_of("", 0, seal);
    bool sealed = file.size > length;
    if (sealed) {
        seal_of(text, file.size - length, seal);
        sealed = memcmp(text + file.size - length, seal, length) == 0;
    }
    file_unmap(&file);
    return sealed || diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), NULL,
                                       "does not have the content that it was written with");
}

static void print_best(Buffer *text, const CheckpointBest *best)
{
    if (!best->metric[0]) return;
    buffer_print(text, " \"best\": {\"metric\": \"%s\", \"step\": %lld, \"value\": %.17g, \"waited\": %lld},\n",
                 best->metric, (long long)best->step, best->step ? best->value : 0, (long long)best->waited);
}

bool checkpoint_write_manifest(const CheckpointManifest *manifest, const char *directory, Diagnostics *diagnostics)
{
    Buffer text = {0};
    char hash[33];
    buffer_print(&text, "{\n \"format\": \"%s\",\n \"step\": %lld,\n \"optimizer\": \"%s\",\n", manifest_format,
                 (long long)manifest->step, optimizer_names[manifest->optimizer]);
    buffer_print(&text, " \"model_hash\": ");
    json_print_string(&text, manifest->model_hash);
    buffer_print(&text, ",\n \"plan_hash\": ");
    json_print_string(&text, manifest->plan_hash);
    if (manifest->low_rank.high || manifest->low_rank.low)
        buffer_print(&text, ",\n \"lora_hash\": \"%s\"", hash_format(manifest->low_rank, hash));
    buffer_print(&text, ",\n \"random\": {\"seed\": \"%llu\"},\n", (unsigned long long)manifest->seed);
    buffer_print(&text, " \"data\": {\"rows\": %lld, \"epoch\": %lld, \"offset\": %lld, \"shuffled\": %d},\n",
                 (long long)manifest->rows, (long long)manifest->cursor.epoch, (long long)manifest->cursor.offset,
                 manifest->shuffled);
    buffer_print(&text, " \"schedule_steps\": %lld,\n", (long long)manifest->schedule_steps);
    print_best(&text, &manifest->best);
    buffer_print(&text, " \"files\": [");
    for (int i = 0; i < manifest->file_count; i++)
        buffer_print(&text, "%s\n  {\"name\": \"%s\", \"bytes\": %lld, \"hash\": \"%s\"}", i ? "," : "",
                     manifest->files[i].name, (long long)manifest->files[i].bytes,
                     hash_format(manifest->files[i].hash, hash));
    buffer_print(&text, "\n ]");
    checkpoint_seal_manifest(&text);
    char *path = manifest_path(directory, manifest->step);
    bool ok = file_write_all(path, text.bytes, text.size, diagnostics);
    free(path);
    buffer_free(&text);
    return ok;
}

int64_t *checkpoint_newest_steps(const char *directory, int64_t most, size_t *count)
{
    size_t all, complete = 0;
    int64_t *steps = list_steps(directory, &all);
    for (size_t i = 0; i < all && (int64_t)complete < most; i++)
        if (is_complete(directory, steps[i])) steps[complete++] = steps[i];
    *count = complete;
    return steps;
}

static bool is_among(int64_t step, const int64_t *steps, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (steps[i] == step) return true;
    return false;
}

static void remove_step(const char *directory, int64_t step)
{
    char *path = checkpoint_path(directory, step);
    empty_step(path);
    rmdir(path);
    free(path);
}

void checkpoint_prune(const char *directory, const int64_t *kept, size_t count, bool spare_complete)
{
    size_t all;
    int64_t *steps = list_steps(directory, &all);
    for (size_t i = 0; i < all && count > 0; i++) {
        if (steps[i] >= kept[0] || is_among(steps[i], kept, count) ||
            (spare_complete && is_complete(directory, steps[i])))
            continue;
        remove_step(directory, steps[i]);
    }
    free(steps);
}

void checkpoint_remove_others(const char *directory, int64_t step)
{
    size_t all;
    int64_t *steps = list_steps(directory, &all);
    for (size_t i = 0; i < all; i++)
        if (steps[i] != step) remove_step(directory, steps[i]);
    free(steps);
}

/* ---- Reading ---- */

static bool read_hash(const char *text, Hash *hash)
{
    unsigned long long high, low;
    int used = 0;
    if (strlen(text) != 32 || sscanf(text, "%16llx%16llx%n", &high, &low, &used) != 2 || used != 32) return false;
    *hash = (Hash){high, low};
    return true;
}

static bool read_file(JsonReader reader, const json_t *entry, const char *place, CheckpointFile *file)
{
    const char *name, *hash;
    if (!json_get_string(reader, entry, place, "name", &name) ||
        !json_get_integer(reader, entry, place, "bytes", &file->bytes) ||
        !json_get_string(reader, entry, place, "hash", &hash))
        return false;
    if (strlen(name) >= sizeof file->name || strncmp(name, "rank-", 5) != 0 || strchr(name, '/') ||
        !read_hash(hash, &file->hash))
        return diagnostics_error(reader.diagnostics, EXIT_BAD_INPUT, (Place){.file = reader.file, .object = place},
                                 NULL, "names no file of a checkpoint");
    snprintf(file->name, sizeof file->name, "%s", name);
    return true;
}

static bool read_files(JsonReader reader, const json_t *root, CheckpointManifest *manifest)
{
    json_t *files;
    if (!json_get_array(reader, root, "", "files", &files)) return false;
    size_t count = json_array_size(files);
    manifest->files = memory_allocate(count * sizeof *manifest->files);
    manifest->file_count = (int)count;
    for (size_t i = 0; i < count; i++) {
        char place[64];
        snprintf(place, sizeof place, "files[%zu]", i);
        if (!read_file(reader, json_array_get(files, i), place, &manifest->files[i])) return false;
    }
    return true;
}

static bool copy_text(char *target, size_t size, const char *text)
{
    return (size_t)snprintf(target, size, "%s", text) < size;
}

/* What evaluations had come to; a manifest need not say. */
static bool read_best(JsonReader reader, const json_t *root, CheckpointBest *best)
{
    const char *metric;
    json_t *object;
    if (!json_object_get(root, "best")) return true;
    if (!json_get_object(reader, root, "", "best", &object) ||
        !json_get_string(reader, object, "best", "metric", &metric) ||
        !json_get_integer(reader, object, "best", "step", &best->step) ||
        !json_get_number(reader, object, "best", "value", &best->value) ||
        !json_get_integer(reader, object, "best", "waited", &best->waited))
        return false;
    const int64_t most = (int64_t)1 << 53;
    if (best->step >= 0 && best->step < most && best->waited >= 0 && best->waited < most &&
        copy_text(best->metric, sizeof best->metric, metric))
        return true;
    return diagnostics_error(reader.diagnostics, EXIT_BAD_INPUT, PLACE_FILE(reader.file), NULL,
                             "its \"best\" is no step and value of a metric");
}

static bool read_members(JsonReader reader, const json_t *root, int64_t step, CheckpointManifest *manifest)
{
    const char *format, *optimizer, *model, *plan, *seed;
    json_t *data, *random;
    int64_t shuffled;
    if (!json_get_string(reader, root, "", "format", &format) ||
        !json_get_integer(reader, root, "", "step", &manifest->step) ||
        !json_get_string(reader, root, "", "optimizer", &optimizer) ||
        !json_get_string(reader, root, "", "model_hash", &model) ||
        !json_get_string(reader, root, "", "plan_hash", &plan) || !json_get_object(reader, root, "", "data", &data) ||
        !json_get_object(reader, root, "", "random", &random) ||
        !json_get_string(reader, random, "random", "seed", &seed) ||
        !json_get_integer(reader, data, "data", "rows", &manifest->rows) ||
        !json_get_integer(reader, data, "data", "epoch", &manifest->cursor.epoch) ||
        !json_get_integer(reader, data, "data", "offset", &manifest->cursor.offset) ||
        !json_get_integer(reader, data, "data", "shuffled", &shuffled) ||
        !json_optional_integer(reader, root, "", "schedule_steps", &manifest->schedule_steps))
        return false;
    const char *low_rank = json_string_value(json_object_get(root, "lora_hash"));
    manifest->low_rank = (Hash){0};
    const int64_t most = (int64_t)1 << 53; /* so that counting on does not overflow */
    manifest->shuffled = shuffled != 0;
    manifest->seed = strtoull(seed, NULL, 10);
    manifest->optimizer = OPTIMIZER_COUNT;
    for (uint32_t k = 0; k < OPTIMIZER_COUNT; k++)
        if (strcmp(optimizer, optimizer_names[k]) == 0) manifest->optimizer = k;
    if (strcmp(format, manifest_format) == 0 && manifest->optimizer < OPTIMIZER_COUNT && manifest->step == step &&
        step >= 0 && step < most && manifest->schedule_steps >= 0 && manifest->schedule_steps <= most &&
        manifest->cursor.epoch >= 0 && manifest->cursor.epoch < most && manifest->rows < DATASET_NO_ROW &&
        manifest->cursor.offset >= 0 && manifest->cursor.offset <= manifest->rows &&
        (!low_rank || read_hash(low_rank, &manifest->low_rank)) &&
        copy_text(manifest->model_hash, sizeof manifest->model_hash, model) &&
        copy_text(manifest->plan_hash, sizeof manifest->plan_hash, plan))
        return read_best(reader, root, &manifest->best) && read_files(reader, root, manifest);
    return diagnostics_error(reader.diagnostics, EXIT_BAD_INPUT, PLACE_FILE(reader.file), NULL,
                             "is no manifest of a checkpoint that this program can read");
}

bool checkpoint_read_manifest(CheckpointManifest *manifest, const char *directory, int64_t step,
                              Diagnostics *diagnostics)
{
    *manifest = (CheckpointManifest){0};
    char *path = manifest_path(directory, step);
    json_t *root = check_seal(path, diagnostics) ? json_read(path, diagnostics) : NULL;
    bool ok = root && read_members((JsonReader){path, diagnostics}, root, step, manifest);
    json_decref(root);
    free(path);
    if (!ok) {
        free(manifest->files);
        manifest->files = NULL;
    }
    return ok;
}

/* Whether any of the tensor's names is wanted here at all: files of other ranks need not be read through. */
static bool holds_wanted(const Execution *execution, const SafeTensors *file)
{
    for (uint32_t s = 0; s < execution->program->stage_count; s++)
        for (uint32_t p = 0; p < execution->stages[s].stage->parameter_count; p++)
            if (safetensors_find(file, execution->stages[s].stage->parameters[p].value.name)) return true;
    return false;
}

static bool load_tensor(Execution *execution, uint32_t stage, const SkyParameter *parameter, int index,
                        const SafeTensors *file, const char *path, Diagnostics *diagnostics)
{
    Arena names = {0};
    const char *name = tensor_name(&names, parameter, index);
    const SafeTensor *tensor = safetensors_find(file, name);
    Shape shape = tensor_shape(&parameter->value);
    Place place = {.file = path, .object = name};
    bool ok = true;
    if (!tensor)
        ok = diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL, "the tensor is missing");
    else if (tensor->dtype != DTYPE_F32 || !shape_equal(&tensor->shape, &shape))
        ok = diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "was the checkpoint made for another model?",
                               "the tensor has another type or shape than the program's");
    else
        memcpy(execution_address(execution, stage, 0, tensor_location(parameter, index)), tensor->data, tensor->bytes);
    arena_free(&names);
    return ok;
}

/* A program that does not train a parameter cannot go on from one that did: its own checkpoints would lack it. */
static bool check_frozen(const Execution *execution, uint32_t stage, const SkyParameter *parameter,
                         const SafeTensors *file, const char *path, Diagnostics *diagnostics)
{
    const SafeTensor *tensor = safetensors_find(file, parameter->value.name);
    const void *here = execution_address(execution, stage, 0, parameter->value.location);
    return (tensor->bytes == parameter->value.bytes && memcmp(tensor->data, here, tensor->bytes) == 0) ||
           diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = path, .object = parameter->value.name},
                             "skycc export writes a model with the trained values: compile that",
                             "was trained, and is frozen in this program");
}

/* Loads what the file has of this rank's parameters and marks it in `loaded`, which counts through all stages. */
static bool load_file(Execution *execution, const SafeTensors *file, const char *path, bool *loaded,
                      Diagnostics *diagnostics)
{
    for (uint32_t s = 0; s < execution->program->stage_count; s++) {
        const SkyStage *stage = execution->stages[s].stage;
        for (uint32_t p = 0; p < stage->parameter_count; p++, loaded++) {
            const SkyParameter *parameter = &stage->parameters[p];
            if (*loaded || !safetensors_find(file, parameter->value.name)) continue;
            if (is_kept_elsewhere(parameter)) {
                if (!check_frozen(execution, s, parameter, file, path, diagnostics)) return false;
                *loaded = true;
                continue;
            }
            for (int i = -1; i < (int)parameter->state_count; i++)
                if (!load_tensor(execution, s, parameter, i, file, path, diagnostics)) return false;
            *loaded = true;
        }
    }
    return true;
}

bool checkpoint_verify_file(const SafeTensors *file, const CheckpointFile *entry, const char *path,
                            Diagnostics *diagnostics)
{
    Hash hash = hash_bytes(file->file.bytes, file->file.size);
    if ((int64_t)file->file.size == entry->bytes && memcmp(&hash, &entry->hash, sizeof hash) == 0) return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), NULL,
                             "does not have the content that the checkpoint's manifest lists");
}

static bool report_missing(const Execution *execution, const bool *loaded, const char *path, Diagnostics *diagnostics)
{
    for (uint32_t s = 0; s < execution->program->stage_count; s++)
        for (uint32_t p = 0; p < execution->stages[s].stage->parameter_count; p++)
            if (!*loaded++ && !is_kept_elsewhere(&execution->stages[s].stage->parameters[p]))
                return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path),
                                         execution->program->site_count > 1
                                             ? "another plan? then copy the other sites' files of this step here, too"
                                             : "are the files of all ranks visible on this host?",
                                         "no file of the checkpoint here has parameter '%s'",
                                         execution->stages[s].stage->parameters[p].value.name);
    return true;
}

bool checkpoint_load(Execution *execution, const CheckpointManifest *manifest, const char *directory,
                     Diagnostics *diagnostics)
{
    size_t count = 0;
    for (uint32_t s = 0; s < execution->program->stage_count; s++) count += execution->stages[s].stage->parameter_count;
    bool *loaded = memory_allocate(count * sizeof *loaded), ok = true;
    char *in = checkpoint_path(directory, manifest->step);
    for (int f = 0; f < manifest->file_count && ok; f++) {
        char *path = join(in, manifest->files[f].name);
        SafeTensors file;
        if (access(path, R_OK) == 0) { /* on another host, files may be missing that are not needed here */
            ok = safetensors_open(&file, path, diagnostics);
            if (ok && holds_wanted(execution, &file))
                ok = checkpoint_verify_file(&file, &manifest->files[f], path, diagnostics) &&
                     load_file(execution, &file, path, loaded, diagnostics);
            safetensors_close(&file);
        }
        free(path);
    }
    ok = ok && report_missing(execution, loaded, in, diagnostics);
    free(in);
    free(loaded);
    return ok;
}
