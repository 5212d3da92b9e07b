#include "graph/fold.h"

#include <stdlib.h>
#include <string.h>

#include "graph/operator.h"

static bool foldable(const Graph *graph, const Node *node)
{
    if (node->input_count == 0 || node->output_count == 0) return false;
    if (node->op == OP_AccumulateGradient) return false; /* adds to what is there, however little it depends on */
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && graph_value(graph, node->inputs[i])->role != ROLE_CONSTANT) return false;
    return true;
}

bool fold_claim_bytes(Graph *graph, size_t bytes)
{
    if (bytes > FOLD_LIMIT_BYTES - graph->folded_bytes) return false;
    graph->folded_bytes += bytes;
    return true;
}

static bool claim_iterations(Graph *graph, const Lowering *lowering)
{
    double iterations = graph->folded_iterations;
    for (size_t c = 0; c < lowering->call_count; c++) {
        double product = 1;
        const Kernel *kernel = lowering->calls[c].kernel;
        /* An empty axis does not spare the loops around it. */
        for (int a = 0; a < kernel->axis_count; a++) product *= kernel->extent[a] ? (double)kernel->extent[a] : 1;
        iterations += product;
    }
    if (iterations > FOLD_LIMIT_ITERATIONS) return false;
    graph->folded_iterations = iterations;
    return true;
}

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

/* The buffer of a value while folding: a constant's data, or memory that the graph's arena gives out on first use. */
static void *buffer_of(Graph *graph, ValueId id, void **made)
{
    const Value *value = graph_value(graph, id);
    if (value->role == ROLE_CONSTANT) return (void *)value->data;
    if (!made[id])
        made[id] = arena_allocate(&graph->arena, (size_t)shape_elements(&value->shape) * dtype_size(value->dtype));
    return made[id];
}

bool fold_node(Graph *graph, NodeId id, Diagnostics *diagnostics)
{
    size_t bytes = output_bytes(graph, graph_node(graph, id));
    if (!foldable(graph, graph_node(graph, id)) || bytes > FOLD_LIMIT_BYTES - graph->folded_bytes) return true;
    Lowering lowering = {0};
    lowering_begin(&lowering, graph);
    if (bytes) lowering_run(&lowering, &id, 1);
    for (int i = 0; bytes && i < graph_node(graph, id)->output_count; i++)
        lowering_materialize(&lowering, graph_node(graph, id)->outputs[i]);

    if (!claim_iterations(graph, &lowering)) {
        lowering_free(&lowering);
        return true;
    }
    fold_claim_bytes(graph, bytes);

    void **made = memory_allocate(graph->value_count * sizeof *made);
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
    if (!ok) {
        char text[512];
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, node_place(graph, node, text), NULL, "index out of range");
    }
    for (int i = 0; ok && i < node->output_count; i++) {
        Value *value = graph_value(graph, node->outputs[i]);
        value->data = buffer_of(graph, node->outputs[i], made);
        value->role = ROLE_CONSTANT;
        value->producer = 0;
    }
    if (ok) node->op = OP_NONE;
    free(made);
    lowering_free(&lowering);
    return ok;
}
