#include "frontend/onnx/initializer_uses.h"

#include <string.h>

#include "frontend/onnx/importer.h"
#include "frontend/onnx/normalize.h"

static bool passes_on(const SourceNode *node)
{
    return node->rule->apply == normalize_alias && node->proto->n_output == 1 && node->number;
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
            InitializerUse use = {(uint32_t)n, (int)i, own->count};
            array_push(own->items, own->count, own->capacity, use);
            own->direct += !identities;
        }
    }
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
    const Onnx__NodeProto *proto = node_of(importer, use);
    if (!proto) return NULL;
    const char *module = module_path(&importer->arena, proto), *lines = source_lines(&importer->arena, proto);
    return module && lines ? arena_format(&importer->arena, "%d\n%s\n%s\n%s", use->input, proto->op_type, module, lines)
                           : NULL;
}

/* The first use with that key, of another node; `number`: there is none before it. */
static size_t first_use(const InitializerUses *uses, StringMap *firsts, const char *key, size_t number)
{
    if (!key || string_map_add(firsts, key, (uint32_t)number)) return number;
    size_t first = *string_map_find(firsts, key);
    return uses->items[first].node == uses->items[number].node ? number : first;
}

static void find_leaders(Importer *importer, InitializerUses *uses)
{
    bool through_identities = uses->count > uses->direct;
    FREED_WITH(string_map_free) StringMap alike = {0}, calls = {0};
    for (size_t i = 0; i < uses->direct; i++) {
        InitializerUse *use = &uses->items[i];
        if (through_identities) {
            use->leader = 0;
            continue;
        }
        const Onnx__NodeProto *node = node_of(importer, use);
        size_t first = first_use(uses, &alike, key_of(importer, use), i),
               of_call = first_use(uses, &calls, node ? pytorch_call(&importer->arena, node) : NULL, i);
        use->leader = uses->items[first < of_call ? first : of_call].leader;
    }
}

void find_initializer_uses(Importer *importer, InitializerUses *uses)
{
    size_t count = importer->proto->n_initializer;
    collect(importer, uses, false);
    for (size_t i = 0; i < importer->proto->n_output; i++) {
        const Symbol *symbol = &importer->symbols[*string_map_find(&importer->names, importer->proto->output[i]->name)];
        if (symbol->kind != SYMBOL_INITIALIZER) continue;
        InitializerUses *own = &uses[symbol->index];
        InitializerUse use = {0, OUTPUT_USE, 0};
        array_push(own->items, own->count, own->capacity, use);
        own->direct++;
    }
    collect(importer, uses, true);
    for (size_t i = 0; i < count; i++)
        if (uses[i].count > 1) find_leaders(importer, &uses[i]);
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

const char *initializer_use_name(Importer *importer, const InitializerUse *use)
{
    if (use->input == OUTPUT_USE) return NULL;
    const SourceNode *node = &importer->nodes[use->node];
    if (passes_on(node)) return importer->symbols[node->outputs[0]].name;
    const char *module = node->number ? module_path(&importer->arena, node->proto) : NULL,
               *name = usual_name(node->proto, use->input);
    return module && name ? arena_format(&importer->arena, "%s.%s", module, name) : NULL;
}
