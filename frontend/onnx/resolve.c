#include <string.h>

#include "frontend/onnx/importer.h"
#include "frontend/onnx/normalize.h"

enum { NEWEST_OPSET = 28, NEWEST_IR = 14 }; /* that skycc was tested with: newer ones get a warning */

Place source_place(const Importer *importer, const SourceNode *node, char text[static 512])
{
    const char *op = node->proto->op_type ? node->proto->op_type : "";
    const char *domain = node->proto->domain ? node->proto->domain : "";
    snprintf(text, 512, "node '%.300s' (%.60s%s%.100s, opset %lld)", node->name, domain, *domain ? "." : "", op,
             (long long)node->opset);
    return (Place){.file = importer->graph->file, .object = text};
}

static bool refuse(const Importer *importer, const char *what, const char *name, const char *problem)
{
    char object[512];
    snprintf(object, sizeof object, "%s '%.400s'", what, name);
    return diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT,
                             (Place){.file = importer->graph->file, .object = object}, NULL, "%s", problem);
}

/* ---- Names ---- */

static uint32_t declare(Importer *importer, const char *name, SymbolKind kind, size_t index)
{
    uint32_t id = (uint32_t)importer->symbol_count;
    Symbol symbol = {.name = name, .kind = kind, .index = (uint32_t)index};
    array_push(importer->symbols, importer->symbol_count, importer->symbol_capacity, symbol);
    if (string_map_add(&importer->names, name, id)) return id;
    /* Before IR version 4 every initializer is an input as well: a default value, which training replaces. */
    const Symbol *first = &importer->symbols[*string_map_find(&importer->names, name)];
    if (first->kind == SYMBOL_INITIALIZER && kind == SYMBOL_INPUT) return 0;
    refuse(importer, "value", name, "is defined twice");
    return 0;
}

static bool declare_inputs(Importer *importer)
{
    const Onnx__GraphProto *graph = importer->proto;
    int errors = importer->diagnostics->errors;
    if (graph->n_sparse_initializer)
        refuse(importer, "graph", graph->name ? graph->name : "", "has sparse initializers, which are not supported");
    for (size_t i = 0; i < graph->n_initializer; i++)
        declare(importer, graph->initializer[i]->name, SYMBOL_INITIALIZER, i);
    for (size_t i = 0; i < graph->n_input; i++) {
        const char *name = graph->input[i]->name;
        if (!name || !*name)
            refuse(importer, "input", "", "has no name");
        else
            declare(importer, name, SYMBOL_INPUT, i);
    }
    return importer->diagnostics->errors == errors;
}

/* The version among the imports; 0 if they lack the domain. */
static int64_t imported_version(Onnx__OperatorSetIdProto *const *imports, size_t count, const char *domain)
{
    if (strcmp(domain, "ai.onnx") == 0) domain = "";
    for (size_t i = 0; i < count; i++) {
        const char *imported = imports[i]->domain ? imports[i]->domain : "";
        if (strcmp(imported, "ai.onnx") == 0) imported = "";
        if (strcmp(imported, domain) == 0) return imports[i]->version;
    }
    return 0;
}

/* A function lists the opsets that it uses; the model's list applies to the others. */
static int64_t opset_of(const Importer *importer, const Onnx__FunctionProto *function, const char *domain)
{
    const Onnx__ModelProto *model = importer->model->onnx.proto;
    int64_t version = function ? imported_version(function->opset_import, function->n_opset_import, domain) : 0;
    return version ? version : imported_version(model->opset_import, model->n_opset_import, domain);
}

static bool check_opset(Importer *importer)
{
    Place place = PLACE_FILE(importer->graph->file);
    int64_t opset = importer->model->opset = opset_of(importer, NULL, "");
    if (opset == 0 && !importer->model->onnx.proto->n_opset_import)
        return diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT, place, NULL,
                                 "does not say which opset it uses");
    if (opset < 0)
        return diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT, place, NULL,
                                 "uses opset %lld, which does not exist", (long long)opset);
    int64_t ir = importer->model->onnx.proto->ir_version;
    if (ir > NEWEST_IR)
        diagnostics_warning(
            importer->diagnostics, place, NULL,
            "has IR version %lld, whose meaning may differ from version %d, the newest that skycc knows", (long long)ir,
            NEWEST_IR);
    if (opset > NEWEST_OPSET)
        diagnostics_warning(importer->diagnostics, place, NULL,
                            "uses opset %lld, whose operators may differ from opset %d, the newest that skycc knows",
                            (long long)opset, NEWEST_OPSET);
    return true;
}

/* ---- Nodes ---- */

static const char *unsupported_hint(Importer *importer, const Onnx__NodeProto *node, const char *domain)
{
    const char *op = node->op_type ? node->op_type : "";
    const char *hint = model_hint(importer);
    if (hint) return hint;
    if (strstr(op, "QLinear") || strcasestr(op, "quantize") || strstr(op, "Integer") || strcmp(op, "QAttention") == 0 ||
        strcmp(op, "MatMulNBits") == 0)
        return "the model is quantised: export it before it is, quantised weights are not trained";
    if (*domain && strcmp(domain, "ai.onnx") != 0)
        return "export the model with ONNX's own operators, before any optimiser replaces them";
    for (size_t i = 0; i < node->n_attribute; i++)
        if (node->attribute[i]->g) return "export the model without control flow: traced, for fixed shapes";
    return other_models_hint;
}

static void declare_node(Importer *importer, size_t index)
{
    SourceNode *node = &importer->nodes[index];
    const Onnx__NodeProto *proto = node->proto;
    node->name = proto->name && *proto->name ? proto->name : NULL;
    if (!node->name && proto->n_output && *proto->output[0])
        node->name = arena_format(&importer->arena, "#%zu -> %s", index, proto->output[0]);
    if (!node->name) node->name = arena_format(&importer->arena, "#%zu", index);
    const char *domain = proto->domain ? proto->domain : "";
    node->opset = opset_of(importer, node->function, domain);
    node->rule = normalization_find(domain, proto->op_type ? proto->op_type : "");
    node->outputs = arena_new_array(&importer->arena, uint32_t, proto->n_output);
    for (size_t i = 0; i < proto->n_output; i++)
        if (*proto->output[i]) node->outputs[i] = declare(importer, proto->output[i], SYMBOL_NODE, index);
}

static bool same_operator(const Onnx__NodeProto *a, const Onnx__NodeProto *b)
{
    return strcmp(a->op_type ? a->op_type : "", b->op_type ? b->op_type : "") == 0 &&
           strcmp(a->domain ? a->domain : "", b->domain ? b->domain : "") == 0;
}

/* Reports every operator that is not supported, once, at its first node. Nodes of branches are reported later, if the
 * branch is imported (import_model.c). */
static void report_unsupported(Importer *importer)
{
    enum { MOST = 64 };
    const SourceNode *first[MOST];
    size_t found = 0, nodes[MOST];
    for (size_t i = 0; i < importer->node_count; i++) {
        const SourceNode *node = &importer->nodes[i];
        size_t k = 0;
        if (node->rule || node->condition_name) continue;
        while (k < found && !same_operator(first[k]->proto, node->proto)) k++;
        if (k == MOST) continue;
        if (k == found) first[found] = node, nodes[found++] = 0;
        nodes[k]++;
    }
    for (size_t k = 0; k < found; k++) {
        char place[512];
        const Onnx__NodeProto *proto = first[k]->proto;
        const char *hint = unsupported_hint(importer, proto, proto->domain ? proto->domain : "");
        Place where = source_place(importer, first[k], place);
        if (nodes[k] == 1)
            diagnostics_error(importer->diagnostics, EXIT_UNSUPPORTED_OPERATOR, where, hint,
                              "this operator is not supported");
        else
            diagnostics_error(importer->diagnostics, EXIT_UNSUPPORTED_OPERATOR, where, hint,
                              "this operator is not supported (the first of %zu such nodes)", nodes[k]);
    }
}

static void resolve_inputs(Importer *importer, SourceNode *node)
{
    node->inputs = arena_new_array(&importer->arena, uint32_t, node->proto->n_input);
    if (node->condition_name) {
        const uint32_t *condition = string_map_find(&importer->names, node->condition_name);
        node->condition = condition ? *condition : 0; /* the If reads it too, and says if nothing produces it */
    }
    for (size_t i = 0; i < node->proto->n_input; i++) {
        const char *name = node->proto->input[i];
        if (!*name) continue;
        const uint32_t *symbol = string_map_find(&importer->names, name);
        char place[512];
        if (symbol)
            node->inputs[i] = *symbol;
        else
            diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT, source_place(importer, node, place), NULL,
                              "reads '%s', which nothing produces", name);
    }
}

static bool check_outputs(Importer *importer)
{
    const Onnx__GraphProto *graph = importer->proto;
    int errors = importer->diagnostics->errors;
    FREED_WITH(string_map_free) StringMap seen = {0};
    if (!graph->n_output) refuse(importer, "graph", graph->name ? graph->name : "", "has no outputs");
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *name = graph->output[i]->name ? graph->output[i]->name : "";
        if (!string_map_find(&importer->names, name))
            refuse(importer, "output", name, "is produced by nothing");
        else if (!string_map_add(&seen, name, 0))
            refuse(importer, "output", name, "is listed twice");
    }
    return importer->diagnostics->errors == errors;
}

/* ---- Order ---- */

typedef enum Visit { NEW, OPEN, DONE } Visit;

typedef struct Frame {
    uint32_t node;
    size_t next_input;
} Frame;

/* Depth first, in the order of the file: files that are in order stay as they are. The stack is explicit, because
 * chains of nodes may be as long as the file. */
static bool order_from(Importer *importer, uint32_t root, unsigned char *visits, Frame *stack, size_t *ordered)
{
    size_t depth = 0;
    stack[depth++] = (Frame){root, 0};
    visits[root] = OPEN;
    while (depth) {
        Frame *frame = &stack[depth - 1];
        const SourceNode *node = &importer->nodes[frame->node];
        if (frame->next_input > node->proto->n_input) {
            visits[frame->node] = DONE;
            importer->order[(*ordered)++] = frame->node;
            depth--;
            continue;
        }
        size_t input = frame->next_input++; /* the condition follows the last input */
        const Symbol *symbol = &importer->symbols[input < node->proto->n_input ? node->inputs[input] : node->condition];
        if (symbol->kind != SYMBOL_NODE || visits[symbol->index] == DONE) continue;
        char place[512];
        if (visits[symbol->index] == OPEN)
            return diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT, source_place(importer, node, place), NULL,
                                     "reads '%s', which depends on this node's own output", symbol->name);
        visits[symbol->index] = OPEN;
        stack[depth++] = (Frame){symbol->index, 0};
    }
    return true;
}

static bool order_nodes(Importer *importer)
{
    size_t count = importer->node_count, ordered = 0;
    importer->order = arena_new_array(&importer->arena, uint32_t, count);
    unsigned char *visits = arena_new_array(&importer->arena, unsigned char, count);
    Frame *stack = arena_new_array(&importer->arena, Frame, count);
    for (uint32_t i = 0; i < count; i++)
        if (visits[i] == NEW && !order_from(importer, i, visits, stack, &ordered)) return false;
    return true;
}

/* ---- Dependencies of outputs ---- */

/* What a Cast casts to, as a number or, before opset 6, as a word. */
static DType cast_target(const Onnx__AttributeProto *to)
{
    if (to->s.len) return onnx_dtype(onnx_data_type_named((const char *)to->s.data, to->s.len));
    return to->i < 0 || to->i > INT32_MAX ? DTYPE_NONE : onnx_dtype((int32_t)to->i);
}

static bool stops_gradients(const SourceNode *node)
{
    if (!node->rule || node->rule->gradients == STOPS_GRADIENTS) return true;
    if (node->rule->apply != normalize_cast) return false;
    for (size_t i = 0; i < node->proto->n_attribute; i++) {
        const Onnx__AttributeProto *attribute = node->proto->attribute[i];
        if (attribute->name && strcmp(attribute->name, "to") == 0) return !dtype_is_float(cast_target(attribute));
    }
    return true;
}

static void mark_needed(Importer *importer)
{
    for (size_t i = 0; i < importer->proto->n_output; i++) {
        Symbol *symbol = &importer->symbols[*string_map_find(&importer->names, importer->proto->output[i]->name)];
        symbol->needed = symbol->trained = true;
    }
    for (size_t i = importer->node_count; i-- > 0;) {
        SourceNode *node = &importer->nodes[importer->order[i]];
        bool trained = false;
        for (size_t j = 0; j < node->proto->n_output; j++) {
            node->needed |= importer->symbols[node->outputs[j]].needed;
            trained |= importer->symbols[node->outputs[j]].trained;
        }
        if (!node->needed) continue;
        importer->symbols[node->condition].needed = true;
        trained = trained && !stops_gradients(node);
        for (size_t j = 0; j < node->proto->n_input; j++) {
            Symbol *symbol = &importer->symbols[node->inputs[j]];
            if (!node->inputs[j]) continue;
            symbol->needed = true;
            symbol->trained |= trained;
        }
    }
}

bool resolve_names(Importer *importer)
{
    array_push(importer->symbols, importer->symbol_count, importer->symbol_capacity, (Symbol){.kind = SYMBOL_INPUT});
    if (!check_opset(importer)) return false;
    bool ok = declare_inputs(importer);
    int errors = importer->diagnostics->errors;
    if (!expand_functions(importer) || !expand_branches(importer)) return false;
    for (size_t i = 0; i < importer->node_count; i++) declare_node(importer, i);
    report_unsupported(importer);
    for (size_t i = 0; i < importer->node_count; i++) resolve_inputs(importer, &importer->nodes[i]);
    ok = check_outputs(importer) && ok && importer->diagnostics->errors == errors;
    if (!ok || !order_nodes(importer)) return false;
    mark_needed(importer);
    return true;
}
