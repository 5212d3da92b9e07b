#include <string.h>

#include "base/buffer.h"
#include "graph/passes/loss_internal.h"

ValueId loss_find_output(const Graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->output_count; i++)
        if (strcmp(graph->outputs[i].name, name) == 0) return graph->outputs[i].value;
    return 0;
}

bool loss_is_scalar(const Graph *graph, ValueId id)
{
    const Value *value = graph_value(graph, id);
    return id && dtype_is_float(value->dtype) && shape_elements(&value->shape) == 1;
}

ValueId loss_default_output(const Graph *graph)
{
    ValueId logits = loss_find_output(graph, "logits"), only = 0;
    if (logits) return logits;
    int count = 0;
    for (size_t i = 0; i < graph->output_count; i++) {
        ValueId output = graph->outputs[i].value;
        if (dtype_is_float(graph_value(graph, output)->dtype) && !loss_is_scalar(graph, output)) only = output, count++;
    }
    return count == 1 ? only : 0;
}

/* The losses that take an output of this shape. */
static void print_fitting(const Graph *graph, const NamedValue *output, Buffer *buffer)
{
    const Value *value = graph_value(graph, output->value);
    const char *name = output->name;
    int rank = value->shape.rank;
    char shape[256];
    buffer_print(buffer, "%s %s%s", name, dtype_name(value->dtype), shape_format(&value->shape, shape));
    if (!dtype_is_float(value->dtype)) return;
    if (loss_is_scalar(graph, output->value)) buffer_print(buffer, ": output:%s", name);
    if (rank == 0) return;
    buffer_print(buffer, loss_is_scalar(graph, output->value) ? ", " : ": ");
    if (rank > 1 && value->shape.dim[rank - 1] > 1)
        buffer_print(buffer, "cross-entropy:%s%s, ", name, rank > 2 ? " (of a causal model: with ,shift)" : "");
    buffer_print(buffer, "mse:%s, bce:%s", name, name);
}

ValueId loss_refuse(const Builder *b, int code, const char *format, ...)
{
    FREED_WITH(buffer_free) Buffer hint = {0};
    const Graph *graph = b->graph;
    va_list arguments;
    va_start(arguments, format);
    const char *what = arena_format_va(&b->graph->arena, format, arguments);
    va_end(arguments);
    buffer_print(&hint, "give --loss KIND:OUTPUT:LABELS, several joined by +; what fits the outputs is");
    for (size_t i = 0; i < graph->output_count; i++) {
        buffer_print(&hint, i ? "; " : " ");
        print_fitting(graph, &graph->outputs[i], &hint);
    }
    diagnostics_error(b->diagnostics, code, PLACE_FILE(graph->file), buffer_text(&hint), "%s", what);
    return 0;
}
