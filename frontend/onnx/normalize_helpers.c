#include "frontend/onnx/normalize.h"

#include <stdarg.h>
#include <string.h>

#include "graph/ops/operator.h"

static bool report(const OnnxNode *node, int exit_code, const char *hint, const char *format, va_list arguments)
{
    char message[512];
    if (node_failed(node)) return false;
    vsnprintf(message, sizeof message, format, arguments);
    return diagnostics_error(node->importer->diagnostics, exit_code, onnx_place(node), hint, "%s", message);
}

bool node_error(const OnnxNode *node, const char *hint, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(node, EXIT_BAD_INPUT, hint, format, arguments);
    va_end(arguments);
    return false;
}

bool node_unsupported(const OnnxNode *node, const char *hint, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *model = model_hint(node->importer);
    report(node, EXIT_UNSUPPORTED_OPERATOR, model ? model : hint, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- Attributes ---- */

static const Onnx__AttributeProto *find(const OnnxNode *node, const char *name, size_t *position)
{
    const Onnx__NodeProto *proto = node->source->proto;
    for (size_t i = 0; i < proto->n_attribute; i++)
        if (proto->attribute[i]->name && strcmp(proto->attribute[i]->name, name) == 0) {
            *position = i;
            return proto->attribute[i];
        }
    return NULL;
}

bool attribute_present(const OnnxNode *node, const char *name)
{
    size_t position;
    return find(node, name, &position) != NULL;
}

void ignore_attribute(OnnxNode *node, const char *name)
{
    size_t position;
    if (find(node, name, &position)) node->attributes_used |= (uint64_t)1 << position;
}

/* Finds the attribute and checks its type; NULL if it is absent or wrong. Files of IR version 1 do not state types. */
static const Onnx__AttributeProto *take(OnnxNode *node, const char *name, Onnx__AttributeProto__AttributeType type)
{
    size_t position;
    const Onnx__AttributeProto *found = find(node, name, &position);
    if (!found) return NULL;
    node->attributes_used |= (uint64_t)1 << position;
    if (found->ref_attr_name && *found->ref_attr_name)
        node_error(node, NULL, "the attribute '%s' refers to a function's attribute, but the node is in no function",
                   name);
    else if (found->has_type && found->type != type)
        node_error(node, NULL, "the attribute '%s' is of the wrong type", name);
    return node_failed(node) ? NULL : found;
}

int64_t integer_attribute(OnnxNode *node, const char *name, int64_t absent)
{
    const Onnx__AttributeProto *attribute = take(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    return attribute ? attribute->i : absent;
}

double float_attribute(OnnxNode *node, const char *name, double absent)
{
    const Onnx__AttributeProto *attribute = take(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    return attribute ? (double)attribute->f : absent;
}

const char *string_attribute(OnnxNode *node, const char *name, const char *absent)
{
    const Onnx__AttributeProto *attribute = take(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    if (!attribute) return absent;
    const char *text = attribute->s.len ? (const char *)attribute->s.data : "";
    return arena_string_n(&node->importer->arena, text, attribute->s.len);
}

static int list_length(const OnnxNode *node, const char *name, size_t count)
{
    if (count > INT32_MAX) node_error(node, NULL, "the attribute '%s' is too long", name);
    return count > INT32_MAX ? -1 : (int)count;
}

int integers_attribute(OnnxNode *node, const char *name, const int64_t **values)
{
    const Onnx__AttributeProto *attribute = take(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    *values = attribute ? attribute->ints : NULL;
    return attribute ? list_length(node, name, attribute->n_ints) : -1;
}

int floats_attribute(OnnxNode *node, const char *name, const float **values)
{
    const Onnx__AttributeProto *attribute = take(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS);
    *values = attribute ? attribute->floats : NULL;
    return attribute ? list_length(node, name, attribute->n_floats) : -1;
}

const Onnx__TensorProto *tensor_attribute(OnnxNode *node, const char *name)
{
    const Onnx__AttributeProto *attribute = take(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
    if (attribute && !attribute->t) node_error(node, NULL, "the attribute '%s' has no tensor", name);
    return attribute ? attribute->t : NULL;
}

/* ---- Inputs ---- */

bool known_input(const OnnxNode *node, int input, Value *value)
{
    *value = *graph_value(node->graph, node->inputs[input]);
    if (value->role == ROLE_CONSTANT) return true;
    for (size_t i = 0; value->role == ROLE_INPUT && i < node->graph->input_count; i++) {
        if (node->graph->inputs[i] != node->inputs[input]) continue;
        const InputShape *given = given_input(node->importer->options, value->name, i);
        if (!given || !given->data || !shape_equal(&given->shape, &value->shape)) break;
        value->dtype = given->dtype;
        value->data = given->data;
        return true;
    }
    return false;
}

bool constant_input(const OnnxNode *node, int input, Value *value)
{
    return known_input(node, input, value) ||
           node_unsupported(node, "export the model with constant folding, or with this input as a constant",
                            "input %d must be known at compile time, but depends on the model's inputs", input);
}

int constant_integers(OnnxNode *node, int input, const int64_t **values)
{
    Value value;
    *values = NULL;
    if (!has_input(node, input) || !constant_input(node, input, &value)) return -1;
    int64_t elements = shape_elements(&value.shape);
    if (!dtype_is_integer(value.dtype) || value.shape.rank > 1 || elements > INT32_MAX)
        return node_error(node, NULL, "input %d must be a list of integers", input) - 1;
    int64_t *list = arena_new_array(&node->importer->arena, int64_t, (size_t)elements);
    for (int64_t i = 0; i < elements; i++) list[i] = element_as_integer(value.dtype, value.data, i);
    *values = list;
    return (int)elements;
}

int integers_since(OnnxNode *node, int64_t since, const char *attribute, int input, const int64_t **values)
{
    return node->opset < since ? integers_attribute(node, attribute, values) : constant_integers(node, input, values);
}

double constant_scalar(OnnxNode *node, int input, double absent)
{
    Value constant;
    if (!has_input(node, input) || !constant_input(node, input, &constant)) return absent;
    if (shape_elements(&constant.shape) == 1) return element_as_double(constant.dtype, constant.data, 0);
    node_error(node, NULL, "input %d must be a single number", input);
    return absent;
}

bool check_axis(const OnnxNode *node, int64_t *axis, int rank)
{
    int64_t given = *axis;
    if (normalize_axis(axis, rank)) return true;
    return node_error(node, NULL, "the axis %lld is outside a tensor of rank %d", (long long)given, rank);
}

bool mark_axes(const OnnxNode *node, const int64_t *axes, int count, int rank, bool marked[MAX_RANK])
{
    memset(marked, 0, MAX_RANK * sizeof *marked);
    for (int i = 0; i < count; i++) {
        int64_t axis = axes[i];
        if (!check_axis(node, &axis, rank)) return false;
        if (marked[axis]) return node_error(node, NULL, "the axis %lld is named twice", (long long)axes[i]);
        marked[axis] = true;
    }
    return true;
}

/* ---- Emitters ---- */

bool check_size(const OnnxNode *node, const Shape *shape, bool constant)
{
    int64_t elements = onnx_shape_volume(shape);
    if (elements >= 0 && elements <= (constant ? MAX_CONSTANT_ELEMENTS : MAX_ELEMENTS)) return true;
    char text[256];
    return node_error(node, NULL, "would make a tensor of shape %s, which is too large", shape_format(shape, text));
}

ValueId emit_constant(OnnxNode *node, DType dtype, const Shape *shape, void **data)
{
    if (!check_size(node, shape, true)) return 0;
    if (!fold_claim_bytes(&node->importer->model->folding, (size_t)shape_elements(shape) * dtype_size(dtype))) {
        char text[256];
        return node_error(node, NULL, "would make a constant of shape %s; all that the model makes exceed %zu MiB",
                          shape_format(shape, text), FOLD_LIMIT_BYTES >> 20);
    }
    ValueId result = graph_add_constant(node->graph, NULL, dtype, shape, NULL);
    *data = (void *)graph_value(node->graph, result)->data;
    return result;
}

ValueId emit_dequantized(OnnxNode *node, const Shape *shape, void **data)
{
    Importer *importer = node->importer;
    if (!check_size(node, shape, true)) return 0;
    importer->widened += (size_t)shape_elements(shape);
    if (importer->widened > importer->narrow_bytes) return emit_constant(node, DTYPE_F32, shape, data);
    ValueId result = graph_add_constant(node->graph, NULL, DTYPE_F32, shape, NULL);
    *data = (void *)graph_value(node->graph, result)->data;
    return result;
}

ValueId emit_counting(OnnxNode *node, int64_t first, const Shape *shape)
{
    void *data;
    ValueId result = emit_constant(node, DTYPE_I64, shape, &data);
    for (int64_t i = 0; result && i < shape_elements(shape); i++) ((int64_t *)data)[i] = first + i;
    return result;
}

bool emit_outputs(OnnxNode *node, Opcode op, const ValueId *inputs, int input_count, const Attribute *attributes,
                  int attribute_count, ValueId *outputs, int output_count)
{
    bool constant = input_count > 0;
    if (node_failed(node)) return false;
    for (int i = 0; i < input_count; i++)
        constant = constant && (!inputs[i] || graph_value(node->graph, inputs[i])->role == ROLE_CONSTANT);
    NodeId made = graph_add_node(node->graph, op, node->b.origin, inputs, input_count, attributes, attribute_count,
                                 outputs, output_count, node->importer->diagnostics);
    if (!made) return false;
    if (!fold_node(node->graph, made, &node->importer->model->folding))
        return node_error(node, NULL, "index out of range");
    for (int i = 0; i < output_count; i++) {
        Shape shape = shape_of(node, outputs[i]);
        if (!check_size(node, &shape, constant)) return false;
    }
    return true;
}

/* Builder.add */
static ValueId add(const Builder *b, Opcode op, const ValueId *inputs, int input_count, const Attribute *attributes,
                   int attribute_count)
{
    ValueId output = 0;
    return emit_outputs(b->context, op, inputs, input_count, attributes, attribute_count, &output, 1) ? output : 0;
}

void begin_node(OnnxNode *node)
{
    Importer *importer = node->importer;
    node->errors = importer->diagnostics->errors;
    node->b = (Builder){.graph = node->graph, .diagnostics = importer->diagnostics, .add = add, .context = node};
    node->b.origin = (NodeOrigin){.name = node->source->name,
                                  .phase = PHASE_FORWARD,
                                  .layer = LAYER_NONE,
                                  .made_for = node->place,
                                  .hint = importer->shape_hint};
}

ValueId emit_concat(OnnxNode *node, ValueId a, ValueId b, int64_t axis)
{
    return emit_along(node, OP_Concat, (ValueId[]){a, b}, 2, "axis", axis);
}

ValueId emit_lookup(OnnxNode *node, ValueId table, ValueId indices, int64_t axis)
{
    return emit_along(node, OP_Gather, (ValueId[]){table, indices}, 2, "axis", axis);
}

ValueId emit_swap_axes(OnnxNode *node, ValueId a, int first, int second)
{
    int64_t perm[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    perm[first] = second;
    perm[second] = first;
    return emit_transpose(node, a, perm);
}

ValueId emit_slice(OnnxNode *node, ValueId a, const int64_t *starts, const int64_t *steps, const Shape *shape)
{
    if (!a) return 0;
    Shape present = shape_of(node, a);
    bool whole = shape_equal(&present, shape);
    for (int i = 0; whole && i < shape->rank; i++) whole = steps[i] > 0;
    if (whole) return a;
    Attribute attributes[] = {attribute_integers("starts", starts, shape->rank),
                              attribute_integers("steps", steps, shape->rank),
                              attribute_integers("shape", shape->dim, shape->rank)};
    return emit_with(node, OP_Slice, &a, 1, attributes, 3);
}

ValueId emit_reduce(OnnxNode *node, Opcode op, ValueId a, const int64_t *axes, int count, bool keepdims)
{
    if (count == 0) return a;
    Attribute attributes[] = {attribute_integers("axes", axes, count), attribute_integer("keepdims", keepdims)};
    return emit_with(node, op, &a, 1, attributes, 2);
}

ValueId emit_scalar(OnnxNode *node, DType dtype, double value)
{
    return graph_constant_scalar(node->graph, dtype, value);
}

bool set_output(OnnxNode *node, int output, ValueId value)
{
    if (output < node->output_count) node->outputs[output] = value;
    return value != 0;
}

/* ---- Rules that other rules build on ---- */

bool normalize_direct(OnnxNode *node)
{
    return set_output(node, 0, emit_with(node, node->rule->opcode, node->inputs, node->input_count, NULL, 0));
}

bool normalize_alias(OnnxNode *node) { return set_output(node, 0, node->inputs[0]); }
