/* Expands the model's own functions: a call becomes the nodes of the function's body, which may call other functions. A
 * name inside a body becomes the call's name followed by its own. Attributes in a body may refer to the call's.
 *
 * The result is bounded, because every level of nested calls may double it. */
#include <stdlib.h>
#include <string.h>

#include "frontend/onnx/importer.h"

enum {
    MAX_CALL_DEPTH = 32,
    MAX_NODES = 1 << 18, /* by expansion, without the nodes of the graph itself */
    NAME_BYTES = 64,     /* what a name costs in addition to its letters */
};
#define MAX_EXPANSION_BYTES ((size_t)64 << 20)

/* Fields that the installed onnx.proto may be too old to know. */
enum { NODE_OVERLOAD = 8, FUNCTION_ATTRIBUTE_PROTO = 11, FUNCTION_OVERLOAD = 13 };

typedef struct Function {
    const Onnx__FunctionProto *proto;
    Onnx__AttributeProto **defaults; /* values of attributes that a call does not set */
    size_t default_count;
    bool prepared, open; /* open: being expanded */
} Function;

typedef struct Expander {
    Importer *importer;
    Function *functions;
    StringMap by_name; /* "domain\nname\noverload" -> functions */
    SourceNode *nodes;
    size_t node_count, node_capacity;
    size_t made, made_bytes; /* nodes and calls by expansion, and what they take */
} Expander;

/* A body that is being expanded. */
typedef struct Scope {
    Expander *expander;
    const Onnx__FunctionProto *function;
    const Onnx__NodeProto *call; /* with the names and attributes of its surroundings */
    const char *name;            /* of the call */
    size_t number;               /* of the call: makes names unlike those of other calls */
    StringMap numbers;           /* names of the body -> actual */
    const char **actual;
    size_t actual_count, actual_capacity;
    int depth;
} Scope;

static bool refuse(const Expander *expander, const char *what, const char *name, const char *problem)
{
    char object[512];
    snprintf(object, sizeof object, "%s '%.400s'", what, name);
    return diagnostics_error(expander->importer->diagnostics, EXIT_BAD_INPUT,
                             (Place){.file = expander->importer->graph->file, .object = object}, NULL, "%s", problem);
}

static Arena *arena_of(const Expander *expander) { return &expander->importer->arena; }

/* Counts what expansion makes; false after reporting too much of it. */
static bool claim(Expander *expander, const Onnx__NodeProto *call, size_t bytes)
{
    expander->made_bytes += bytes;
    if (++expander->made <= MAX_NODES && expander->made_bytes <= MAX_EXPANSION_BYTES) return true;
    return refuse(expander, "function", call->op_type, "expands to too many nodes, it or what it calls");
}

/* ---- Functions ---- */

/* The payload of field `number` of `message`, which must be a string, bytes or message, from `*from` on among the
 * fields that the installed schema does not know; NULL if there is none left. */
static const unsigned char *next_unknown(const ProtobufCMessage *message, uint32_t number, unsigned *from, size_t *size)
{
    for (; *from < message->n_unknown_fields; (*from)++) {
        const ProtobufCMessageUnknownField *field = &message->unknown_fields[*from];
        if (field->tag != number) continue;
        const unsigned char *payload = wire_payload(field->data, field->len, size);
        if (field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED || !payload) continue;
        (*from)++;
        return payload;
    }
    return NULL;
}

static const char *overload_of(const Expander *expander, const ProtobufCMessage *message, uint32_t number)
{
    unsigned from = 0;
    size_t size;
    const unsigned char *text = next_unknown(message, number, &from, &size);
    return text ? arena_string_n(arena_of(expander), (const char *)text, size) : "";
}

static const char *key_of(const Expander *expander, const char *domain, const char *name, const char *overload)
{
    if (!domain || strcmp(domain, "ai.onnx") == 0) domain = "";
    return arena_format(arena_of(expander), "%s\n%s\n%s", domain, name ? name : "", overload);
}

static bool index_functions(Expander *expander)
{
    const Onnx__ModelProto *model = expander->importer->model->onnx.proto;
    expander->functions = arena_new_array(arena_of(expander), Function, model->n_functions);
    for (size_t i = 0; i < model->n_functions; i++) {
        const Onnx__FunctionProto *function = model->functions[i];
        const char *name = function->name ? function->name : "";
        expander->functions[i].proto = function;
        const char *overload = overload_of(expander, &function->base, FUNCTION_OVERLOAD);
        if (!string_map_add(&expander->by_name, key_of(expander, function->domain, name, overload), (uint32_t)i))
            return refuse(expander, "function", name, "is defined twice");
    }
    return true;
}

static Function *find_function(const Expander *expander, const Onnx__NodeProto *node)
{
    if (!expander->by_name.count) return NULL;
    const char *overload = overload_of(expander, &node->base, NODE_OVERLOAD);
    const uint32_t *found =
        string_map_find(&expander->by_name, key_of(expander, node->domain, node->op_type, overload));
    return found ? &expander->functions[*found] : NULL;
}

static bool read_defaults(Expander *expander, Function *function)
{
    const ProtobufCMessage *message = &function->proto->base;
    OnnxModel *model = &expander->importer->model->onnx;
    ProtobufCAllocator allocator = onnx_allocator(&model->arena);
    if (function->prepared) return true;
    function->prepared = true;
    function->defaults = arena_new_array(arena_of(expander), Onnx__AttributeProto *, message->n_unknown_fields);
    size_t size;
    unsigned from = 0;
    for (const unsigned char *data; (data = next_unknown(message, FUNCTION_ATTRIBUTE_PROTO, &from, &size));) {
        if (!wire_scan(data, size, &onnx__attribute_proto__descriptor, model->path, expander->importer->diagnostics))
            return false;
        Onnx__AttributeProto *attribute = onnx__attribute_proto__unpack(&allocator, size, data);
        if (!attribute || !attribute->name)
            return refuse(expander, "function", function->proto->name, "has an attribute that is none");
        function->defaults[function->default_count++] = attribute;
    }
    return true;
}

/* ---- Names ---- */

static bool bind(Scope *scope, const char *name, const char *actual)
{
    if (!string_map_add(&scope->numbers, name, (uint32_t)scope->actual_count)) return false;
    array_push(scope->actual, scope->actual_count, scope->actual_capacity, actual);
    return true;
}

static char *actual_name(Scope *scope, const char *name)
{
    if (!*name) return (char *)name;
    const uint32_t *number = string_map_find(&scope->numbers, name);
    if (number) return (char *)scope->actual[*number];
    char *made = arena_format(arena_of(scope->expander), "%s@%zu/%s", scope->name, scope->number, name);
    bind(scope, name, made);
    return made;
}

static char **actual_names(Scope *scope, char *const *names, size_t count)
{
    char **result = arena_new_array(arena_of(scope->expander), char *, count);
    for (size_t i = 0; i < count; i++) result[i] = actual_name(scope, names[i]);
    return result;
}

/* ---- Attributes ---- */

static const Onnx__AttributeProto *find_attribute(Onnx__AttributeProto *const *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (list[i]->name && strcmp(list[i]->name, name) == 0) return list[i];
    return NULL;
}

/* The attributes of a node of the body. The call's attributes, or the function's defaults, replace references; a
 * reference to neither is left out. */
static void resolve_attributes(Scope *scope, const Function *function, Onnx__NodeProto *node)
{
    Arena *arena = arena_of(scope->expander);
    Onnx__AttributeProto **resolved = arena_new_array(arena, Onnx__AttributeProto *, node->n_attribute);
    size_t count = 0;
    for (size_t i = 0; i < node->n_attribute; i++) {
        Onnx__AttributeProto *attribute = node->attribute[i];
        const char *reference = attribute->ref_attr_name;
        if (reference && *reference) {
            const Onnx__NodeProto *call = scope->call;
            const Onnx__AttributeProto *meant = find_attribute(call->attribute, call->n_attribute, reference);
            if (!meant) meant = find_attribute(function->defaults, function->default_count, reference);
            if (!meant) continue;
            char *name = attribute->name;
            attribute = arena_copy(arena, meant, sizeof *meant);
            attribute->name = name;
        }
        resolved[count++] = attribute;
    }
    node->attribute = resolved;
    node->n_attribute = count;
}

/* ---- Expansion ---- */

static bool add_nodes(Expander *expander, const Onnx__NodeProto *proto, SourceNode node, int depth);

/* A function may return its own inputs. */
static bool pass_on(Scope *scope, char *input, char *output)
{
    Expander *expander = scope->expander;
    Onnx__NodeProto *node = arena_new(arena_of(expander), Onnx__NodeProto);
    onnx__node_proto__init(node);
    node->op_type = (char *)"Identity";
    node->name = (char *)scope->name;
    node->input = arena_copy(arena_of(expander), &input, sizeof input);
    node->output = arena_copy(arena_of(expander), &output, sizeof output);
    node->n_input = node->n_output = 1;
    return claim(expander, scope->call, sizeof *node) && add_nodes(expander, node, (SourceNode){0}, scope->depth);
}

static bool bind_parameters(Scope *scope)
{
    const Onnx__FunctionProto *function = scope->function;
    const Onnx__NodeProto *call = scope->call;
    if (call->n_input > function->n_input || call->n_output > function->n_output)
        return refuse(scope->expander, "node", scope->name, "gives the function it calls too many inputs or outputs");
    for (size_t i = 0; i < function->n_input; i++)
        if (!bind(scope, function->input[i], i < call->n_input ? call->input[i] : ""))
            return refuse(scope->expander, "function", function->name, "has two inputs of the same name");
    for (size_t i = 0; i < call->n_output; i++) {
        if (!*call->output[i] || bind(scope, function->output[i], call->output[i])) continue;
        if (!pass_on(scope, actual_name(scope, function->output[i]), call->output[i])) return false;
    }
    return true;
}

static bool add_body(Scope *scope, const Function *function)
{
    Expander *expander = scope->expander;
    Arena *arena = arena_of(expander);
    for (size_t i = 0; i < scope->function->n_node; i++) {
        Onnx__NodeProto *node = arena_copy(arena, scope->function->node[i], sizeof *node);
        size_t names = node->n_input + node->n_output;
        size_t bytes = sizeof(SourceNode) + sizeof *node + node->n_attribute * sizeof(Onnx__AttributeProto) +
                       (names + 1) * (strlen(scope->name) + NAME_BYTES);
        for (size_t k = 0; k < names; k++)
            bytes += strlen(k < node->n_input ? node->input[k] : node->output[k - node->n_input]);
        if (!claim(expander, scope->call, bytes)) return false;
        const char *name = node->name && *node->name ? node->name : arena_format(arena, "#%zu", i);
        node->name = arena_format(arena, "%s/%s", scope->name, name);
        node->input = actual_names(scope, node->input, node->n_input);
        node->output = actual_names(scope, node->output, node->n_output);
        resolve_attributes(scope, function, node);
        if (!add_nodes(expander, node, (SourceNode){.function = scope->function}, scope->depth)) return false;
    }
    return true;
}

static bool expand_call(Expander *expander, Function *function, const Onnx__NodeProto *call, int depth)
{
    const char *name = call->name && *call->name ? call->name : call->op_type;
    if (function->open) return refuse(expander, "function", function->proto->name, "calls itself");
    if (depth > MAX_CALL_DEPTH) return refuse(expander, "node", name, "calls functions nested too deep");
    size_t names = function->proto->n_input + function->proto->n_output;
    if (!claim(expander, call, names * NAME_BYTES) || !read_defaults(expander, function)) return false;
    Scope scope = {.expander = expander,
                   .function = function->proto,
                   .call = call,
                   .name = name,
                   .number = expander->made,
                   .depth = depth};
    function->open = true;
    bool ok = bind_parameters(&scope) && add_body(&scope, function);
    function->open = false;
    string_map_free(&scope.numbers);
    free(scope.actual);
    return ok;
}

/* Adds the node, or the body of the function that it calls. `depth` is that of the body that contains the node. */
static bool add_nodes(Expander *expander, const Onnx__NodeProto *proto, SourceNode node, int depth)
{
    Function *function = find_function(expander, proto);
    if (function) return expand_call(expander, function, proto, depth + 1);
    node.proto = proto;
    array_push(expander->nodes, expander->node_count, expander->node_capacity, node);
    return true;
}

bool expand_functions(Importer *importer)
{
    const Onnx__GraphProto *graph = importer->proto;
    Expander expander = {.importer = importer};
    bool ok = index_functions(&expander);
    for (size_t i = 0; ok && i < graph->n_node; i++)
        ok = add_nodes(&expander, graph->node[i], (SourceNode){.number = i + 1}, 0);
    importer->node_count = expander.node_count;
    importer->nodes = arena_copy(&importer->arena, expander.nodes, expander.node_count * sizeof *expander.nodes);
    string_map_free(&expander.by_name);
    free(expander.nodes);
    return ok;
}
