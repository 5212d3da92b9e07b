#include "frontend/onnx/initializer_uses.h"

#include <string.h>

#include "frontend/onnx/importer.h"
#include "frontend/onnx/normalize.h"

static bool passes_on(const SourceNode *node)
{
    return node->rule && node->rule->apply == normalize_alias && node->proto->n_output == 1 && node->number;
}

static bool depends(const Importer *importer, const SourceNode *node)
{
    if (!node->needed || node->rule->gradients == STOPS_GRADIENTS) return false;
    for (size_t i = 0; i < node->proto->n_output; i++)
        if (importer->symbols[node->outputs[i]].trained) return true;
    return false;
}

/* `identities`: those that pass the initializer on, or all others. */
static void collect(Importer *importer, InitializerUses *uses, bool identities)
{
    for (size_t n = 0; n < importer->node_count; n++) {
        const SourceNode *node = &importer->nodes[n];
        if (!node->rule || !depends(importer, node) || passes_on(node) != identities) continue;
        for (size_t i = 0; i < node->proto->n_input; i++) {
            const Symbol *symbol = &importer->symbols[node->inputs[i]];
            if (symbol->kind != SYMBOL_INITIALIZER || !node->inputs[i]) continue;
            InitializerUses *own = &uses[symbol->index];
            InitializerUse use = {.node = (uint32_t)n, .input = (int)i, .leader = own->count};
            array_push(own->items, own->count, own->capacity, use);
            own->direct += !identities;
        }
    }
}

/* The name of an operator's input in PyTorch's modules; NULL if it has no usual name. */
static const char *usual_name(const Onnx__NodeProto *node, int input)
{
    static const struct {
        const char *op, *names[3];
    } inputs[] = {
        {"MatMul", {"weight", "weight"}},
        {"Gemm", {"weight", "weight", "bias"}},
        {"Conv", {NULL, "weight", "bias"}},
        {"Gather", {"weight"}},
        {"Add", {"bias", "bias"}},
        {"Mul", {"weight", "weight"}},
        {"LayerNormalization", {NULL, "weight", "bias"}},
        {"RMSNormalization", {NULL, "weight"}},
    };
    for (size_t i = 0; input < 3 && i < sizeof inputs / sizeof *inputs; i++)
        if (strcmp(inputs[i].op, node->op_type) == 0) return inputs[i].names[input];
    return NULL;
}

/* The use, or where the Identity node that it is, and those after it, pass the initializer on to. */
static InitializerUse reader_of(const Importer *importer, InitializerUse use)
{
    while (use.input != OUTPUT_USE && passes_on(&importer->nodes[use.node])) {
        const InitializerUse *reader = &importer->readers[importer->nodes[use.node].outputs[0]];
        if (reader->input == OUTPUT_USE) break;
        use = *reader;
    }
    return use;
}

/* The first reader of every symbol. */
static void find_readers(Importer *importer)
{
    importer->readers = arena_new_array(&importer->arena, InitializerUse, importer->symbol_count);
    for (size_t i = 0; i < importer->symbol_count; i++) importer->readers[i].input = OUTPUT_USE;
    for (size_t n = importer->node_count; n-- > 0;)
        for (size_t i = importer->nodes[n].proto->n_input; i-- > 0;)
            importer->readers[importer->nodes[n].inputs[i]] = (InitializerUse){.node = (uint32_t)n, .input = (int)i};
}

/* The use's node; NULL: an output, or of a function's body, whose metadata are the same for all its calls. */
static const Onnx__NodeProto *node_of(const Importer *importer, const InitializerUse *use)
{
    bool known = use->input != OUTPUT_USE && importer->nodes[use->node].number;
    return known ? importer->nodes[use->node].proto : NULL;
}

/* Uses with equal keys are one parameter; NULL: nothing is known of the use. */
static const char *key_of(Importer *importer, const InitializerUse *use)
{
    if (use->told) return use->owner;
    if (use->constant) return "";
    const InitializerUse reader = reader_of(importer, *use);
    const Onnx__NodeProto *proto = node_of(importer, &reader);
    if (!proto) return NULL;
    const char *lines = source_lines(&importer->arena, proto);
    return use->owner && lines
               ? arena_format(&importer->arena, "%d\n%s\n%s\n%s", reader.input, proto->op_type, use->owner, lines)
               : NULL;
}

/* The first use with that key, of another node; `number`: there is none before it. */
static size_t first_use(const InitializerUses *uses, StringMap *firsts, const char *key, size_t number)
{
    if (!key || string_map_add(firsts, key, (uint32_t)number)) return number;
    size_t first = *string_map_find(firsts, key);
    bool other = uses->items[first].node != uses->items[number].node || uses->items[number].told;
    return other ? first : number;
}

/* TorchScript's exporter calls the second call of m.norm "m.norm_1", which may also be the name of a module. */
static const char *without_calls(Importer *importer, const char *path)
{
    char *module = arena_string(&importer->arena, path), *end = module;
    for (const char *start = module; *start; start = end) {
        size_t length = strcspn(start, "."), digits = length;
        const char *next = start + length;
        while (digits && start[digits - 1] >= '0' && start[digits - 1] <= '9') digits--;
        bool call = digits > 1 && digits < length && start[digits - 1] == '_' &&
                    !is_module(importer, module, (size_t)(next - module));
        end = (char *)start + (call ? digits - 1 : length);
        memmove(end, next, strlen(next) + 1);
        end += *end == '.';
    }
    return module;
}

/* Finds the parameter that the use reads, as far as the exporter tells, or its module. */
static void find_owner(Importer *importer, const char *initializer, InitializerUse *use)
{
    const InitializerUse reader = reader_of(importer, *use);
    const Onnx__NodeProto *node = node_of(importer, &reader);
    const char *name = use->input != OUTPUT_USE && passes_on(&importer->nodes[use->node])
                           ? importer->symbols[importer->nodes[use->node].outputs[0]].name
                           : initializer;
    if (importer->model->torchscript && strchr(name, '.') && named_by_module(importer, name) &&
        (name != initializer || use->passed))
        use->owner = name;
    else if (node)
        use->owner = called_parameter(&importer->arena, importer->signature, node, usual_name(node, reader.input));
    use->told = use->owner;
    const char *module = node && !use->told ? module_path(&importer->arena, node) : NULL;
    if (module) use->owner = importer->model->torchscript ? without_calls(importer, module) : module;
}

static bool has_several_elements(const Onnx__TensorProto *tensor)
{
    bool several = false;
    for (size_t i = 0; i < tensor->n_dims; i++) several |= tensor->dims[i] > 1;
    return several;
}

/* Of the use, if the node reads no other initializer. */
static CallKind use_kind(Importer *importer, const InitializerUse *use)
{
    const Onnx__NodeProto *node = node_of(importer, use);
    size_t initializers = 0;
    for (size_t i = 0; node && i < node->n_input; i++)
        initializers += importer->symbols[importer->nodes[use->node].inputs[i]].kind == SYMBOL_INITIALIZER;
    return initializers == 1 ? call_kind(importer, node) : CALL_UNKNOWN;
}

/* The exporter merges parameters with buffers and literals, too. Uses of these follow those of the parameter. */
static void find_constants(Importer *importer, Symbol *symbol, InitializerUses *uses)
{
    InitializerUse *sorted = arena_new_array(&importer->arena, InitializerUse, uses->direct);
    size_t count = 0, parameters = 0, constants = 0;
    for (size_t i = 0; i < uses->direct; i++) {
        InitializerUse *use = &uses->items[i];
        CallKind kind = use_kind(importer, use);
        parameters += kind == CALL_OF_PARAMETERS;
        use->constant = kind == CALL_OF_CONSTANTS;
        constants += use->constant;
        if (!use->constant) sorted[count++] = *use;
    }
    bool buffer = symbol->parameter ? constants && !count : !parameters;
    symbol->parameter = !buffer;
    symbol->buffer = buffer;
    for (size_t i = 0; i < uses->direct; i++)
        if (uses->items[i].constant) sorted[count++] = uses->items[i];
    for (size_t i = 0; i < count; i++) {
        uses->items[i] = sorted[i];
        uses->items[i].leader = i;
    }
}

static void find_leaders(Importer *importer, const char *initializer, InitializerUses *uses)
{
    bool through_identities = uses->count > uses->direct;
    FREED_WITH(string_map_free) StringMap alike = {0}, calls = {0};
    for (size_t i = 0; i < uses->count; i++) {
        InitializerUse *use = &uses->items[i];
        use->passed = through_identities;
        find_owner(importer, initializer, use);
        const Onnx__NodeProto *node = node_of(importer, use);
        size_t first = first_use(uses, &alike, key_of(importer, use), i),
               of_call = first_use(uses, &calls, node ? pytorch_call(&importer->arena, node) : NULL, i);
        use->leader = uses->items[first < of_call ? first : of_call].leader;
        if (through_identities && i < uses->direct) use->leader = 0;
    }
}

void find_initializer_uses(Importer *importer, InitializerUses *uses)
{
    size_t count = importer->proto->n_initializer;
    find_readers(importer);
    collect(importer, uses, false);
    for (size_t i = 0; i < importer->proto->n_output; i++) {
        const Symbol *symbol = &importer->symbols[*string_map_find(&importer->names, importer->proto->output[i]->name)];
        if (symbol->kind != SYMBOL_INITIALIZER) continue;
        InitializerUses *own = &uses[symbol->index];
        InitializerUse use = {.input = OUTPUT_USE};
        array_push(own->items, own->count, own->capacity, use);
        own->direct++;
    }
    collect(importer, uses, true);
    for (size_t i = 0; i < count; i++) {
        const char *name = importer->proto->initializer[i]->name;
        Symbol *symbol = &importer->symbols[*string_map_find(&importer->names, name)];
        if (symbol->parameter || (symbol->buffer && has_several_elements(importer->proto->initializer[i])))
            find_constants(importer, symbol, &uses[i]);
        if (uses[i].count > 1) find_leaders(importer, name, &uses[i]);
    }
}

const char *initializer_use_name(Importer *importer, const InitializerUse *use)
{
    const InitializerUse reader = reader_of(importer, *use);
    if (use->told || reader.input == OUTPUT_USE) return use->owner;
    const SourceNode *node = &importer->nodes[reader.node];
    const char *module = node->number ? module_path(&importer->arena, node->proto) : NULL,
               *name = usual_name(node->proto, reader.input);
    return module && name ? arena_format(&importer->arena, "%s.%s", module, name) : NULL;
}

const char *initializer_owner(Importer *importer, const char *name)
{
    const Symbol *symbol = &importer->symbols[*string_map_find(&importer->names, name)];
    const char *of;
    if (!symbol->parameter) return importer->model->torchscript && named_by_module(importer, name) ? name : NULL;
    if (!symbol->folded_from) return name;
    return fold_kind(importer, name, symbol->folded_from, &of) == FOLD_MOVES ? of : NULL;
}

/* Whether the names differ, but only in numbers, as those of the layers of one list. */
static bool are_siblings(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    bool differ = false;
    while (*a || *b) {
        size_t of_a = strspn(a, digits), of_b = strspn(b, digits);
        if (!of_a != !of_b || (!of_a && *a != *b)) return false;
        differ |= of_a != of_b || strncmp(a, b, of_a) != 0;
        a += of_a ? of_a : 1, b += of_b ? of_b : 1;
    }
    return differ;
}

bool owners_are_apart(const Importer *importer, const char *a, const char *b)
{
    return a && b && (importer->model->torchscript ? are_siblings(a, b) : strcmp(a, b) != 0);
}

/* Whether the exporter tells that the uses are of two parameters. */
static bool names_are_apart(const InitializerUse *a, const InitializerUse *b)
{
    return a->told && b->told && strcmp(a->owner, b->owner) != 0;
}

bool uses_show_clones(const InitializerUses *uses)
{
    for (size_t i = 1; i < uses->count; i++)
        if (names_are_apart(&uses->items[i], &uses->items[0]) &&
            are_siblings(uses->items[i].owner, uses->items[0].owner))
            return true;
    return false;
}

UseSharing uses_sharing(Importer *importer, const char *initializer, const InitializerUses *uses,
                        const InitializerUse **other)
{
    const char *owner = initializer_owner(importer, initializer);
    bool own = importer->model->torchscript, open = false;
    size_t leaders = 0;
    const InitializerUse *first = uses->items;
    FREED_WITH(string_map_free) StringMap owners = {0};
    for (size_t i = 0; i < uses->count; i++) {
        const InitializerUse *use = &uses->items[i];
        if (use->leader != i || use->constant) continue;
        if (!use->owner || !string_map_add(&owners, use->owner, 0)) return USES_SHARE;
        own |= owner && use->told && strcmp(use->owner, owner) == 0;
        if (!leaders++ || names_are_apart(use, first)) continue;
        bool siblings = are_siblings(use->owner, first->owner);
        if (!siblings && i < uses->direct) return USES_SHARE;
        if (siblings && importer->clones && (i >= uses->direct || !strchr(initializer, '.'))) continue;
        open = true;
        *other = use;
    }
    return !own || leaders < 2 ? USES_SHARE : open ? USES_OPEN : USES_APART;
}
