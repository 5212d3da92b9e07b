#include "driver/export/merged_weights.h"

#include <stdlib.h>
#include <string.h>

#include "graph/analysis/parameter_values.h"

enum { ANY_DIMENSION = 8 }; /* irrelevant for weights */

/* The warnings were printed when the model was compiled. */
static bool import(MergedWeights *merged, const char *path, const LowRankSpec *spec, Diagnostics *diagnostics)
{
    const ImportOptions options = {.default_dimension = ANY_DIMENSION};
    FREED_WITH(diagnostics_free) Diagnostics found = {0};
    bool ok = import_onnx(&merged->graph, &merged->model, path, &options, &found) &&
              (!spec || low_rank_choose(&merged->low_rank, spec, 0, &merged->graph, &merged->model, &found));
    for (const Diagnostic *d = found.first; d; d = d->next)
        if (d->is_error) diagnostics_error(diagnostics, found.exit_code, d->place, d->hint, "%s", d->message);
    return ok;
}

static bool wrong_tensor(const MergedWeights *merged, const char *name, const char *problem, Diagnostics *diagnostics)
{
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = merged->graph.file, .object = name},
                             "give the model that the checkpoint was trained from", "%s", problem);
}

/* One factor of a branch; *values stays NULL where there is none. */
static bool find_factor(MergedWeights *merged, const char *module, const char *factor, int64_t rows, int64_t columns,
                        const float **values, Diagnostics *diagnostics)
{
    const char *name = arena_format(&merged->arena, "%s.%s.weight", module, factor);
    TrainedTensor tensor;
    if (!merged->find(merged->context, name, &tensor)) return true;
    if (tensor.dtype != DTYPE_F32 || !tensor.data || !shape_equal(&tensor.shape, &(Shape){2, {rows, columns}}))
        return wrong_tensor(merged, name, "has a different shape in the checkpoint", diagnostics);
    *values = tensor.data;
    return true;
}

static bool find_branch(MergedWeights *merged, const LowRankBranch *branch, Diagnostics *diagnostics)
{
    MergedBranch found = {.branch = *branch, .weight = merged->weights[branch->weight]};
    int rank = merged->low_rank.rank;
    if (!find_factor(merged, branch->module, "lora_A", rank, found.weight.in, &found.a, diagnostics) ||
        !find_factor(merged, branch->module, "lora_B", found.weight.out, rank, &found.b, diagnostics))
        return false;
    if (!found.a != !found.b)
        return wrong_tensor(merged, branch->module, "has only one of lora_A and lora_B in the checkpoint", diagnostics);
    if (found.a) merged->branches[merged->count++] = found;
    const Value *value = graph_value(&merged->graph, branch->weight);
    TrainedTensor base;
    bool known = merged->find(merged->context, value->name, &base) && !base.data && base.check && value->data &&
                 value->dtype == DTYPE_F32;
    return !known || parameter_form(value, base.check, NULL) ||
           wrong_tensor(merged, value->name, "was frozen, and had another value when the checkpoint was made",
                        diagnostics);
}

/* Which branch belongs to the parameter of a name. */
static void index_names(MergedWeights *merged)
{
    size_t *branch_of = arena_new_array(&merged->arena, size_t, merged->graph.value_count); /* plus 1; 0: none */
    merged->places = arena_new_array(&merged->arena, size_t, merged->model.parameter_count + 1);
    for (size_t i = merged->count; i-- > 0;) branch_of[merged->branches[i].branch.weight] = i + 1;
    for (size_t p = 0; p < merged->model.parameter_count; p++) {
        const ImportedParameter *parameter = &merged->model.parameters[p];
        if (parameter->value < merged->graph.value_count &&
            string_map_add(&merged->names, parameter->name, (uint32_t)p))
            merged->places[p] = branch_of[parameter->value];
    }
}

bool merged_weights_open(MergedWeights *merged, const char *path, const LowRankSpec *spec, FindTrained *find,
                         void *context, Diagnostics *diagnostics)
{
    *merged = (MergedWeights){.find = find, .context = context};
    graph_init(&merged->graph, path);
    if (!import(merged, path, spec, diagnostics)) return false;
    merged->weights = product_weights(&merged->graph);
    merged->branches = arena_new_array(&merged->arena, MergedBranch, merged->low_rank.count);
    for (size_t i = 0; i < merged->low_rank.count; i++)
        if (!find_branch(merged, &merged->low_rank.branches[i], diagnostics)) return false;
    index_names(merged);
    return true;
}

void merged_weights_free(MergedWeights *merged)
{
    for (size_t i = 0; i < merged->count; i++) free(merged->branches[i].merged);
    string_map_free(&merged->names);
    free(merged->weights);
    graph_free(&merged->graph);
    imported_model_free(&merged->model);
    arena_free(&merged->arena);
}

/* A frozen weight as training stored it; NULL: as the model has it, or that is not known. */
static const float *stored_value(MergedWeights *merged, const Value *value)
{
    TrainedTensor tensor;
    Value stored;
    if (!merged->as_trained || !value->data || !merged->find(merged->context, value->name, &tensor) || tensor.data ||
        !tensor.check || !parameter_form(value, tensor.check, &stored) || stored.dtype == value->dtype)
        return NULL;
    FREED float *values = parameter_as_stored(value, &stored);
    return arena_copy(&merged->arena, values, (size_t)shape_elements(&value->shape) * sizeof *values);
}

/* The trained value, or where the weight is frozen, its own. */
static const void *base_value(MergedWeights *merged, const Value *value, DType *dtype)
{
    TrainedTensor tensor;
    const float *stored = stored_value(merged, value);
    *dtype = DTYPE_F32;
    if (stored) return stored;
    bool found = merged->find(merged->context, value->name, &tensor) && tensor.data;
    *dtype = found ? tensor.dtype : value->dtype;
    return found ? tensor.data : value->data;
}

/* False if neither checkpoint nor model has the weight's value. */
static bool merge(MergedWeights *merged, MergedBranch *branch)
{
    const Value *value = graph_value(&merged->graph, branch->branch.weight);
    int64_t in = branch->weight.in, out = branch->weight.out, rank = merged->low_rank.rank;
    double scale = merged->low_rank.alpha / (double)rank;
    DType dtype;
    const void *base = base_value(merged, value, &dtype);
    if (!base) return false;
    branch->merged = memory_allocate((size_t)(in * out) * sizeof(float));
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            int64_t at = branch->weight.transposed ? o * in + i : i * out + o;
            double sum = 0;
            for (int64_t r = 0; r < rank; r++) sum += (double)branch->b[o * rank + r] * (double)branch->a[r * in + i];
            branch->merged[at] = (float)(element_as_double(dtype, base, at) + scale * sum);
        }
    return true;
}

static const float *transposed(MergedWeights *merged, const float *values, Shape *shape)
{
    int64_t rows = shape->dim[0], columns = shape->dim[1];
    float *copy = arena_new_array(&merged->arena, float, (size_t)(rows * columns));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) copy[c * rows + r] = values[r * columns + c];
    *shape = (Shape){2, {columns, rows}};
    return copy;
}

bool merged_weights_find(void *context, const char *name, TrainedTensor *tensor)
{
    MergedWeights *merged = context;
    const uint32_t *number = string_map_find(&merged->names, name);
    if (!number) return merged->find(merged->context, name, tensor);
    const ImportedParameter *parameter = &merged->model.parameters[*number];
    const Value *value = graph_value(&merged->graph, parameter->value);
    size_t place = merged->places[*number];
    MergedBranch *branch = place ? &merged->branches[place - 1] : NULL;
    if (branch && !branch->merged && !merge(merged, branch)) return false;
    const float *values = branch ? branch->merged : stored_value(merged, value);
    if (!values) return merged->find(merged->context, name, tensor);
    *tensor = (TrainedTensor){DTYPE_F32, value->shape, values, 0};
    if (parameter->transposed) tensor->data = transposed(merged, values, &tensor->shape);
    return true;
}
