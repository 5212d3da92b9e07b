#include "driver/compile/weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/order.h"
#include "base/safetensors.h"
#include "graph/ops/operator.h"
#include "graph/analysis/parameter_values.h"

/* The names of a model's parameters, those of one value together. */
typedef struct Names {
    const ImportedParameter **sorted;
    size_t count;
} Names;

/* A value's own name first, then those that are tied to it, as they are listed. */
static int by_value(const void *a, const void *b)
{
    const ImportedParameter *x = *(const ImportedParameter *const *)a, *y = *(const ImportedParameter *const *)b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    if (x->tied != y->tied) return x->tied ? 1 : -1;
    return x < y ? -1 : x > y;
}

/* To be freed. */
static Names names_sort(const ImportedModel *imported)
{
    Names names = {memory_allocate((imported->parameter_count + 1) * sizeof *names.sorted), imported->parameter_count};
    for (size_t i = 0; i < names.count; i++) names.sorted[i] = &imported->parameters[i];
    qsort(names.sorted, names.count, sizeof *names.sorted, by_value);
    return names;
}

/* Where the value's names begin, or would. */
static size_t find_names(const Names *names, ValueId value)
{
    size_t first = 0;
    for (size_t end = names->count; first < end;) {
        size_t middle = first + (end - first) / 2;
        if (names->sorted[middle]->value < value)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

static const ImportedParameter *own_name(const Names *names, ValueId value)
{
    size_t i = find_names(names, value);
    return i < names->count && names->sorted[i]->value == value && !names->sorted[i]->tied ? names->sorted[i] : NULL;
}

/* `path` relative to the directory `from`; both absolute, without links. A file in the directory becomes "./NAME",
 * because a name without a slash is a file that was written with the directory. */
static const char *relative_path(Arena *arena, const char *from, const char *path)
{
    size_t common = 0;
    for (size_t i = 0; from[i] && from[i] == path[i]; i++)
        if (path[i + 1] == '/' && (from[i + 1] == '/' || !from[i + 1])) common = i + 1;
    const char *rest = from + common, *below = path + common + (path[common] == '/');
    if (!*rest) return arena_format(arena, "./%s", below);
    const char *result = arena_string(arena, below);
    for (; (rest = strchr(rest, '/')) && rest[1]; rest++) result = arena_format(arena, "../%s", result);
    return result;
}

/* The absolute path that the output directory will have after its commit. */
static const char *final_name(Arena *arena, const char *directory)
{
    size_t length = strlen(directory);
    while (length > 1 && directory[length - 1] == '/') length--;
    char *name = arena_string_n(arena, directory, length), *slash = strrchr(name, '/');
    const char *parent = slash == name ? "/" : slash ? name : ".", *last = slash ? slash + 1 : name;
    if (slash && slash != name) *slash = '\0';
    FREED char *real = realpath(parent, NULL);
    if (!real) return NULL;
    return arena_format(arena, "%s/%s", strcmp(real, "/") == 0 ? "" : real, last);
}

static const char *reference_to(Arena *arena, const WeightOptions *options, const char *file)
{
    const char *directory = final_name(arena, options->final_directory);
    FREED char *real = realpath(file, NULL);
    const char *result = NULL;
    if (real && directory) result = relative_path(arena, directory, real);
    return result;
}

static bool missing(const TrainingModel *model, const Value *value, Diagnostics *diagnostics)
{
    char object[512];
    snprintf(object, sizeof object, "parameter '%.400s'", value->name);
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = model->graph.file, .object = object},
                             "draw initial weights with --init normal:0.02", "the model has no weights for it");
}

/* Refuses values that no training could start from: exponents of all ones are infinite, or no numbers. */
static bool check_finite(const TrainingModel *model, const Value *value, const void *data, DType dtype,
                         Diagnostics *diagnostics)
{
    int64_t count = shape_elements(&value->shape), bad = 0;
    if (dtype == DTYPE_F32)
        for (int64_t i = 0; i < count; i++) bad += (((const uint32_t *)data)[i] & 0x7f800000) == 0x7f800000;
    uint16_t mask = dtype == DTYPE_BF16 ? 0x7f80 : 0x7c00;
    if (dtype == DTYPE_BF16 || dtype == DTYPE_F16)
        for (int64_t i = 0; i < count; i++) bad += (((const uint16_t *)data)[i] & mask) == mask;
    if (!bad) return true;
    char object[512];
    snprintf(object, sizeof object, "parameter '%.400s'", value->name);
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = model->graph.file, .object = object},
                             "take weights of a run that did not diverge, or download the file again",
                             "holds %lld of %lld values that are infinite or no numbers (NaN)", (long long)bad,
                             (long long)count);
}

/* A parameter's values in the form in which programs have them, and their check. */
static const void *values_in_form(Arena *arena, const Value *value, SkyParameter *parameter)
{
    void *bytes = arena_allocate(arena, parameter->value.bytes);
    parameter_copy_values(value, bytes);
    parameter->initial_check = hash_bytes(bytes, parameter->value.bytes).low;
    return bytes;
}

/* Writes the `needed` parameters to the stage's own file and points to them. */
static bool write_own_file(StageCode *code, const TrainingModel *model, const bool *needed,
                           const WeightOptions *options, Diagnostics *diagnostics)
{
    SkyParameter *parameters = (SkyParameter *)code->stage.parameters;
    const char *name = arena_format(&code->arena, "stage-%02u.safetensors", code->stage.index);
    const char *path = arena_format(&code->arena, "%s/%s", options->directory, name);
    SafeTensorsWriter *writer = safetensors_writer();
    Arena copies = {0};
    for (uint32_t i = 0; i < code->stage.parameter_count; i++) {
        const Value *value = graph_value(&model->graph, code->parameter_values[i]);
        if (!needed[i]) continue;
        const Shape bytes = {1, {(int64_t)parameters[i].value.bytes}};
        bool blocks = dtype_in_blocks(value->dtype); /* of which safetensors have no type */
        const void *data = value->data ? value->data : values_in_form(&copies, value, &parameters[i]);
        safetensors_writer_add(writer, value->name, blocks ? DTYPE_U8 : value->dtype, blocks ? &bytes : &value->shape,
                               data);
    }
    bool written = safetensors_write(writer, path, diagnostics);
    arena_free(&copies);
    if (!written) return false;
    FREED_WITH(safetensors_close) SafeTensors file = {0};
    if (!safetensors_open(&file, path, diagnostics)) return false;
    for (uint32_t i = 0; i < code->stage.parameter_count; i++) {
        if (!needed[i]) continue;
        const SafeTensor *tensor = safetensors_find(&file, parameters[i].value.name);
        parameters[i].initial_file = name;
        parameters[i].initial_offset = (uint64_t)((const unsigned char *)tensor->data - file.file.bytes);
    }
    return true;
}

/* Per value: whether it scales what it is applied to, so that a vector must not start as 0. To be freed. */
static bool *find_scales(const Graph *graph)
{
    bool *scales = memory_allocate(graph->value_count);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->phase != PHASE_FORWARD) continue;
        if (node->op == OP_LayerNormalization || node->op == OP_Mul) scales[node->inputs[1]] = true;
        if (node->op == OP_Mul) scales[node->inputs[0]] = true;
    }
    return scales;
}

void weights_draw(StageCode *code, const Graph *graph, float deviation)
{
    SkyParameter *parameters = (SkyParameter *)code->stage.parameters;
    FREED bool *scales = find_scales(graph);
    for (uint32_t i = 0; i < code->stage.parameter_count; i++) {
        bool is_matrix = parameters[i].value.rank > 1;
        parameters[i].initial_deviation = is_matrix ? deviation : 0;
        parameters[i].initial_mean = !is_matrix && scales[code->parameter_values[i]];
    }
}

bool is_low_rank(const TrainingModel *model, ValueId value)
{
    for (size_t i = 0; i < model->low_rank.count; i++)
        if (model->low_rank.branches[i].a == value || model->low_rank.branches[i].b == value) return true;
    return false;
}

/* Checkpoints also store initializers that are tied to a parameter. */
static void name_ties(StageCode *code, const Names *names)
{
    SkyParameter *parameters = (SkyParameter *)code->stage.parameters;
    for (uint32_t i = 0; i < code->stage.parameter_count; i++) {
        FREED SkyTiedName *tied = NULL;
        size_t count = 0, capacity = 0;
        for (size_t k = find_names(names, code->parameter_values[i]);
             k < names->count && names->sorted[k]->value == code->parameter_values[i]; k++) {
            const ImportedParameter *name = names->sorted[k];
            if (!name->tied) continue;
            SkyTiedName other = {.name = arena_string(&code->arena, name->name), .transposed = name->transposed};
            array_push(tied, count, capacity, other);
        }
        if (!count) continue;
        parameters[i].tied_names = arena_copy(&code->arena, tied, count * sizeof *tied);
        parameters[i].tied_name_count = (uint32_t)count;
    }
}

bool weights_reference(StageCode *code, const TrainingModel *model, const WeightOptions *options,
                       Diagnostics *diagnostics)
{
    Names names = names_sort(&model->imported);
    name_ties(code, &names);
    if (options->init.drawn) weights_draw(code, &model->graph, options->init.deviation);
    SkyParameter *parameters = (SkyParameter *)code->stage.parameters;
    bool *needed = memory_allocate(code->stage.parameter_count), any = false, ok = true;
    for (uint32_t i = 0; i < code->stage.parameter_count; i++) {
        const Value *value = graph_value(&model->graph, code->parameter_values[i]);
        if (options->init.drawn && !is_low_rank(model, code->parameter_values[i])) continue;
        const ImportedParameter *source = own_name(&names, code->parameter_values[i]);
        const char *file = source && source->file && !options->alone && strcmp(source->file, "-") != 0
                               ? reference_to(&code->arena, options, source->file)
                               : NULL;
        const void *given = value->data ? value->data : value->stored_from;
        ok &= !given || check_finite(model, value, given, value->data ? value->dtype : value->stored_type, diagnostics);
        if (value->data) parameters[i].initial_check = hash_bytes(value->data, parameters[i].value.bytes).low;
        if (file && value->data && source->bytes == parameters[i].value.bytes) {
            parameters[i].initial_file = file;
            parameters[i].initial_offset = source->offset;
        } else if (parameter_has_values(value)) {
            needed[i] = any = true;
        } else {
            ok = missing(model, value, diagnostics);
        }
    }
    if (ok && any) ok = write_own_file(code, model, needed, options, diagnostics);
    free(needed);
    free(names.sorted);
    return ok;
}

bool weights_check_names(const TrainingModel *model, Diagnostics *diagnostics)
{
    const ImportedModel *imported = &model->imported;
    FREED const char **names = memory_allocate((imported->parameter_count + 1) * sizeof *names);
    size_t count = 0;
    bool ok = true;
    for (size_t i = 0; i < imported->parameter_count; i++)
        if (!imported->parameters[i].frozen) names[count++] = imported->parameters[i].name;
    qsort(names, count, sizeof *names, order_texts);
    for (ValueId v = 1; v < model->graph.value_count; v++) {
        const Value *state = graph_value(&model->graph, v);
        if (state->role != ROLE_STATE || !bsearch(&state->name, names, count, sizeof *names, order_texts)) continue;
        FREED_WITH(arena_free) Arena arena = {0};
        Place place = {.file = model->graph.file, .object = arena_format(&arena, "initializer '%s'", state->name)};
        ok = diagnostics_error(diagnostics, EXIT_BAD_INPUT, place,
                               "rename the initializer, or compile with --optimizer sgd, which has no state",
                               "checkpoints use this name for the optimiser's state of '%s'",
                               graph_value(&model->graph, state->parameter)->name);
    }
    return ok;
}
