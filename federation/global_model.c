#include "federation/global_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/input_files.h"
#include "base/safetensors.h"
#include "base/text.h"

/* What is kept of every parameter, before the names of its tensors: the outer optimiser's moments, control variates,
 * what a codec left out. */
enum { CONTROL = 2, REMAINDER, KEPT };
static const char *const kept_prefixes[KEPT] = {"momentum/", "variance/", "control/", "remainder/"};

static float *kept_of(const GlobalModel *model, int kept)
{
    float *const all[KEPT] = {model->momentum, model->variance, model->control, model->remainder};
    return all[kept];
}

/* -1: the name is of a parameter. */
static int kept_named(const char *name)
{
    for (int k = 0; k < KEPT; k++)
        if (strncmp(name, kept_prefixes[k], strlen(kept_prefixes[k])) == 0) return k;
    return -1;
}

static void add_moments(GlobalModel *model, int moments)
{
    if (moments > 0) model->momentum = memory_allocate(model->elements * sizeof *model->momentum);
    if (moments > 1) model->variance = memory_allocate(model->elements * sizeof *model->variance);
}

void global_model_open(GlobalModel *model, Hash identity, const char *const *names, const Shape *shapes, size_t count,
                       int moments)
{
    *model = (GlobalModel){.identity = identity, .tensor_count = count};
    model->tensors = arena_new_array(&model->arena, GlobalTensor, count);
    model->tensor_elements = arena_new_array(&model->arena, size_t, count);
    for (size_t i = 0; i < count; i++) {
        size_t elements = (size_t)shape_elements(&shapes[i]);
        model->tensors[i] = (GlobalTensor){arena_string(&model->arena, names[i]), shapes[i], model->elements, elements};
        model->tensor_elements[i] = elements;
        model->elements += elements;
    }
    model->values = memory_allocate(model->elements * sizeof *model->values);
    add_moments(model, moments);
}

void global_model_keep_control(GlobalModel *model, bool keep)
{
    if (keep == (model->control != NULL)) return;
    float *values = memory_allocate((keep ? 2 : 1) * model->elements * sizeof *values);
    memcpy(values, model->values, model->elements * sizeof *values);
    free(model->values);
    model->values = values;
    model->control = keep ? values + model->elements : NULL;
}

void global_model_keep_remainder(GlobalModel *model)
{
    if (!model->remainder) model->remainder = memory_allocate(model->elements * sizeof *model->remainder);
}

Hash global_model_hash(const GlobalModel *model, Hash hash)
{
    for (size_t i = 0; i < model->tensor_count; i++) {
        const GlobalTensor *tensor = &model->tensors[i];
        hash = hash_extend(hash, tensor->name, strlen(tensor->name) + 1);
        hash = hash_extend(hash, tensor->shape.dim, (size_t)tensor->shape.rank * sizeof *tensor->shape.dim);
    }
    return hash_extend(hash, model->values, model->elements * sizeof *model->values);
}

bool global_model_name_is_reserved(const char *name) { return kept_named(name) >= 0; }

const GlobalTensor *global_model_find(const GlobalModel *model, const char *name)
{
    for (size_t i = 0; i < model->tensor_count; i++)
        if (strcmp(model->tensors[i].name, name) == 0) return &model->tensors[i];
    return NULL;
}

size_t global_model_taken(const GlobalModel *model) { return (model->control ? 2 : 1) * model->elements; }

void global_model_free(GlobalModel *model)
{
    free(model->values);
    free(model->momentum);
    free(model->variance);
    free(model->remainder);
    free(model->counted);
    free(model->met);
    arena_free(&model->arena);
    *model = (GlobalModel){0};
}

/* ---- On disk ---- */

static void write_note(SafeTensorsWriter *writer, const char *key, const char *text)
{
    if (text) safetensors_writer_metadata(writer, key, text);
}

static const char *read_note(GlobalModel *model, const SafeTensors *file, const char *key)
{
    const char *text = safetensors_metadata(file, key);
    return text ? arena_string(&model->arena, text) : NULL;
}

static void write_counted(SafeTensorsWriter *writer, Arena *arena, const GlobalModel *model)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    for (size_t s = 0; s < model->counted_count; s++)
        buffer_print(&text, "%s%" PRId64, s ? " " : "", model->counted[s]);
    if (model->counted) safetensors_writer_metadata(writer, "counted", arena_string(arena, buffer_text(&text)));
}

static void write_met(SafeTensorsWriter *writer, const GlobalModel *model)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    for (size_t i = 0; i < model->tensor_count && model->met; i++)
        if (model->met[i]) buffer_print(&text, "%s%s", text.size ? "\n" : "", model->tensors[i].name);
    if (model->met) safetensors_writer_metadata(writer, "met", buffer_text(&text));
}

static void read_met(GlobalModel *model, const char *text)
{
    if (!text) return;
    model->met = memory_allocate(model->tensor_count * sizeof *model->met);
    for (size_t i = 0; i < model->tensor_count; i++) model->met[i] = text_has_line(text, model->tensors[i].name);
}

/* False: the file has no valid list of sites. */
static bool read_counted(GlobalModel *model, const char *text)
{
    size_t capacity = 0;
    while (text && *text) {
        char *end;
        long long rounds = strtoll(text, &end, 10);
        if (end == text || rounds < 0 || rounds > model->round) return false;
        array_push(model->counted, model->counted_count, capacity, rounds);
        text = end;
    }
    return true;
}

bool global_model_write(const GlobalModel *model, const char *path, Diagnostics *diagnostics)
{
    SafeTensorsWriter *writer = safetensors_writer();
    FREED_WITH(arena_free) Arena names = {0};
    char hash[33];
    safetensors_writer_metadata(writer, "format", "skycc.global/1");
    safetensors_writer_metadata(writer, "federation", hash_format(model->identity, hash));
    safetensors_writer_metadata(writer, "check", hash_format(global_model_hash(model, (Hash){0}), hash));
    safetensors_writer_metadata(writer, "round", arena_format(&names, "%" PRId64, model->round));
    if (model->branch) safetensors_writer_metadata(writer, "branch", arena_format(&names, "%" PRId64, model->branch));
    if (model->spent > model->round)
        safetensors_writer_metadata(writer, "spent", arena_format(&names, "%" PRId64, model->spent));
    if (model->averaged)
        safetensors_writer_metadata(writer, "averaged", arena_format(&names, "%" PRId64, model->averaged));
    if (model->step) safetensors_writer_metadata(writer, "step", arena_format(&names, "%" PRId64, model->step));
    write_counted(writer, &names, model);
    write_met(writer, model);
    write_note(writer, "frozen", model->frozen);
    write_note(writer, "frozen_checks", model->frozen_checks);
    write_note(writer, "lora", model->lora);
    write_note(writer, "tied", model->tied);
    for (size_t i = 0; i < model->tensor_count; i++) {
        const GlobalTensor *tensor = &model->tensors[i];
        safetensors_writer_add(writer, tensor->name, DTYPE_F32, &tensor->shape, model->values + tensor->first);
        for (int k = 0; k < KEPT; k++)
            if (kept_of(model, k))
                safetensors_writer_add(writer, arena_format(&names, "%s%s", kept_prefixes[k], tensor->name), DTYPE_F32,
                                       &tensor->shape, kept_of(model, k) + tensor->first);
    }
    safetensors_writer_again(writer);
    input_files_release_path(path); /* a resumed coordinator replaces the file that it read */
    return safetensors_write(writer, path, diagnostics);
}

static bool read_tensor(const SafeTensors *file, const char *path, const char *name, const GlobalTensor *tensor,
                        float *values, Diagnostics *diagnostics)
{
    const SafeTensor *found = safetensors_find(file, name);
    Place place = {.file = path, .object = name};
    if (!found) return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL, "the tensor is missing");
    if (found->dtype != DTYPE_F32 || !shape_equal(&found->shape, &tensor->shape))
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL,
                                 "the tensor has another type or shape than the federation's model");
    memcpy(values, found->data, found->bytes);
    for (size_t i = 0; i < tensor->elements; i++)
        if (!isfinite(values[i]))
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL, "element %zu is not finite", i);
    return true;
}

/* A count in the file's metadata; -1: not a count. */
static int64_t read_count(const SafeTensors *file, const char *key)
{
    const char *text = safetensors_metadata(file, key);
    char *end = NULL;
    int64_t count = text ? strtoll(text, &end, 10) : 0;
    return text && (end == text || *end || count < 0 || count >= (int64_t)1 << 53) ? -1 : count;
}

bool global_model_file_says(const char *path, const char *key, int64_t count)
{
    FREED_WITH(diagnostics_free) Diagnostics unsaid = {0};
    FREED_WITH(safetensors_close) SafeTensors file = {0};
    bool ok = access(path, F_OK) == 0 && safetensors_open(&file, path, &unsaid);
    input_files_release_path(path);
    return ok && safetensors_metadata(&file, key) && read_count(&file, key) == count;
}

static bool read_head(GlobalModel *model, const SafeTensors *file, const char *path, Diagnostics *diagnostics)
{
    char hash[33];
    const char *identity = safetensors_metadata(file, "federation");
    if (!identity || strcmp(identity, hash_format(model->identity, hash)) != 0)
        return input_error(diagnostics, path, "was skycc federate run again since?", "is not of this federation");
    model->round = read_count(file, "round");
    model->step = read_count(file, "step");
    model->branch = read_count(file, "branch");
    model->spent = read_count(file, "spent");
    if (model->spent >= 0 && model->spent < model->round) model->spent = model->round;
    if (safetensors_metadata(file, "round") && model->round >= 0 && model->step >= 0 && model->branch >= 0 &&
        model->spent >= 0)
        return true;
    return input_error(diagnostics, path, NULL, "does not say which round is next");
}

/* Sites and coordinator say by position what they mean: the tensors' order is part of it. Files of an earlier skycc do
 * not have the hash. */
static bool check_values(const GlobalModel *model, const SafeTensors *file, const char *path, Diagnostics *diagnostics)
{
    char hash[33];
    const char *check = safetensors_metadata(file, "check");
    return !check || strcmp(check, hash_format(global_model_hash(model, (Hash){0}), hash)) == 0 ||
           input_error(diagnostics, path, "bring back the file that skycc wrote; another program cannot save it again",
                       "has other values than skycc wrote, or the same in another order");
}

bool global_model_read(GlobalModel *model, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(safetensors_close) SafeTensors file = {0};
    FREED_WITH(arena_free) Arena names = {0};
    if (!safetensors_open(&file, path, diagnostics)) return false;
    bool ok = read_head(model, &file, path, diagnostics);
    for (size_t i = 0; i < model->tensor_count && ok; i++) {
        const GlobalTensor *tensor = &model->tensors[i];
        ok = read_tensor(&file, path, tensor->name, tensor, model->values + tensor->first, diagnostics);
        for (int k = 0; k < KEPT && ok; k++)
            if (kept_of(model, k))
                ok = read_tensor(&file, path, arena_format(&names, "%s%s", kept_prefixes[k], tensor->name), tensor,
                                 kept_of(model, k) + tensor->first, diagnostics);
    }
    ok = ok && check_values(model, &file, path, diagnostics);
    return ok;
}

bool global_model_open_file(GlobalModel *model, Hash identity, const char *path, int moments, Diagnostics *diagnostics)
{
    SafeTensors file;
    FREED_WITH(arena_free) Arena arena = {0};
    *model = (GlobalModel){0};
    if (!safetensors_open(&file, path, diagnostics)) return false;
    const char **names = arena_new_array(&arena, const char *, file.count);
    Shape *shapes = arena_new_array(&arena, Shape, file.count);
    size_t count = 0;
    int found = 0;
    bool has_control = false, has_remainder = false;
    for (size_t i = 0; i < file.count; i++) {
        int kept = kept_named(file.tensors[i].name);
        has_control |= kept == CONTROL;
        has_remainder |= kept == REMAINDER;
        if (kept < CONTROL && kept >= found) found = kept + 1;
        if (kept >= 0) continue;
        names[count] = arena_string(&arena, file.tensors[i].name);
        shapes[count++] = file.tensors[i].shape;
    }
    global_model_open(model, identity, names, shapes, count, found < moments ? 0 : moments);
    global_model_keep_control(model, has_control);
    if (has_remainder) global_model_keep_remainder(model);
    model->frozen = read_note(model, &file, "frozen");
    model->frozen_checks = read_note(model, &file, "frozen_checks");
    model->lora = read_note(model, &file, "lora");
    model->tied = read_note(model, &file, "tied");
    read_met(model, safetensors_metadata(&file, "met"));
    const char *counted = safetensors_metadata(&file, "counted");
    if (counted) counted = arena_string(&arena, counted);
    safetensors_close(&file);
    if (!global_model_read(model, path, diagnostics)) return false;
    if (!read_counted(model, counted))
        return input_error(diagnostics, path, NULL, "has an invalid list of the rounds that sites were in");
    if (found >= moments) return true;
    if (model->round > 0)
        return input_error(diagnostics, path, NULL,
                           "is the model after round %" PRId64 ", without the outer optimiser's %s", model->round,
                           found ? "second moment" : "momentum");
    add_moments(model, moments);
    return true;
}

/* ---- Rounds ---- */

FragmentRange global_model_part(const GlobalModel *model, int64_t round, size_t fragments)
{
    if (model->control) return (FragmentRange){0, global_model_taken(model)};
    size_t count = fragments_most(model->tensor_count, fragments);
    FragmentRange tensors =
        fragment_range(model->tensor_elements, model->tensor_count, count, fragment_of_round(round, count));
    size_t end = tensors.end < model->tensor_count ? model->tensors[tensors.end].first : model->elements;
    return (FragmentRange){tensors.first < model->tensor_count ? model->tensors[tensors.first].first : end, end};
}

void global_model_note_met(GlobalModel *model, FragmentRange part, bool has_steps)
{
    bool all = part.first == 0 && part.end >= model->elements;
    if (!all && !model->met && !has_steps) return;
    if (!model->met && !all) model->met = memory_allocate(model->tensor_count * sizeof *model->met);
    for (size_t i = 0; i < model->tensor_count && !all; i++) {
        size_t first = model->tensors[i].first;
        model->met[i] = (model->met[i] && !has_steps) || (first >= part.first && first < part.end);
    }
    if (all) free(model->met);
    if (all) model->met = NULL;
}

bool global_model_move(GlobalModel *model, const OuterRule *rule, size_t first, const float *mean, size_t count,
                       double share)
{
    size_t parameters = first >= model->elements          ? 0
                        : model->elements - first < count ? model->elements - first
                                                          : count;
    bool finite = true;
    for (size_t i = parameters; i < count; i++) {
        model->values[first + i] += (float)(share * (double)mean[i]);
        finite &= isfinite(model->values[first + i]);
    }
    if (!parameters) return finite;
    return finite & outer_step(rule, model->values + first, model->momentum ? model->momentum + first : NULL,
                               model->variance ? model->variance + first : NULL, mean, parameters);
}
