#include "graph/analysis/blocks.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 100000 };

/* The length of what stands before the first component that is a number, the dot included, and that number; 0: none. */
static size_t numbered_prefix(const char *name, uint32_t *number)
{
    for (const char *component = name; *component;
         component += strcspn(component, "."), component += *component == '.') {
        size_t digits = strspn(component, "0123456789");
        if (!digits || digits > 5 || component[digits] != '.' || component == name) continue;
        *number = (uint32_t)strtoul(component, NULL, 10);
        return *number < MOST_BLOCKS ? (size_t)(component - name) : 0;
    }
    return 0;
}

static const char *name_of(const Graph *graph, ValueId parameter)
{
    const Value *value = graph_value(graph, shared_parameter(graph, parameter));
    return value->use ? value->use : value->name;
}

typedef struct Prefix {
    const char *name;
    size_t length, count;
} Prefix;

/* The prefix that most parameters' names have before a number. */
static Prefix common_prefix(const Graph *graph)
{
    Prefix *all = NULL, most = {0};
    size_t count = 0, capacity = 0;
    uint32_t number;
    for (ValueId v = 1; v < graph->value_count; v++) {
        if (graph_value(graph, v)->role != ROLE_PARAMETER) continue;
        Prefix prefix = {.name = name_of(graph, v)};
        prefix.length = numbered_prefix(prefix.name, &number);
        size_t i = 0;
        while (i < count && (all[i].length != prefix.length || memcmp(all[i].name, prefix.name, prefix.length) != 0))
            i++;
        if (!prefix.length) continue;
        if (i == count) array_push(all, count, capacity, prefix);
        if (++all[i].count > most.count) most = all[i];
    }
    free(all);
    return most;
}

/* The block by its name; false if the name has none. */
static bool block_by_name(const char *name, const Prefix *prefix, uint32_t *block)
{
    uint32_t number;
    size_t length = numbered_prefix(name, &number);
    if (!length || length != prefix->length || memcmp(name, prefix->name, length) != 0) return false;
    *block = number + 1;
    return true;
}

/* Per value: the first layer that reads the parameter; INT_MAX: none. To be freed. */
static int *first_layers(const Graph *graph)
{
    int *layers = memory_allocate(graph->value_count * sizeof *layers);
    for (size_t v = 0; v < graph->value_count; v++) layers[v] = INT_MAX;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        bool reads = node->op != OP_NONE && node->phase == PHASE_FORWARD && node->layer != LAYER_NONE;
        for (int i = 0; reads && i < node->input_count; i++)
            if (layers[node->inputs[i]] > node->layer) layers[node->inputs[i]] = node->layer;
    }
    return layers;
}

uint32_t blocks_number(const Graph *graph, uint32_t *blocks)
{
    const Prefix prefix = common_prefix(graph);
    int *layers = first_layers(graph), first = INT_MAX, last = -1;
    uint32_t count = 0, block;
    if (prefix.count)
        for (ValueId v = 1; v < graph->value_count; v++) {
            if (graph_value(graph, v)->role != ROLE_PARAMETER || layers[v] == INT_MAX ||
                !block_by_name(name_of(graph, v), &prefix, &block))
                continue;
            if (block > count) count = block;
            if (layers[v] < first) first = layers[v];
            if (layers[v] > last) last = layers[v];
        }
    for (ValueId v = 1; count && v < graph->value_count; v++) {
        if (graph_value(graph, v)->role != ROLE_PARAMETER) continue;
        ValueId shared = shared_parameter(graph, v);
        if (!block_by_name(name_of(graph, v), &prefix, &blocks[v])) blocks[v] = layers[shared] > last ? count + 1 : 0;
    }
    free(layers);
    return count;
}
