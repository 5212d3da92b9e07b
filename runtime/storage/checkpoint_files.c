#include "runtime/storage/checkpoint_files.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/input_files.h"
#include "base/text.h"
#include "runtime/program/parallel.h"
#include "runtime/storage/checkpoint_directory.h"
#include "runtime/storage/parameters.h"

/* ---- Writing ---- */

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

static const void *fetch_tensor(const Execution *execution, uint32_t stage, const SkyParameter *parameter, int index)
{
    return execution_fetch(execution, stage, 0, tensor_location(parameter, index), parameter->value.bytes);
}

/* Whether a file other than the checkpoint holds the value. */
static bool is_kept_elsewhere(const SkyParameter *parameter)
{
    return parameter->frozen && (parameter->initial_file || parameter->value.dtype != DTYPE_F32); /* or it is drawn */
}

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
static void write_tied(const SkyParameter *parameter, const void *value, SafeTensorsWriter *writer, Arena *arena)
{
    for (uint32_t i = 0; i < parameter->tied_name_count; i++) {
        Shape shape = tensor_shape(&parameter->value);
        const float *data = value;
        if (parameter->tied_names[i].transposed) data = transpose(arena, data, &shape);
        safetensors_writer_add(writer, parameter->tied_names[i].name, DTYPE_F32, &shape, data);
    }
}

/* A parameter that several stages hold is written by the first of them on this rank. */
static bool held_by_earlier(const Execution *execution, uint32_t stage, const SkyParameter *parameter)
{
    for (SkyHeld held = {0}; sky_next_parameter(execution->program, &held) && held.stage < stage;)
        if (held.parameter->global_index == parameter->global_index) return true;
    return false;
}

/* The names of a parameter, one per line, and in the same lines of `checks` what its value was, if that is known. */
static void note_frozen(Buffer *frozen, Buffer *checks, const SkyParameter *parameter)
{
    const char *separator = frozen->size ? "\n" : "";
    buffer_print(frozen, "%s%s", separator, parameter->value.name);
    buffer_print(checks, "%s%016llx", separator, (unsigned long long)parameter->initial_check);
    for (uint32_t i = 0; i < parameter->tied_name_count; i++) {
        buffer_print(frozen, "\n%s", parameter->tied_names[i].name);
        buffer_print(checks, "\n");
    }
}

/* A parameter of which this rank's file has the value and the states. */
static bool is_written(const Execution *execution, uint32_t stage, const SkyParameter *parameter)
{
    return checkpoint_writes(execution->program) && !held_by_earlier(execution, stage, parameter) &&
           !is_kept_elsewhere(parameter);
}

size_t checkpoint_copy_bytes(const Execution *execution)
{
    size_t bytes = 0;
    for (SkyHeld held = {0}; sky_next_parameter(execution->program, &held);)
        if (is_written(execution, held.stage, held.parameter))
            bytes += held.parameter->value.bytes * (1 + held.parameter->state_count);
    return bytes;
}

void checkpoint_copy(const Execution *execution, unsigned char *copy)
{
    for (SkyHeld held = {0}; sky_next_parameter(execution->program, &held);) {
        size_t bytes = held.parameter->value.bytes;
        if (!is_written(execution, held.stage, held.parameter)) continue;
        for (int i = -1; i < (int)held.parameter->state_count; i++, copy += bytes)
            parallel_copy(execution->threads, copy, fetch_tensor(execution, held.stage, held.parameter, i), bytes);
    }
}

bool checkpoint_write_file(const Execution *execution, const unsigned char *copy, const char *directory, int64_t step,
                           int rank, CheckpointFile *file, Diagnostics *diagnostics)
{
    *file = (CheckpointFile){0};
    if (!checkpoint_writes(execution->program)) return true;
    SafeTensorsWriter *writer = safetensors_writer();
    FREED_WITH(arena_free) Arena names = {0}; /* and transposed copies */
    FREED_WITH(buffer_free) Buffer frozen = {0}, checks = {0};
    for (SkyHeld held = {0}; sky_next_parameter(execution->program, &held);) {
        const SkyParameter *parameter = held.parameter;
        if (held_by_earlier(execution, held.stage, parameter)) continue;
        if (is_kept_elsewhere(parameter)) {
            note_frozen(&frozen, &checks, parameter);
            continue;
        }
        Shape shape = tensor_shape(&parameter->value);
        const void *value = NULL;
        for (int i = -1; i < (int)parameter->state_count; i++) {
            const void *data = copy ? copy : fetch_tensor(execution, held.stage, parameter, i);
            if (copy) copy += parameter->value.bytes;
            if (i < 0) value = data;
            safetensors_writer_add(writer, tensor_name(&names, parameter, i), DTYPE_F32, &shape, data);
        }
        write_tied(parameter, value, writer, &names);
    }
    if (frozen.size) safetensors_writer_metadata(writer, "frozen", buffer_text(&frozen));
    if (frozen.size) safetensors_writer_metadata(writer, "frozen_checks", buffer_text(&checks));
    if (*execution->program->low_rank) safetensors_writer_metadata(writer, "lora", execution->program->low_rank);
    FREED char *in = checkpoint_path(directory, step);
    snprintf(file->name, sizeof file->name, "rank-%02d.safetensors", rank);
    FREED char *path = directory_join(in, file->name);
    input_files_release_path(path); /* a step may be saved again after its checkpoint was read */
    FileContent content = {0};
    safetensors_writer_again(writer);
    safetensors_writer_note(writer, &content);
    bool ok = checkpoint_make_step(directory, step, diagnostics) && checkpoint_bring_retired(directory, path) &&
              safetensors_write(writer, path, diagnostics);
    file->bytes = (int64_t)content.bytes;
    file->hash = content.hash;
    return ok;
}

/* ---- Reading ---- */

/* Parameters of this rank that the model's files hold, by name. */
typedef struct Kept {
    const SkyParameter **items;
    size_t count;
} Kept;

static void kept_free(Kept *kept) { free(kept->items); }

static int by_name(const void *a, const void *b)
{
    const SkyParameter *const *one = a, *const *other = b;
    return strcmp((*one)->value.name, (*other)->value.name);
}

static Kept list_kept(const Execution *execution, size_t parameters)
{
    Kept kept = {.items = memory_allocate((parameters + 1) * sizeof *kept.items)};
    for (SkyHeld held = {0}; sky_next_parameter(execution->program, &held);)
        if (is_kept_elsewhere(held.parameter)) kept.items[kept.count++] = held.parameter;
    qsort(kept.items, kept.count, sizeof *kept.items, by_name);
    return kept;
}

/* The checkpoint's other parameters were trained next to frozen ones: these must have the values that they had. */
static bool check_kept(const Kept *kept, const SafeTensors *file, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const char *frozen = safetensors_metadata(file, "frozen"), *checks = safetensors_metadata(file, "frozen_checks");
    bool ok = true;
    while (frozen && checks && *frozen && *checks && ok) {
        size_t length = strcspn(frozen, "\n"), digits = strcspn(checks, "\n");
        SkyParameter wanted = {.value.name = arena_string_n(&arena, frozen, length)};
        const SkyParameter *key = &wanted;
        const SkyParameter **found = bsearch(&key, kept->items, kept->count, sizeof key, by_name);
        if (found && digits && strtoull(checks, NULL, 16) != (*found)->initial_check)
            ok = diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = path, .object = wanted.value.name},
                                   "compile the model with the weights that it had; files next to the ONNX file hold "
                                   "them, too",
                                   "is frozen, and had another value when the checkpoint was made");
        frozen += length + (frozen[length] == '\n');
        checks += digits + (checks[digits] == '\n');
    }
    return ok;
}

/* Whether the file has a parameter of this rank; most files of other ranks need not be read. */
static bool holds_wanted(const Execution *execution, const SafeTensors *file)
{
    for (SkyHeld held = {0}; sky_next_parameter(execution->program, &held);)
        if (safetensors_find(file, held.parameter->value.name)) return true;
    return false;
}

static bool load_tensor(Execution *execution, uint32_t stage, const SkyParameter *parameter, int index,
                        const SafeTensors *file, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena names = {0};
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
    if (ok) {
        SkyLocation location = tensor_location(parameter, index);
        memcpy(execution_address(execution, stage, 0, location), tensor->data, tensor->bytes);
        execution_hand(execution, stage, 0, location, tensor->bytes);
    }
    return ok;
}

/* A program that does not train a parameter cannot resume one that did: its checkpoints would lack the parameter. */
static bool check_frozen(const Execution *execution, uint32_t stage, const SkyParameter *parameter,
                         const SafeTensors *file, const char *path, Diagnostics *diagnostics)
{
    const SafeTensor *tensor = safetensors_find(file, parameter->value.name);
    const void *here = fetch_tensor(execution, stage, parameter, -1);
    return (tensor->bytes == parameter->value.bytes && memcmp(tensor->data, here, tensor->bytes) == 0) ||
           diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = path, .object = parameter->value.name},
                             "skycc export writes a model with the trained values: compile that",
                             "was trained, and is frozen in this program");
}

/* Loads this rank's parameters from the file. `loaded` marks them, one entry per parameter of each stage. */
static bool load_file(Execution *execution, const SafeTensors *file, const char *path, bool *loaded,
                      Diagnostics *diagnostics)
{
    for (SkyHeld held = {0}; sky_next_parameter(execution->program, &held); loaded++) {
        const SkyParameter *parameter = held.parameter;
        if (*loaded || !safetensors_find(file, parameter->value.name)) continue;
        *loaded = true;
        if (is_kept_elsewhere(parameter)) {
            if (!check_frozen(execution, held.stage, parameter, file, path, diagnostics)) return false;
            continue;
        }
        for (int i = -1; i < (int)parameter->state_count; i++)
            if (!load_tensor(execution, held.stage, parameter, i, file, path, diagnostics)) return false;
    }
    return true;
}

bool checkpoint_verify_file(const SafeTensors *file, const CheckpointFile *entry, const char *path,
                            Diagnostics *diagnostics)
{
    Hash hash = hash_bytes(file->file.bytes, file->file.size);
    if ((int64_t)file->file.size == entry->bytes && memcmp(&hash, &entry->hash, sizeof hash) == 0) return true;
    return input_error(diagnostics, path, NULL, "does not have the content that the checkpoint's manifest lists");
}

/* Whether the rank's replica gets the value from the first one, which wrote it. */
static bool is_sent(const SkyProgram *program, const SkyParameter *parameter)
{
    return !checkpoint_writes(program) && !parameter->frozen;
}

static bool report_missing(const Execution *execution, const bool *loaded, const char *path, Diagnostics *diagnostics)
{
    for (SkyHeld held = {0}; sky_next_parameter(execution->program, &held);)
        if (!*loaded++ && !is_kept_elsewhere(held.parameter) && !is_sent(execution->program, held.parameter))
            return input_error(diagnostics, path,
                               execution->program->site_count > 1
                                   ? "another plan? then copy the other sites' files of this step here, too"
                                   : "are the files of all ranks visible on this host?",
                               "no file of the checkpoint here has parameter '%s'", held.parameter->value.name);
    return true;
}

bool checkpoint_load(Execution *execution, const CheckpointManifest *manifest, const char *directory,
                     Diagnostics *diagnostics)
{
    size_t count = 0;
    for (uint32_t s = 0; s < execution->program->stage_count; s++) count += execution->stages[s].stage->parameter_count;
    FREED bool *loaded = memory_allocate(count * sizeof *loaded);
    FREED_WITH(kept_free) Kept kept = list_kept(execution, count);
    FREED char *in = checkpoint_path(directory, manifest->step);
    for (int f = 0; f < manifest->file_count; f++) {
        FREED char *path = directory_join(in, manifest->files[f].name);
        FREED_WITH(safetensors_close) SafeTensors file = {0};
        if (access(path, R_OK) != 0) continue; /* a file that is not needed here may be on another host */
        if (!safetensors_open(&file, path, diagnostics) || !check_kept(&kept, &file, path, diagnostics)) return false;
        if (holds_wanted(execution, &file) && !(checkpoint_verify_file(&file, &manifest->files[f], path, diagnostics) &&
                                                load_file(execution, &file, path, loaded, diagnostics)))
            return false;
    }
    return report_missing(execution, loaded, in, diagnostics);
}

bool checkpoint_load_start(Execution *execution, const char *path, int64_t step, bool *found, Diagnostics *diagnostics)
{
    FREED_WITH(safetensors_close) SafeTensors file = {0};
    *found = false;
    if (!safetensors_open(&file, path, diagnostics)) return false;
    input_files_release_path(path); /* the member replaces it after every round */
    const char *of = safetensors_metadata(&file, "step"), *met = safetensors_metadata(&file, "met");
    bool ok = true;
    *found = (of ? strtoll(of, NULL, 10) : 0) == step;
    for (SkyHeld held = {0}; ok && *found && sky_next_parameter(execution->program, &held);)
        if (!held.parameter->frozen && (!met || text_has_line(met, held.parameter->value.name)))
            ok = load_tensor(execution, held.stage, held.parameter, -1, &file, path, diagnostics);
    return ok;
}
