/* Which nodes and values belong to a stage, and which values cross its ends. */
#include <stdlib.h>

#include "codegen/stage/stage_builder.h"
#include "graph/ops/operator.h"

static bool in_stage(const StageBuilder *builder, int layer)
{
    return layer >= builder->first_layer && layer <= builder->last_layer;
}

static bool stage_is_last(const StageBuilder *builder)
{
    return builder->last_layer == builder->graph->layer_count - 1;
}

static int ascending(const void *a, const void *b)
{
    NodeId x = *(const NodeId *)a, y = *(const NodeId *)b;
    return x < y ? -1 : x > y;
}

/* Takes the node that makes the value if it belongs to no layer (a function of the inputs, computed wherever it is
 * read). */
static void take_maker(const Graph *graph, ValueId value, bool *taken, NodeList *chosen)
{
    NodeId maker = graph_value(graph, value)->producer;
    const Node *node = graph_node(graph, maker);
    if (!maker || taken[node->outputs[0]] || node->layer != LAYER_NONE) return;
    taken[node->outputs[0]] = true;
    array_push(chosen->nodes, chosen->count, chosen->capacity, maker);
}

/* What the node touches; of a parameter also the one that shares it, and the gradient. */
static void visit_node(const StageBuilder *builder, const Node *node)
{
    const Graph *graph = builder->graph;
    ValueArrays *arrays = builder->index->arrays;
    for (int i = 0; i < node->input_count; i++) {
        ValueId value = node->inputs[i];
        value_arrays_visit(arrays, value);
        if (graph_value(graph, value)->role != ROLE_PARAMETER) continue;
        value_arrays_visit(arrays, shared_parameter(graph, value));
        value_arrays_visit(arrays, graph_gradient(graph, value));
    }
    for (int i = 0; i < node->output_count; i++) value_arrays_visit(arrays, node->outputs[i]);
}

/* The nodes of the stage's layers, and of those that belong to no layer what these need; ascending. */
static void choose_nodes(const StageBuilder *builder, NodeList *chosen)
{
    const Graph *graph = builder->graph;
    const StageIndex *index = builder->index;
    bool *taken = value_array_new(index->arrays, bool); /* of a node: its first output */
    for (size_t i = index->first_node[builder->first_layer]; i < index->first_node[builder->last_layer + 1]; i++)
        array_push(chosen->nodes, chosen->count, chosen->capacity, index->nodes[i]);
    for (size_t i = 0; i < graph->output_count && stage_is_last(builder); i++)
        take_maker(graph, graph->outputs[i].value, taken, chosen);
    for (size_t i = 0; i < chosen->count; i++) {
        const Node *node = graph_node(graph, chosen->nodes[i]);
        for (int k = 0; k < node->input_count; k++) take_maker(graph, node->inputs[k], taken, chosen);
        visit_node(builder, node);
    }
    if (chosen->count) qsort(chosen->nodes, chosen->count, sizeof *chosen->nodes, ascending);
    value_array_return(index->arrays, taken);
}

void stage_collect_nodes(StageBuilder *builder)
{
    NodeList chosen = {0};
    choose_nodes(builder, &chosen);
    for (size_t i = 0; i < chosen.count; i++) {
        Phase phase = graph_node(builder->graph, chosen.nodes[i])->phase;
        NodeList *list = &builder->nodes[phase == PHASE_FORWARD    ? SKY_LIST_FORWARD
                                         : phase == PHASE_BACKWARD ? SKY_LIST_BACKWARD
                                                                   : SKY_LIST_UPDATE];
        array_push(list->nodes, list->count, list->capacity, chosen.nodes[i]);
    }
    free(chosen.nodes);
}

const char *stage_call_name(const StageBuilder *builder, const LoweredCall *call)
{
    return arena_format(&builder->code->arena, "%s %s", graph_node(builder->graph, call->node)->name,
                        call->kernel->label);
}

void value_list_add(ValueList *list, ValueId value) { array_push(list->values, list->count, list->capacity, value); }

static void collect(const StageBuilder *builder, ValueId value, ValueList *list)
{
    value_arrays_visit(builder->index->arrays, value);
    value_list_add(list, value);
}

static void collect_crossing(const StageBuilder *builder, const Crossings *crossings, int cut, ValueList *list)
{
    for (size_t i = crossings->first[cut]; i < crossings->first[cut + 1]; i++)
        collect(builder, crossings->values[i], list);
}

void stage_collect_boundaries(StageBuilder *builder)
{
    const Graph *graph = builder->graph;
    const StageIndex *index = builder->index;
    int first = builder->first_layer, end = builder->last_layer + 1;
    collect_crossing(builder, &index->forward, first, &builder->receive_forward);
    collect_crossing(builder, &index->forward, end, &builder->send_forward);
    collect_crossing(builder, &index->backward, end, &builder->receive_backward);
    collect_crossing(builder, &index->backward, first, &builder->send_backward);
    for (size_t i = 0; i < graph->output_count; i++) {
        const Value *value = graph_value(graph, graph->outputs[i].value);
        int layer = value->producer ? graph_node(graph, value->producer)->layer : LAYER_NONE;
        if (layer == LAYER_NONE ? stage_is_last(builder) : in_stage(builder, layer))
            collect(builder, graph->outputs[i].value, &builder->outputs);
    }
}

bool stage_has_loss(const StageBuilder *builder) { return builder->graph->loss && stage_is_last(builder); }

const Node *stage_update_of(const StageBuilder *builder, ValueId parameter, uint32_t *index)
{
    uint32_t update = builder->update[parameter];
    if (update && index) *index = update - 1;
    return update ? graph_node(builder->graph, builder->nodes[SKY_LIST_UPDATE].nodes[update - 1]) : NULL;
}

/* Sets the holders and their updates, and drops the updates of all others. */
static void choose_holders(StageBuilder *builder)
{
    Graph *graph = builder->graph;
    ValueArrays *arrays = builder->index->arrays;
    ValueId *first = value_array_new(arrays, ValueId);
    builder->holder = value_array_new(arrays, ValueId);
    builder->update = value_array_new(arrays, uint32_t);
    for (size_t i = 0; i < builder->parameters.count; i++) {
        ValueId value = builder->parameters.values[i], parameter = shared_parameter(graph, value);
        if (!first[parameter]) first[parameter] = value;
        builder->holder[value] = first[parameter];
    }
    NodeList *updates = &builder->nodes[SKY_LIST_UPDATE];
    size_t kept = 0;
    for (size_t i = 0; i < updates->count; i++) {
        ValueId updated = graph_node(graph, updates->nodes[i])->inputs[0];
        if (builder->holder[updated] != updated) continue;
        updates->nodes[kept++] = updates->nodes[i];
        builder->update[updated] = (uint32_t)kept;
    }
    updates->count = kept;
    value_array_return(arrays, first);
}

void stage_collect_parameters(StageBuilder *builder)
{
    Graph *graph = builder->graph;
    bool *used = value_array_new(builder->index->arrays, bool);
    for (int list = SKY_LIST_FORWARD; list <= SKY_LIST_BACKWARD; list++)
        for (size_t i = 0; i < builder->nodes[list].count; i++) {
            const Node *node = graph_node(graph, builder->nodes[list].nodes[i]);
            for (int k = 0; k < node->input_count; k++) {
                ValueId value = node->inputs[k];
                if (used[value] || graph_value(graph, value)->role != ROLE_PARAMETER) continue;
                used[value] = true;
                value_list_add(&builder->parameters, value);
            }
        }
    ValueList *parameters = &builder->parameters;
    if (parameters->count) qsort(parameters->values, parameters->count, sizeof *parameters->values, ascending);
    value_array_return(builder->index->arrays, used);
    choose_holders(builder);
}
