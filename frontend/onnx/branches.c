#include "frontend/onnx/importer.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16, MAX_BRANCH_NODES = 1 << 18 };

/* The names of one branch, which may contain other branches. */
typedef struct BranchScope {
    const struct BranchScope *outer; /* NULL: the graph */
    StringMap names;                 /* of the branch -> renamed */
    const char **renamed;
    size_t renamed_count, renamed_capacity;
    const char *prefix;
    const char *condition;
    bool when;
    int depth;
} BranchScope;

typedef struct BranchExpander {
    Importer *importer;
    SourceNode *nodes;
    size_t count, capacity;
    size_t made; /* nodes of branches */
} BranchExpander;

static Arena *arena_of(const BranchExpander *expander) { return &expander->importer->arena; }

static bool refuse(const BranchExpander *expander, const Onnx__NodeProto *node, const char *problem)
{
    char object[512];
    snprintf(object, sizeof object, "node '%.400s'", node->name ? node->name : "");
    return diagnostics_error(expander->importer->diagnostics, EXIT_BAD_INPUT,
                             (Place){.file = expander->importer->graph->file, .object = object}, NULL, "%s", problem);
}

static bool is_if(const Onnx__NodeProto *node)
{
    return node->op_type && strcmp(node->op_type, "If") == 0 &&
           (!node->domain || !*node->domain || strcmp(node->domain, "ai.onnx") == 0);
}

static const Onnx__GraphProto *branch(const Onnx__NodeProto *node, const char *name)
{
    for (size_t i = 0; i < node->n_attribute; i++)
        if (node->attribute[i]->name && strcmp(node->attribute[i]->name, name) == 0) return node->attribute[i]->g;
    return NULL;
}

/* Resolves a name inside a branch: its own, that of an outer branch, or the graph's. */
static char *meant(const BranchScope *scope, const char *name)
{
    for (; scope; scope = scope->outer) {
        const uint32_t *number = string_map_find(&scope->names, name);
        if (number) return (char *)scope->renamed[*number];
    }
    return (char *)name;
}

static void rename_own(const BranchExpander *expander, BranchScope *scope, const char *name)
{
    if (!*name || !string_map_add(&scope->names, name, (uint32_t)scope->renamed_count)) return;
    const char *renamed = arena_format(arena_of(expander), "%s/%s", scope->prefix, name);
    array_push(scope->renamed, scope->renamed_count, scope->renamed_capacity, renamed);
}

static char **meant_names(const BranchExpander *expander, const BranchScope *scope, char *const *names, size_t count)
{
    char **result = arena_new_array(arena_of(expander), char *, count);
    for (size_t i = 0; i < count; i++) result[i] = meant(scope, names[i]);
    return result;
}

static bool add_node(BranchExpander *expander, SourceNode source, const BranchScope *scope);

/* Initializers of a branch are constants to it. */
static void add_initializer(BranchExpander *expander, const BranchScope *scope, Onnx__TensorProto *tensor)
{
    Arena *arena = arena_of(expander);
    Onnx__AttributeProto *value = arena_new(arena, Onnx__AttributeProto);
    onnx__attribute_proto__init(value);
    value->name = arena_string(arena, "value");
    value->has_type = true;
    value->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    value->t = tensor;
    Onnx__NodeProto *node = arena_new(arena, Onnx__NodeProto);
    onnx__node_proto__init(node);
    char *output = meant(scope, tensor->name);
    node->name = output;
    node->op_type = arena_string(arena, "Constant");
    node->attribute = arena_copy(arena, &value, sizeof value);
    node->output = arena_copy(arena, &output, sizeof output);
    node->n_attribute = node->n_output = 1;
    SourceNode source = {.proto = node, .condition_name = scope->condition, .when = scope->when};
    array_push(expander->nodes, expander->count, expander->capacity, source);
}

static bool add_branch(BranchExpander *expander, const Onnx__NodeProto *node, const Onnx__GraphProto *graph,
                       BranchScope *scope, const Onnx__FunctionProto *function, char **results)
{
    if (scope->depth > MAX_DEPTH) return refuse(expander, node, "stands in branches nested too deep");
    if (!graph || graph->n_output != node->n_output || graph->n_sparse_initializer)
        return refuse(expander, node, "has a branch that does not give its results");
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (graph->initializer[i]->name) rename_own(expander, scope, graph->initializer[i]->name);
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_output; k++) rename_own(expander, scope, graph->node[i]->output[k]);
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (graph->initializer[i]->name) add_initializer(expander, scope, graph->initializer[i]);
    for (size_t i = 0; i < graph->n_node; i++) {
        SourceNode source = {
            .proto = graph->node[i], .function = function, .condition_name = scope->condition, .when = scope->when};
        if (++expander->made > MAX_BRANCH_NODES) return refuse(expander, node, "has branches with too many nodes");
        if (!add_node(expander, source, scope)) return false;
    }
    for (size_t i = 0; i < graph->n_output; i++)
        results[i] = meant(scope, graph->output[i]->name ? graph->output[i]->name : "");
    return true;
}

/* The If itself: condition, then both branches' results. */
static bool add_if(BranchExpander *expander, const SourceNode *source, Onnx__NodeProto *node, const BranchScope *outer)
{
    Arena *arena = arena_of(expander);
    static const char *const attributes[2] = {"else_branch", "then_branch"};
    if (node->n_input != 1 || !*node->input[0]) return refuse(expander, node, "has no condition");
    char **inputs = arena_new_array(arena, char *, 1 + 2 * node->n_output);
    inputs[0] = node->input[0];
    for (int when = 0; when < 2; when++) {
        BranchScope scope = {
            .outer = outer,
            .prefix = arena_format(arena, "%s@%zu.%d", node->name ? node->name : "If", expander->count, when),
            .condition = node->input[0],
            .when = when,
            .depth = outer ? outer->depth + 1 : 1};
        bool ok = add_branch(expander, node, branch(node, attributes[when]), &scope, source->function,
                             inputs + 1 + (when ? 0 : node->n_output));
        string_map_free(&scope.names);
        free(scope.renamed);
        if (!ok) return false;
    }
    node->input = inputs;
    node->n_input = 1 + 2 * node->n_output;
    node->n_attribute = 0;
    return true;
}

static bool add_node(BranchExpander *expander, SourceNode source, const BranchScope *scope)
{
    if (scope || is_if(source.proto)) {
        Onnx__NodeProto *node = arena_copy(arena_of(expander), source.proto, sizeof *node);
        node->input = meant_names(expander, scope, node->input, node->n_input);
        node->output = meant_names(expander, scope, node->output, node->n_output);
        source.proto = node;
        if (is_if(node) && !add_if(expander, &source, node, scope)) return false;
    }
    array_push(expander->nodes, expander->count, expander->capacity, source);
    return true;
}

bool expand_branches(Importer *importer)
{
    BranchExpander expander = {.importer = importer};
    bool any = false, ok = true;
    for (size_t i = 0; i < importer->node_count; i++) any |= is_if(importer->nodes[i].proto);
    for (size_t i = 0; any && ok && i < importer->node_count; i++) ok = add_node(&expander, importer->nodes[i], NULL);
    if (any && ok) {
        importer->node_count = expander.count;
        importer->nodes = arena_copy(&importer->arena, expander.nodes, expander.count * sizeof *expander.nodes);
    }
    free(expander.nodes);
    return ok;
}
