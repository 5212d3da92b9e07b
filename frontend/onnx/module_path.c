#include "frontend/onnx/importer.h"

#include <stdlib.h>
#include <string.h>

#include "base/parts.h"
#include "frontend/onnx/model.h"

/* Fields that the installed onnx.proto may be too old to know. */
enum { VALUE_METADATA = 4, NODE_METADATA = 9, GRAPH_METADATA = 16 };

static const char *metadata(Arena *arena, const ProtobufCMessage *message, uint32_t tag, const char *key)
{
    for (unsigned i = 0; i < message->n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *field = &message->unknown_fields[i];
        size_t size;
        const unsigned char *payload = wire_payload(field->data, field->len, &size);
        if (field->tag != tag || field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED || !payload) continue;
        ProtobufCAllocator allocator = onnx_allocator(arena);
        const Onnx__StringStringEntryProto *entry = onnx__string_string_entry_proto__unpack(&allocator, size, payload);
        if (entry && entry->key && entry->value && strcmp(entry->key, key) == 0) return entry->value;
    }
    return NULL;
}

const char *node_metadata(Arena *arena, const Onnx__NodeProto *node, const char *key)
{
    return metadata(arena, &node->base, NODE_METADATA, key);
}

const char *value_kind(Arena *arena, const Onnx__ValueInfoProto *value)
{
    const char *kind = metadata(arena, &value->base, VALUE_METADATA, "pkg.torch.export.graph_signature.InputSpec.kind");
    return kind ? kind : "";
}

const char *folded_from(Arena *arena, const Onnx__ValueInfoProto *value)
{
    return metadata(arena, &value->base, VALUE_METADATA, "pkg.onnxscript.optimizer.folded_from");
}

const char *graph_signature(Arena *arena, const Onnx__GraphProto *graph)
{
    return metadata(arena, &graph->base, GRAPH_METADATA, "pkg.torch.export.ExportedProgram.graph_signature");
}

/* The signature has lines such as "b_mask: BUFFER target='m.mask' persistent=True". */
static bool signature_says(const Importer *importer, const char *name, size_t length, const char *kind)
{
    static const char target[] = " target='";
    const char *found = importer->signature, *text = found;
    while (found && (found = strstr(found, target))) {
        size_t before = (size_t)(found - text), word = strlen(kind);
        found += sizeof target - 1;
        if (strncmp(found, name, length) == 0 && found[length] == '\'')
            return before >= word && memcmp(text + before - word, kind, word) == 0;
    }
    return false;
}

/* "softplus_4" is one of {"exp", "softplus"}: numbers tell calls apart. */
static bool is_call_of(const char *name, size_t length, const char *const *words)
{
    while (length && (name[length - 1] == '_' || (name[length - 1] >= '0' && name[length - 1] <= '9'))) length--;
    for (; *words; words++)
        if (strlen(*words) == length && memcmp(*words, name, length) == 0) return true;
    return false;
}

FoldKind fold_kind(Importer *importer, const char *name, const char *sources, const char **parameter)
{
    static const char *const fills[] = {"zeros",    "ones",     "full",      "zeros_like",    "ones_like", "full_like",
                                        "new_ones", "new_full", "new_zeros", "scalar_tensor", "arange",    NULL},
                             *const indices[] = {"embedding", "gather", "index", "index_select", NULL},
                             *const positions[] = {"arange", NULL},
                             *const arithmetic[] = {"add",        "sub",      "rsub",       "mul",    "div",  "neg",
                                                    "pow",        "abs",      "exp",        "log",    "sqrt", "rsqrt",
                                                    "sigmoid",    "tanh",     "silu",       "gelu",   "relu", "linear",
                                                    "layer_norm", "softmax",  "matmul",     "mm",     "bmm",  "addmm",
                                                    "sum",        "mean",     "var",        "einsum", "norm", "clamp",
                                                    "square",     "softplus", "reciprocal", NULL};
    /* Nothing that indices go through. */
    static const char *const layers[] = {"linear", "layer_norm", "softmax", "matmul", "mm",      "bmm",  "addmm",
                                         "gelu",   "relu",       "silu",    "tanh",   "sigmoid", "norm", NULL};
    bool layered = false, looks_up = is_call_of(name, strlen(name), indices),
         filled = is_call_of(name, strlen(name), fills), computes = false, counts = false;
    *parameter = NULL;
    for (const char *start = sources, *end; (start = strchr(start, '\'')) && (end = strchr(++start, '\''));
         start = end + 1) {
        size_t length = (size_t)(end - start);
        bool named = importer->signature ? signature_says(importer, start, length, "PARAMETER")
                                         : memchr(start, '.', length) != NULL;
        const char *source = named ? arena_string_n(&importer->arena, start, length) : NULL;
        if (source && strstr(source, ".lifted_tensor_")) source = NULL; /* a constant of the model's code */
        const uint32_t *symbol = source ? string_map_find(&importer->names, source) : NULL;
        bool buffer = symbol && importer->symbols[*symbol].buffer;
        if (source && !buffer && !(*parameter && strstr(*parameter, ".weight"))) *parameter = source;
        looks_up |= is_call_of(start, length, indices);
        computes |= is_call_of(start, length, arithmetic);
        layered |= is_call_of(start, length, layers);
        filled |= is_call_of(start, length, fills);
        counts |= is_call_of(start, length, positions);
    }
    if (!*parameter && importer->signature) return FOLD_OF_CONSTANTS;
    /* A module that is the whole model has parameters without a dot in their names. */
    if (!*parameter) return filled && !looks_up ? FOLD_OF_CONSTANTS : FOLD_UNKNOWN;
    /* Arithmetic before a look-up, or of an arange, is of indices. */
    bool of_indices = looks_up || counts;
    return is_call_of(name, strlen(name), arithmetic) || layered || (computes && !of_indices) ? FOLD_COMPUTES
                                                                                              : FOLD_MOVES;
}

/* The last but one of "['', 'bert', 'bert.encoder', 'linear']": the last one is the node itself. */
static const char *innermost_scope(Arena *arena, const char *list)
{
    const char *end = strrchr(list, ',');
    while (end && end > list && *end != '\'') end--;
    if (!end || *end != '\'') return NULL;
    const char *start = end - 1;
    while (start > list && *start != '\'') start--;
    return start < end && *start == '\'' && end - start > 1
               ? arena_string_n(arena, start + 1, (size_t)(end - start - 1))
               : NULL;
}

/* The same of ": Model/bert: BertModel/bert.encoder: BertEncoder/linear: aten.linear.default". */
static const char *innermost_namespace(Arena *arena, const char *text)
{
    const char *end = strrchr(text, '/'), *start = end;
    if (!end) return NULL;
    while (start > text && start[-1] != '/') start--;
    const char *colon = memchr(start, ':', (size_t)(end - start));
    return colon && colon > start ? arena_string_n(arena, start, (size_t)(colon - start)) : NULL;
}

static const char *path_in_name(Arena *arena, const char *name)
{
    const char *end = name ? strrchr(name, '/') : NULL;
    if (!end) return NULL;
    name += *name == '/';
    if (end <= name) return NULL;
    char *path = arena_string_n(arena, name, (size_t)(end - name));
    for (char *c = path; *c; c++)
        if (*c == '/') *c = '.';
    return path;
}

const char *pytorch_call(Arena *arena, const Onnx__NodeProto *node)
{
    return node_metadata(arena, node, "pkg.torch.onnx.name_scopes");
}

const char *module_path(Arena *arena, const Onnx__NodeProto *node)
{
    const char *scopes = pytorch_call(arena, node);
    const char *path = scopes ? innermost_scope(arena, scopes) : NULL;
    if (path) return path;
    const char *name_space = node_metadata(arena, node, "namespace");
    path = name_space ? innermost_namespace(arena, name_space) : NULL;
    return path ? path : path_in_name(arena, node->name);
}

/* Adds what stands before each dot of the name of a symbol. Those of `before` are there already. */
static void add_modules(Importer *importer, const char *name, const char *before)
{
    for (const char *end = name; (end = strchr(end, '.')); end++) {
        size_t length = (size_t)(end - name);
        if (strncmp(before, name, length + 1) != 0)
            string_map_add(&importer->modules, arena_string_n(&importer->arena, name, length), 0);
    }
}

bool is_module(Importer *importer, const char *path, size_t length)
{
    if (!importer->modules.count) {
        string_map_add(&importer->modules, "", 0);
        for (size_t i = 1; i < importer->symbol_count; i++)
            add_modules(importer, importer->symbols[i].name, i > 1 ? importer->symbols[i - 1].name : "");
    }
    return length && string_map_find(&importer->modules, arena_string_n(&importer->arena, path, length));
}

/* The same of nodes, for what stands before a slash that another one follows. */
static void add_parents(Importer *importer, const char *name, const char *before)
{
    for (const char *end = name, *next; (end = strchr(end, '/')) && (next = strchr(end + 1, '/')); end = next) {
        size_t length = (size_t)(end - name);
        if (strncmp(before, name, (size_t)(next - name) + 1) != 0)
            string_map_add(&importer->parents, arena_string_n(&importer->arena, name, length), 0);
    }
}

bool has_submodules(Importer *importer, const char *path, size_t length)
{
    if (!importer->parents.count) {
        string_map_add(&importer->parents, "", 0);
        for (size_t n = 0; n < importer->node_count; n++)
            add_parents(importer, importer->nodes[n].name, n ? importer->nodes[n - 1].name : "");
    }
    return string_map_find(&importer->parents, arena_string_n(&importer->arena, path, length));
}

const char *source_lines(Arena *arena, const Onnx__NodeProto *node)
{
    const char *lines = node_metadata(arena, node, "pkg.torch.onnx.stack_trace");
    if (!lines) return "";
    /* Wherever PyTorch's own modules are called from, their parameters are the same. */
    const char *last = lines;
    for (const char *next = lines; (next = strstr(next, "File \"")); next++) last = next;
    return strstr(last, "/torch/nn/modules/") ? last : lines;
}

int64_t padding_row(Arena *arena, const Onnx__NodeProto *node)
{
    static const char call[] = "aten.embedding.default](args = (";
    const char *text = node_metadata(arena, node, "pkg.torch.onnx.fx_node");
    text = text ? strstr(text, call) : NULL;
    for (int i = 0; text && i < 2; i++) text = strpbrk(i ? text + 1 : text + sizeof call - 1, ",)");
    return text && *text == ',' ? strtoll(text + 1, NULL, 10) : -1;
}

const char *called_parameter(Arena *arena, const char *signature, const Onnx__NodeProto *node, const char *role)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const char *text = signature ? node_metadata(arena, node, "pkg.torch.onnx.fx_node") : NULL, *found = NULL;
    size_t count = 0, fitting = 0;
    text = text ? strstr(text, "(args = (") : NULL;
    while (text && (text = strstr(text, "%p_"))) {
        size_t length = strspn(++text, word);
        const char *input = arena_format(arena, "\n%.*s: PARAMETER target='", (int)length, text),
                   *target = strstr(signature, input);
        if (!target) continue;
        target = arena_string_n(arena, target + strlen(input), strcspn(target + strlen(input), "'"));
        bool fits = role && pattern_matches(arena_format(arena, "*%s", role), target);
        if (fits || !fitting) found = target;
        fitting += fits;
        count++;
    }
    return count == 1 || fitting == 1 ? found : NULL;
}

/* Whether PyTorch names what such a call gives so: "ones", "ones_1". */
static bool is_literal(const char *name)
{
    static const char *const calls[] = {"ones", "zeros", "full", "ones_like", "zeros_like", "full_like"};
    size_t length = strlen(name);
    while (length && name[length - 1] >= '0' && name[length - 1] <= '9') length--;
    length -= length > 1 && length < strlen(name) && name[length - 1] == '_';
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strlen(calls[i]) == length && strncmp(name, calls[i], length) == 0) return true;
    return false;
}

CallKind call_kind(Importer *importer, const Onnx__NodeProto *node)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    Arena *arena = &importer->arena;
    const char *text = importer->signature ? node_metadata(arena, node, "pkg.torch.onnx.fx_node") : NULL,
               *start = text ? strstr(text, "(args = (") : NULL, *norm = text ? strstr(text, "_norm.") : NULL;
    size_t values = 0, parameters = 0, constants = 0;
    for (const char *name = start; name && (name = strchr(name, '%')); values++) {
        name++;
        const char *value = arena_string_n(arena, name, strspn(name, word)),
                   *line = strstr(importer->signature, arena_format(arena, "\n%s: ", value));
        const char *kind = line ? line + strlen(value) + 3 : "";
        parameters += strncmp(kind, "PARAMETER ", 10) == 0;
        constants += strncmp(kind, "BUFFER ", 7) == 0 || strncmp(kind, "CONSTANT_TENSOR ", 16) == 0 ||
                     (is_literal(value) && !string_map_find(&importer->names, value));
    }
    if (parameters) return constants ? CALL_UNKNOWN : CALL_OF_PARAMETERS;
    return constants || (values == 1 && norm && norm < start) ? CALL_OF_CONSTANTS : CALL_UNKNOWN;
}

/* Whether an input is of the form [batch, channels, height, width]. */
static bool takes_pictures(const Onnx__GraphProto *graph)
{
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__TensorShapeProto *shape = onnx_value_shape(graph->input[i]);
        if (shape && shape->n_dim == 4 && dtype_is_float(onnx_dtype(graph->input[i]->type->tensor_type->elem_type)))
            return true;
    }
    return false;
}

const char other_models_hint[] = "skycc compiles transformers of text; export only the part that is one";

const char *model_hint(Importer *importer)
{
    const Onnx__GraphProto *graph = importer->proto;
    bool experts = false;
    for (size_t i = 0; i < graph->n_initializer && !experts; i++)
        experts = graph->initializer[i]->name && strstr(graph->initializer[i]->name, "experts.");
    for (size_t i = 0; i < graph->n_node && !experts; i++) {
        const char *path = module_path(&importer->arena, graph->node[i]), *op = graph->node[i]->op_type;
        experts = (path && strstr(path, "experts")) || (op && strstr(op, "MoE"));
    }
    return experts                 ? "this looks like a mixture of experts, which skycc does not compile"
           : takes_pictures(graph) ? "this looks like a vision model: skycc compiles transformers of text"
                                   : NULL;
}
