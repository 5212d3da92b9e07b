/* Evaluates a graph in tests: every value gets a buffer, everything is lowered and interpreted. */
#ifndef TESTS_COMMON_GRAPH_EVALUATOR_H
#define TESTS_COMMON_GRAPH_EVALUATOR_H

#include <stdlib.h>
#include <string.h>

#include "graph/ops/lower.h"

typedef struct Evaluator {
    Graph *graph;
    Lowering lowering;
    void **buffer; /* per value; constants and parameters start with their data, all else with zeros */
    size_t buffer_count;
} Evaluator;

static inline void evaluator_init(Evaluator *evaluator, Graph *graph)
{
    *evaluator = (Evaluator){.graph = graph, .buffer_count = graph->value_count};
    lowering_begin(&evaluator->lowering, graph);
    for (NodeId node = 1; node < graph->node_count; node++)
        if (graph_node(graph, node)->op != OP_NONE) lowering_run(&evaluator->lowering, &node, 1);
    for (size_t i = 0; i < graph->output_count; i++)
        lowering_materialize(&evaluator->lowering, graph->outputs[i].value);
    evaluator->buffer = memory_allocate(graph->value_count * sizeof *evaluator->buffer);
    for (ValueId v = 1; v < graph->value_count; v++) {
        const Value *value = graph_value(graph, v);
        size_t bytes = (size_t)shape_elements(&value->shape) * dtype_size(value->dtype);
        evaluator->buffer[v] = memory_allocate(bytes);
        if (value->data && bytes) memcpy(evaluator->buffer[v], value->data, bytes);
    }
}

static inline void evaluator_addresses(const Evaluator *evaluator, const LoweredCall *call, void **address)
{
    for (int k = 0; k < call->kernel->operand_count; k++) {
        ValueId value = call->operands[k].value;
        int64_t size = (int64_t)dtype_size(graph_value(evaluator->graph, value)->dtype);
        address[k] = (char *)evaluator->buffer[value] + call->operands[k].offset * size;
    }
}

/* Runs everything; false if an index was out of range. */
static inline bool evaluator_run(Evaluator *evaluator)
{
    for (size_t i = 0; i < evaluator->lowering.call_count; i++) {
        const LoweredCall *call = &evaluator->lowering.calls[i];
        void *address[KERNEL_MAX_OPERANDS];
        evaluator_addresses(evaluator, call, address);
        if (!kernel_interpret(call->kernel, address)) return false;
    }
    return true;
}

static inline void evaluator_free(Evaluator *evaluator)
{
    for (size_t i = 0; i < evaluator->buffer_count; i++) free(evaluator->buffer[i]);
    free(evaluator->buffer);
    lowering_free(&evaluator->lowering);
}

#endif
