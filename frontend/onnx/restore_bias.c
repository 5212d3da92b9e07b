#include <string.h>

#include "base/parts.h"
#include "base/string_map.h"
#include "frontend/onnx/importer.h"

enum { GEMM_INPUTS = 3 };

static bool transposes_weight(const Onnx__NodeProto *node)
{
    for (size_t i = 0; i < node->n_attribute; i++)
        if (node->attribute[i]->name && strcmp(node->attribute[i]->name, "transB") == 0)
            return node->attribute[i]->i != 0;
    return false;
}

static bool lost_bias(Arena *arena, const Onnx__NodeProto *node)
{
    if (!node->op_type || strcmp(node->op_type, "Gemm") != 0 || node->n_input != GEMM_INPUTS - 1) return false;
    const char *rule = node_metadata(arena, node, "pkg.onnxscript.rewriter.rule_name");
    return rule && strcmp(rule, "RemoveOptionalBiasFromGemm") == 0;
}

static Onnx__TensorProto *new_zeros(Arena *arena, const Onnx__TensorProto *weight, int64_t size, const char *name)
{
    Onnx__TensorProto *tensor = arena_new(arena, Onnx__TensorProto);
    onnx__tensor_proto__init(tensor);
    size_t bytes = (size_t)size * dtype_size(onnx_dtype(weight->data_type));
    tensor->name = arena_string(arena, name);
    tensor->has_data_type = true;
    tensor->data_type = weight->data_type;
    tensor->n_dims = 1;
    tensor->dims = arena_copy(arena, &size, sizeof size);
    tensor->has_raw_data = true;
    tensor->raw_data = (ProtobufCBinaryData){bytes, arena_allocate(arena, bytes)};
    return tensor;
}

static void add_input(OnnxModel *model, Onnx__NodeProto *node, char *bias)
{
    char **inputs = arena_new_array(&model->arena, char *, GEMM_INPUTS);
    memcpy(inputs, node->input, (GEMM_INPUTS - 1) * sizeof *inputs);
    inputs[GEMM_INPUTS - 1] = bias;
    node->input = inputs;
    node->n_input = GEMM_INPUTS;
}

/* The node's third input becomes a new initializer. */
static void restore(OnnxModel *model, Onnx__NodeProto *node, const Onnx__TensorProto *weight, const char *name)
{
    Arena *arena = &model->arena;
    Onnx__GraphProto *graph = model->proto->graph;
    size_t count = graph->n_initializer;
    Onnx__TensorProto **initializers = arena_new_array(arena, Onnx__TensorProto *, count + 1);
    memcpy(initializers, graph->initializer, count * sizeof *initializers);
    initializers[count] = new_zeros(arena, weight, weight->dims[transposes_weight(node) ? 0 : 1], name);
    graph->initializer = initializers;
    graph->n_initializer = count + 1;
    array_push(model->weights, model->weight_count, model->weight_capacity, (WireSpan){0});
    add_input(model, node, initializers[count]->name);
}

/* The name that it had, as far as the exporter tells, else one by the module. */
static const char *bias_name(Arena *arena, const char *signature, const Onnx__NodeProto *node, bool *told)
{
    const char *bias = called_parameter(arena, signature, node, "bias"), *module = module_path(arena, node);
    *told = bias && pattern_matches("*bias", bias);
    if (*told) return bias;
    return module ? arena_format(arena, "%s.bias", module) : NULL;
}

void restore_removed_biases(OnnxModel *model, Diagnostics *diagnostics)
{
    const Onnx__GraphProto *graph = model->proto->graph;
    const size_t count = graph->n_initializer;
    const char *signature = graph_signature(&model->arena, graph);
    FREED_WITH(string_map_free) StringMap initializers = {0};
    for (uint32_t i = 0; i < graph->n_initializer; i++) string_map_add(&initializers, graph->initializer[i]->name, i);
    for (size_t n = 0; n < graph->n_node; n++) {
        Onnx__NodeProto *node = graph->node[n];
        if (!lost_bias(&model->arena, node)) continue;
        bool told;
        const char *name = bias_name(&model->arena, signature, node, &told);
        const uint32_t *found = string_map_find(&initializers, node->input[1]);
        const Onnx__TensorProto *weight = found ? graph->initializer[*found] : NULL;
        bool matrix = weight && weight->n_dims == 2 && dtype_is_float(onnx_dtype(weight->data_type));
        enum { MOST = 1 << 24 };
        char object[512];
        snprintf(object, sizeof object, "node '%.400s'", node->name ? node->name : "");
        Place place = {.file = model->path, .object = object};
        int64_t size = matrix ? weight->dims[transposes_weight(node) ? 0 : 1] : 0;
        const uint32_t *known = name ? string_map_find(&initializers, name) : NULL;
        const Onnx__TensorProto *bias = known ? graph->initializer[*known] : NULL;
        if (bias && bias->n_dims == 1 && bias->dims[0] == size && (*known >= count || told)) {
            add_input(model, node, bias->name);
            continue;
        }
        if (size < 1 || size > MOST || !name || !string_map_add(&initializers, name, (uint32_t)graph->n_initializer)) {
            diagnostics_warning(diagnostics, place, "export with optimize=False to keep it",
                                "the exporter removed its bias (all zeros): the bias is not trained");
            continue;
        }
        restore(model, node, weight, name);
        diagnostics_warning(diagnostics, place, "give --freeze to keep it zero",
                            "the exporter removed its bias (all zeros): the bias is trained as '%s'", name);
    }
}
