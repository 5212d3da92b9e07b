#include "graph/passes/fold.h"

#include <stdlib.h>

#include "graph/ops/lower.h"
#include "graph/ops/operator.h"

/* Bytes of the outputs; SIZE_MAX where that is beyond any limit. */
static size_t output_bytes(const Graph *graph, const Node *node)
{
    size_t total = 0;
    for (int i = 0; i < node->output_count; i++) {
        const Value *value = graph_value(graph, node->outputs[i]);
        size_t elements = (size_t)shape_elements(&value->shape), size = dtype_size(value->dtype);
        if (elements > FOLD_LIMIT_BYTES / size) return SIZE_MAX;
        total += elements * size;
    }
    return total;
}

static bool foldable(const Graph *graph, const Node *node)
{
    if (node->input_count == 0 || node->output_count == 0) return false;
    if (operator_has(node->op, HAS_MEMORY)) return false; /* what it adds to is no input */
    if (!output_bytes(graph, node)) return true;          /* without elements, whatever the inputs are */
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && graph_value(graph, node->inputs[i])->role != ROLE_CONSTANT) return false;
    return true;
}

bool fold_claim_bytes(Folding *folding, size_t bytes)
{
    if (bytes > FOLD_LIMIT_BYTES - folding->bytes) return false;
    folding->bytes += bytes;
    return true;
}

static bool claim_iterations(Folding *folding, const Lowering *lowering)
{
    double iterations = folding->iterations;
    for (size_t c = 0; c < lowering->call_count; c++) {
        double product = 1;
        const Kernel *kernel = lowering->calls[c].kernel;
        /* The loops around an empty axis run all the same. */
        for (int a = 0; a < kernel->axis_count; a++) product *= kernel->extent[a] ? (double)kernel->extent[a] : 1;
        iterations += product;
    }
    if (iterations > FOLD_LIMIT_ITERATIONS) return false;
    folding->iterations = iterations;
    return true;
}

/* The buffer of a value while folding: a constant's data, or memory that the graph's arena gives out on first use. */
static void *buffer_of(Graph *graph, ValueId id, void **made)
{
    const Value *value = graph_value(graph, id);
    if (value->role == ROLE_CONSTANT) return (void *)value->data;
    if (!made[id])
        made[id] = arena_allocate(&graph->arena, (size_t)shape_elements(&value->shape) * dtype_size(value->dtype));
    return made[id];
}

bool fold_node(Graph *graph, NodeId id, Folding *folding)
{
    size_t bytes = output_bytes(graph, graph_node(graph, id));
    if (!foldable(graph, graph_node(graph, id)) || bytes > FOLD_LIMIT_BYTES - folding->bytes) return true;
    FREED_WITH(lowering_free) Lowering lowering = {0};
    lowering_begin(&lowering, graph);
    if (bytes) lowering_run(&lowering, &id, 1);
    for (int i = 0; bytes && i < graph_node(graph, id)->output_count; i++)
        lowering_materialize(&lowering, graph_node(graph, id)->outputs[i]);

    if (!claim_iterations(folding, &lowering)) return true;
    fold_claim_bytes(folding, bytes);

    FREED void **made = memory_allocate(graph->value_count * sizeof *made);
    bool ok = true;
    for (size_t c = 0; ok && c < lowering.call_count; c++) {
        const LoweredCall *call = &lowering.calls[c];
        void *address[KERNEL_MAX_OPERANDS];
        for (int i = 0; i < call->kernel->operand_count; i++) {
            ValueId value = call->operands[i].value;
            address[i] = (char *)buffer_of(graph, value, made) +
                         call->operands[i].offset * (int64_t)dtype_size(graph_value(graph, value)->dtype);
        }
        ok = kernel_interpret(call->kernel, address);
    }
    Node *node = graph_node(graph, id);
    bool learned = false;
    for (int i = 0; i < node->input_count; i++) learned |= graph_value(graph, node->inputs[i])->frozen;
    for (int i = 0; ok && i < node->output_count; i++) {
        Value *value = graph_value(graph, node->outputs[i]);
        value->data = buffer_of(graph, node->outputs[i], made);
        value->role = ROLE_CONSTANT;
        value->producer = 0;
        value->frozen = learned;
    }
    if (ok) node->op = OP_NONE;
    return ok;
}

/* Where element `i` of a gather along the first axes lies in `data`, in units of what one index takes. */
static int64_t taken(const Value *indices, const Shape *data, int64_t i, int64_t axes)
{
    int64_t place = 0;
    for (int64_t a = 0; a < axes; a++) {
        int64_t index = element_as_integer(indices->dtype, indices->data, i * axes + a);
        if (index < 0 || index >= data->dim[a]) return -1;
        place = place * data->dim[a] + index;
    }
    return place;
}

/* Exporters gather all elements of a mask in their order. That is a reshape, which does not mix rows (pack_rows.h). */
static void fold_gather(Graph *graph, Node *node)
{
    bool several = node->op == OP_GatherND;
    if ((!several && node->op != OP_Gather) || node_integer(node, several ? "batch_dims" : "axis", 0) != 0) return;
    const Value *data = graph_value(graph, node->inputs[0]), *indices = graph_value(graph, node->inputs[1]);
    const Value *output = graph_value(graph, node->outputs[0]);
    int rank = indices->shape.rank;
    if (data->role == ROLE_PARAMETER || indices->role != ROLE_CONSTANT || (several && !rank) || !data->shape.rank)
        return;
    int64_t axes = several ? indices->shape.dim[rank - 1] : 1;
    if (axes < 1 || axes > data->shape.rank || shape_elements(&data->shape) != shape_elements(&output->shape)) return;
    for (int64_t i = 0; i < shape_elements(&indices->shape) / axes; i++)
        if (taken(indices, &data->shape, i, axes) != i) return;
    Attribute shape = attribute_integers("shape", output->shape.dim, output->shape.rank);
    shape.integers = arena_copy(&graph->arena, output->shape.dim, (size_t)output->shape.rank * sizeof(int64_t));
    node->op = OP_Reshape;
    node->input_count = node->attribute_count = 1;
    node->attributes = arena_copy(&graph->arena, &shape, sizeof shape);
}

bool fold_constants(Graph *graph, Folding *folding, Diagnostics *diagnostics)
{
    bool ok = true;
    for (NodeId n = 1; n < graph->node_count; n++) {
        char text[512];
        if (graph_node(graph, n)->op != OP_NONE) fold_gather(graph, graph_node(graph, n));
        if (graph_node(graph, n)->op == OP_NONE || fold_node(graph, n, folding)) continue;
        Place place = node_place(graph, graph_node(graph, n), text);
        ok = diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL, "index out of range");
    }
    return ok;
}
