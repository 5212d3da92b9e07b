#include "graph/passes/pack_rows.h"

#include <stdlib.h>

#include "graph/passes/pack_internal.h"
#include "graph/passes/passes.h"

/* [rows, longest, ...] are tokens, [rows, ...] rows. */
static bool pack_graph_input(Packer *packer, ValueId id)
{
    Value *input = graph_value(packer->graph, id);
    const Shape shape = input->shape;
    Layout layout = {.of_data = true, .rank = shape.rank};
    bool of_tokens = shape.rank > 1 && shape.dim[1] == packer->form.longest;
    char object[256], text[256];
    if (!shape.rank || shape.dim[0] != PACKING_GRAPH_ROWS) {
        snprintf(object, sizeof object, "input '%.200s'", input->name);
        return diagnostics_error(packer->diagnostics, EXIT_BAD_INPUT,
                                 (Place){.file = packer->graph->file, .object = object},
                                 "bind the dimension to one length: all rows are padded to it then",
                                 "rows of several lengths cannot be packed: its first dimension does not count the "
                                 "rows of a micro-batch, it has shape %s",
                                 shape_format(&shape, text));
    }
    layout_add(&layout, (Atom){ATOM_LINE, packer->form.lines, shape.dim[0], 0});
    if (of_tokens)
        layout_add(&layout, (Atom){ATOM_TOKEN, packer->form.length, shape.dim[1], 1});
    else
        layout_add_slots(&layout, packer->form.slots, 0);
    for (int axis = of_tokens ? 2 : 1; axis < shape.rank; axis++) layout_add_plain(&layout, shape.dim[axis], axis);
    packer->layouts[id] = layout;
    input->shape = layout_shape(&layout);
    pack_set_lines(packer, id, &layout);
    input->fill = of_tokens ? SKY_FILL_TOKENS : SKY_FILL_SLOTS;
    return true;
}

static bool prepare(Packer *packer)
{
    Graph *graph = packer->graph;
    bool ok = true, has_tokens = false;
    for (ValueId v = 1; v < graph->value_count; v++) {
        packer->before.values[v] = *graph_value(graph, v);
        pack_set_plain(packer, v);
    }
    for (size_t i = 0; i < graph->input_count; i++) {
        ok = pack_graph_input(packer, graph->inputs[i]) && ok;
        has_tokens |= graph_value(graph, graph->inputs[i])->fill == SKY_FILL_TOKENS;
    }
    if (ok && !has_tokens)
        return input_error(packer->diagnostics, graph->file, NULL,
                           "rows of several lengths cannot be packed: no input has a dimension of %u",
                           packer->form.longest);
    if (ok && graph->loss && (!graph->loss_is_summed || graph->whole_batches))
        return input_error(packer->diagnostics, graph->file,
                           "name a loss by --loss, or bind the dimension to one length",
                           "rows of several lengths cannot be packed: the loss averages or compares the rows of "
                           "a micro-batch itself");
    for (int i = 0; i < graph->label_count; i++)
        for (int k = 0; k < i; k++)
            if (ok && graph->labels[i].input == graph->labels[k].input &&
                graph->labels[i].shifted != graph->labels[k].shifted)
                return input_error(packer->diagnostics, graph->file,
                                   "bind the dimension to one length: all rows are padded to it then",
                                   "rows of several lengths cannot be packed: one loss compares scores with the "
                                   "labels of the next token, and another with those of the same one");
    return ok;
}

bool pack_rows(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    if (!options->packing.slots) return true;
    Packer packer = {.graph = graph,
                     .diagnostics = diagnostics,
                     .form = options->packing,
                     .b = {.graph = graph, .origin = {.phase = PHASE_FORWARD, .layer = LAYER_NONE}},
                     .before.values = memory_allocate(graph->value_count * sizeof(Value)),
                     .layouts = memory_allocate(graph->value_count * sizeof(Layout))};
    graph->packing = options->packing;
    bool ok = prepare(&packer);
    size_t count = 0;
    FREED Node *nodes = ok ? graph_take_nodes(graph, &count) : NULL;
    for (size_t n = 1; n < count && ok; n++) {
        packer.node = nodes[n];
        packer.b =
            (Builder){graph, {.name = packer.node.name, .phase = PHASE_FORWARD, .layer = LAYER_NONE}, NULL, NULL, NULL};
        if (packer.node.op != OP_NONE) ok = pack_node(&packer);
    }
    free(packer.layouts);
    free(packer.before.values);
    return ok;
}
