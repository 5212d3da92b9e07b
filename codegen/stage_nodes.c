/* Which nodes and values belong to a stage, and which values cross its ends. */
#include <stdlib.h>

#include "codegen/stage_builder.h"
#include "graph/operator.h"
#include "graph/sharing.h"

static bool in_stage(const StageBuilder *builder, int layer)
{
    return layer >= builder->first_layer && layer <= builder->last_layer;
}

bool stage_is_last(const StageBuilder *builder) { return builder->last_layer == builder->graph->layer_count - 1; }

void stage_collect_nodes(StageBuilder *builder)
{
    Graph *graph = builder->graph;
    bool *needed = memory_allocate(graph->value_count);
    bool *chosen = memory_allocate(graph->node_count);
    for (size_t i = 0; i < graph->output_count && stage_is_last(builder); i++) needed[graph->outputs[i].value] = true;
    for (NodeId n = (NodeId)graph->node_count - 1; n > 0; n--) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        bool wanted = in_stage(builder, node->layer);
        if (node->layer == LAYER_NONE) /* a function of the inputs: computed wherever it is read */
            for (int i = 0; i < node->output_count; i++) wanted |= needed[node->outputs[i]];
        chosen[n] = wanted;
        for (int i = 0; wanted && i < node->input_count; i++) needed[node->inputs[i]] = true;
    }
    for (NodeId n = 1; n < graph->node_count; n++) {
        if (!chosen[n]) continue;
        Phase phase = graph_node(graph, n)->phase;
        NodeList *list = phase == PHASE_FORWARD    ? &builder->forward
                         : phase == PHASE_BACKWARD ? &builder->backward
                                                   : &builder->update;
        array_push(list->nodes, list->count, list->capacity, n);
    }
    free(needed);
    free(chosen);
}

void value_list_add(ValueList *list, ValueId value) { array_push(list->values, list->count, list->capacity, value); }

/* The values that cross the cut before layer `cut`, in `phase`: forward ones are made before and read behind it,
 * backward ones the other way round. */
static void collect_crossing(const Graph *graph, int cut, Phase phase, ValueList *list)
{
    if (cut <= 0 || cut >= graph->layer_count) return;
    bool *read_beyond = memory_allocate(graph->value_count);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE || node->phase != phase || node->layer == LAYER_NONE) continue;
        if ((node->layer >= cut) == (phase == PHASE_FORWARD))
            for (int i = 0; i < node->input_count; i++) read_beyond[node->inputs[i]] = true;
    }
    for (ValueId v = 1; v < graph->value_count; v++) {
        const Value *value = graph_value(graph, v);
        if (!read_beyond[v] || !value->producer) continue;
        const Node *node = graph_node(graph, value->producer);
        if (node->phase == phase && node->layer != LAYER_NONE && (node->layer < cut) == (phase == PHASE_FORWARD))
            value_list_add(list, v);
    }
    free(read_beyond);
}

void stage_collect_boundaries(StageBuilder *builder)
{
    const Graph *graph = builder->graph;
    collect_crossing(graph, builder->first_layer, PHASE_FORWARD, &builder->receive_forward);
    collect_crossing(graph, builder->last_layer + 1, PHASE_FORWARD, &builder->send_forward);
    collect_crossing(graph, builder->last_layer + 1, PHASE_BACKWARD, &builder->receive_backward);
    collect_crossing(graph, builder->first_layer, PHASE_BACKWARD, &builder->send_backward);
    for (size_t i = 0; i < graph->output_count; i++) {
        const Value *value = graph_value(graph, graph->outputs[i].value);
        int layer = value->producer ? graph_node(graph, value->producer)->layer : LAYER_NONE;
        if (layer == LAYER_NONE ? stage_is_last(builder) : in_stage(builder, layer))
            value_list_add(&builder->outputs, graph->outputs[i].value);
    }
}

bool stage_has_loss(const StageBuilder *builder) { return builder->graph->loss && stage_is_last(builder); }

const Node *stage_update_of(const StageBuilder *builder, ValueId parameter, uint32_t *index)
{
    for (size_t i = 0; i < builder->update.count; i++) {
        const Node *node = graph_node(builder->graph, builder->update.nodes[i]);
        if (node->inputs[0] == parameter) {
            if (index) *index = (uint32_t)i;
            return node;
        }
    }
    return NULL;
}

/* Sets the holders, and drops the updates of all others. */
static void choose_holders(StageBuilder *builder)
{
    Graph *graph = builder->graph;
    ValueId *first = memory_allocate(graph->value_count * sizeof *first);
    builder->holder = memory_allocate(graph->value_count * sizeof *builder->holder);
    for (size_t i = 0; i < builder->parameters.count; i++) {
        ValueId value = builder->parameters.values[i], parameter = shared_parameter(graph, value);
        if (!first[parameter]) first[parameter] = value;
        builder->holder[value] = first[parameter];
    }
    size_t kept = 0;
    for (size_t i = 0; i < builder->update.count; i++) {
        ValueId updated = graph_node(graph, builder->update.nodes[i])->inputs[0];
        if (builder->holder[updated] == updated) builder->update.nodes[kept++] = builder->update.nodes[i];
    }
    builder->update.count = kept;
    free(first);
}

void stage_collect_parameters(StageBuilder *builder)
{
    Graph *graph = builder->graph;
    bool *used = memory_allocate(graph->value_count);
    const NodeList *lists[] = {&builder->forward, &builder->backward};
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < lists[l]->count; i++) {
            const Node *node = graph_node(graph, lists[l]->nodes[i]);
            for (int k = 0; k < node->input_count; k++) used[node->inputs[k]] = true;
        }
    for (ValueId v = 1; v < graph->value_count; v++)
        if (graph_value(graph, v)->role == ROLE_PARAMETER && used[v]) value_list_add(&builder->parameters, v);
    free(used);
    choose_holders(builder);
}
