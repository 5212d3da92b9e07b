#include "tests/frontend/onnx/model_changes.h"

#include <string.h>

/* A change draws the words `at`, `at` + 1 ... of a stream, each once. */
typedef struct Draws {
    RandomStream stream;
    uint64_t at;
    Arena *arena;
} Draws;

static size_t below(Draws *draws, size_t bound) { return (size_t)random_below(draws->stream, draws->at++, bound); }

static int64_t odd_number(Draws *draws)
{
    static const int64_t numbers[] = {0,         1,           -1,        2,         3,         -2,
                                      7,         8,           9,         64,        -100,      1 << 20,
                                      INT32_MAX, INT32_MIN,   1LL << 40, INT64_MAX, INT64_MIN, INT64_MAX - 1,
                                      1LL << 62, -(1LL << 62)};
    return numbers[below(draws, sizeof numbers / sizeof *numbers)];
}

/* Small ones make models that mean something. */
static int64_t number(Draws *draws) { return below(draws, 2) ? (int64_t)below(draws, 5) - 1 : odd_number(draws); }

/* A copy of the array of pointers, with `added` at its end. */
static void *with_pointer(Draws *draws, void *pointers, size_t count, void *added)
{
    void **longer = arena_new_array(draws->arena, void *, count + 1);
    if (count) memcpy(longer, pointers, count * sizeof *longer);
    longer[count] = added;
    return longer;
}

static void change_tensor(Draws *draws, Onnx__TensorProto *tensor)
{
    size_t elements = tensor->raw_data.len / sizeof(int64_t);
    if (below(draws, 3) == 0 && tensor->n_dims) {
        tensor->dims[below(draws, tensor->n_dims)] = odd_number(draws);
    } else if (below(draws, 4) == 0) {
        tensor->data_type = (int32_t)below(draws, 17);
    } else if (elements) {
        int64_t value = number(draws);
        memcpy(tensor->raw_data.data + 8 * below(draws, elements), &value, sizeof value);
    } else if (tensor->n_int64_data) {
        tensor->int64_data[below(draws, tensor->n_int64_data)] = number(draws);
    }
}

static void change_attribute(Draws *draws, Onnx__AttributeProto *attribute)
{
    attribute->i = number(draws);
    if (attribute->n_ints) attribute->ints[below(draws, attribute->n_ints)] = number(draws);
    if (attribute->t) change_tensor(draws, attribute->t);
}

/* One of the words, which blanks separate. */
static char *some_word(Draws *draws, const char *words)
{
    size_t count = 1, choice;
    for (const char *c = words; *c; c++) count += *c == ' ';
    for (choice = below(draws, count); choice; choice--) words = strchr(words, ' ') + 1;
    return arena_string_n(draws->arena, words, strcspn(words, " "));
}

static void add_attribute(Draws *draws, Onnx__NodeProto *node)
{
    static const char integers[] = "axis keepdims to batch_dims upper exclusive reverse allowzero transA transB fmod "
                                   "select_last_index num_heads is_causal ignore_index num_outputs";
    static const char lists[] = "axes perm pads split starts ends shape repeats";
    Onnx__AttributeProto *attribute = arena_new(draws->arena, Onnx__AttributeProto);
    onnx__attribute_proto__init(attribute);
    attribute->has_type = attribute->has_i = 1;
    if (below(draws, 2)) {
        attribute->name = some_word(draws, integers);
        attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
        attribute->i = number(draws);
    } else {
        attribute->name = some_word(draws, lists);
        attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
        attribute->n_ints = below(draws, 4);
        attribute->ints = arena_new_array(draws->arena, int64_t, attribute->n_ints);
        for (size_t i = 0; i < attribute->n_ints; i++) attribute->ints[i] = number(draws);
    }
    node->attribute = with_pointer(draws, node->attribute, node->n_attribute, attribute);
    node->n_attribute++;
}

static char *named(char *name) { return name ? name : (char *)""; }

/* The name of some value of the graph, or of none. */
static char *some_value(Draws *draws, const Onnx__GraphProto *graph)
{
    const Onnx__NodeProto *node = graph->node[below(draws, graph->n_node)];
    size_t choice = below(draws, 4);
    if (choice == 0 && graph->n_initializer) return named(graph->initializer[below(draws, graph->n_initializer)]->name);
    if (choice == 1 && graph->n_input) return named(graph->input[below(draws, graph->n_input)]->name);
    if (choice == 2 && node->n_input) return node->input[below(draws, node->n_input)];
    return node->n_output ? node->output[0] : named(NULL);
}

static char *some_operator(Draws *draws)
{
    static const char names[] =
        "Add And ArgMax Attention Cast CastLike Clip Concat Constant CumSum Div Dropout Einsum Equal "
        "Expand Flatten Gather GatherElements GatherND Gelu Gemm Identity IsInf LogSoftmax MatMul Max "
        "Mean Mod NonZero OneHot Pad Pow Range ReduceL2 ReduceMax ReduceMean ReduceProd ReduceSum Reshape "
        "Shape Size Slice Softmax Split Squeeze Sum Tile Transpose Trilu Unsqueeze Where ConstantOfShape "
        "LayerNormalization NegativeLogLikelihoodLoss RMSNormalization ScatterElements ScatterND "
        "SoftmaxCrossEntropyLoss";
    return some_word(draws, names);
}

static void change_node(Draws *draws, const Onnx__GraphProto *graph, Onnx__NodeProto *node)
{
    switch (below(draws, 6)) {
    case 0: node->op_type = some_operator(draws); return;
    case 1:
        if (node->n_input) node->input[below(draws, node->n_input)] = some_value(draws, graph);
        return;
    case 2:
        if (node->n_input) node->n_input -= below(draws, node->n_input + 1) != 0;
        return;
    case 3:
        node->input = with_pointer(draws, node->input, node->n_input, some_value(draws, graph));
        node->n_input++;
        return;
    case 4: add_attribute(draws, node); return;
    default:
        if (node->n_attribute) change_attribute(draws, node->attribute[below(draws, node->n_attribute)]);
    }
}

static Onnx__TypeProto__Tensor *tensor_type(const Onnx__ValueInfoProto *value)
{
    const Onnx__TypeProto *type = value->type;
    return type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? type->tensor_type : NULL;
}

static void change_dimension(Draws *draws, const Onnx__ValueInfoProto *value)
{
    const Onnx__TypeProto__Tensor *type = tensor_type(value);
    if (!type || !type->shape || !type->shape->n_dim) return;
    Onnx__TensorShapeProto__Dimension *dimension = type->shape->dim[below(draws, type->shape->n_dim)];
    dimension->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    dimension->dim_value = odd_number(draws);
}

/* An initializer of the input's name, small numbers in it: what depends on the input is folded then. */
static void add_initializer(Draws *draws, Onnx__GraphProto *graph, const Onnx__ValueInfoProto *input)
{
    enum { MOST_ELEMENTS = 64 };
    const Onnx__TypeProto__Tensor *type = tensor_type(input);
    size_t rank = type && type->shape ? type->shape->n_dim : 1, elements = 1;
    Onnx__TensorProto *tensor = arena_new(draws->arena, Onnx__TensorProto);
    onnx__tensor_proto__init(tensor);
    tensor->name = input->name;
    tensor->has_data_type = 1;
    tensor->n_dims = rank;
    tensor->dims = arena_new_array(draws->arena, int64_t, rank);
    for (size_t i = 0; i < rank; i++) {
        int64_t length = type && type->shape ? type->shape->dim[i]->dim_value : 2;
        if (length < 0 || length > MOST_ELEMENTS / (int64_t)(elements ? elements : 1)) length = 1;
        tensor->dims[i] = length;
        elements *= (size_t)length;
    }
    bool real = type && type->elem_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    tensor->data_type = real ? ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT : ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    tensor->has_raw_data = 1;
    tensor->raw_data.len = elements * (real ? sizeof(float) : sizeof(int64_t));
    tensor->raw_data.data = arena_allocate(draws->arena, tensor->raw_data.len);
    for (size_t i = 0; i < elements; i++) {
        int64_t small = (int64_t)(random_word(draws->stream, draws->at) >> i % 30 & 7) - 2;
        float value = (float)small;
        memcpy(tensor->raw_data.data + i * (real ? sizeof value : sizeof small), real ? (void *)&value : (void *)&small,
               real ? sizeof value : sizeof small);
    }
    graph->initializer = with_pointer(draws, graph->initializer, graph->n_initializer, tensor);
    graph->n_initializer++;
}

void model_change(Onnx__ModelProto *model, Arena *arena, RandomStream stream, uint64_t draw)
{
    Draws draws = {stream, draw, arena};
    Onnx__GraphProto *graph = model->graph;
    if (!graph) return;
    size_t choice = below(&draws, 16);
    if (choice == 0 && model->n_opset_import) {
        model->opset_import[0]->has_version = 1;
        model->opset_import[0]->version = 5 + (int64_t)below(&draws, 22);
    }
    if (choice <= 2 && graph->n_initializer)
        change_tensor(&draws, graph->initializer[below(&draws, graph->n_initializer)]);
    else if (choice == 3 && graph->n_input)
        change_dimension(&draws, graph->input[below(&draws, graph->n_input)]);
    else if (choice <= 5 && graph->n_input)
        add_initializer(&draws, graph, graph->input[below(&draws, graph->n_input)]);
    else if (graph->n_node)
        change_node(&draws, graph, graph->node[below(&draws, graph->n_node)]);
}
