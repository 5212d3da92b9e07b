/* PyTorch's default exporter merges calls that compute the same numbers. Modules that start equal and read the same
 * value are then one, and only the signature of the model before the export names the parameters that are gone. */
#include <stdlib.h>
#include <string.h>

#include "frontend/onnx/importer.h"
#include "frontend/onnx/initializer_uses.h"

/* A parameter of the model before the export. */
typedef struct Told {
    const char *name;
    size_t module;  /* length of its module's name */
    bool in_file;   /* or what it was folded into */
    bool elsewhere; /* another module reads it: it stands for parameters tied to it. Or it is looked up in */
    bool within;    /* a module that contains its own reads it */
    bool called;    /* some node reads it: */
    uint32_t node;  /* the last of them */
    uint32_t first; /* of its module's parameters */
    size_t members; /* of the first: how many these are */
} Told;

typedef struct Signature {
    Told *told; /* in the order of the model */
    size_t count, capacity;
    StringMap calls, names; /* what calls call them, and their names -> number */
    StringMap owners;       /* their modules -> the first parameter's number */
    StringMap modules;      /* of all nodes */
} Signature;

static size_t module_length(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : 0;
}

static void read_signature(Importer *importer, Signature *signature)
{
    static const char is_parameter[] = ": PARAMETER target='";
    for (const char *text = importer->signature; (text = strstr(text, is_parameter));) {
        const char *line = text, *target = text + sizeof is_parameter - 1;
        while (line > importer->signature && line[-1] != '\n') line--;
        const char *call = arena_string_n(&importer->arena, line, (size_t)(text - line));
        text = target + strcspn(target, "'");
        Told told = {.name = arena_string_n(&importer->arena, target, (size_t)(text - target))};
        told.module = module_length(told.name);
        told.in_file = string_map_find(&importer->names, told.name) != NULL;
        string_map_add(&signature->calls, call, (uint32_t)signature->count);
        string_map_add(&signature->names, told.name, (uint32_t)signature->count);
        const char *owner = arena_string_n(&importer->arena, told.name, told.module);
        string_map_add(&signature->owners, owner, (uint32_t)signature->count);
        told.first = *string_map_find(&signature->owners, owner);
        array_push(signature->told, signature->count, signature->capacity, told);
        signature->told[told.first].members++;
    }
}

static void read_call(Importer *importer, Signature *signature, uint32_t number)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const Onnx__NodeProto *node = importer->nodes[number].proto;
    const char *text = node_metadata(&importer->arena, node, "pkg.torch.onnx.fx_node"),
               *path = module_path(&importer->arena, node), *module = path ? path : "";
    string_map_add(&signature->modules, module, 0);
    size_t length = strlen(module);
    bool looks_up = text && strstr(text, "aten.embedding.");
    while (text && (text = strchr(text, '%'))) {
        size_t size = strspn(++text, word);
        const uint32_t *found = string_map_find(&signature->calls, arena_string_n(&importer->arena, text, size));
        if (!found) continue;
        Told *told = &signature->told[*found];
        bool contains = !length || (strncmp(told->name, module, length) == 0 && told->name[length] == '.');
        told->called = true;
        told->node = number;
        told->elsewhere |= !contains || looks_up;
        told->within |= contains && length < told->module;
    }
}

static void read_folds(Importer *importer, Signature *signature)
{
    for (size_t i = 0; i < importer->symbol_count; i++)
        for (const char *start = importer->symbols[i].folded_from, *end;
             start && (start = strchr(start, '\'')) && (end = strchr(++start, '\'')); start = end + 1) {
            const char *name = arena_string_n(&importer->arena, start, (size_t)(end - start));
            const uint32_t *found = string_map_find(&signature->names, name);
            if (found) signature->told[*found].in_file = true;
        }
}

/* How often nodes and outputs read every symbol. */
static uint32_t *count_readers(Importer *importer)
{
    uint32_t *counts = arena_new_array(&importer->arena, uint32_t, importer->symbol_count);
    for (size_t n = 0; n < importer->node_count; n++)
        for (size_t i = 0; i < importer->nodes[n].proto->n_input; i++) counts[importer->nodes[n].inputs[i]]++;
    for (size_t i = 0; i < importer->proto->n_output; i++)
        counts[*string_map_find(&importer->names, importer->proto->output[i]->name)]++;
    return counts;
}

/* Whether the node computes of one value, but for weights and shapes. */
static bool is_unary(const Importer *importer, const SourceNode *node)
{
    size_t values = 0;
    for (size_t i = 0; i < node->proto->n_input; i++)
        values += node->inputs[i] && importer->symbols[node->inputs[i]].kind != SYMBOL_INITIALIZER;
    return values == 1 || strcmp(node->proto->op_type, "Reshape") == 0 || strcmp(node->proto->op_type, "Expand") == 0;
}

/* Whether several nodes read what the node computes, perhaps after further layers. */
static bool is_shared(const Importer *importer, const uint32_t *counts, uint32_t number)
{
    enum { MOST_STEPS = 64 };
    for (int step = 0; step < MOST_STEPS && importer->nodes[number].proto->n_output; step++) {
        uint32_t output = importer->nodes[number].outputs[0];
        const InitializerUse *reader = &importer->readers[output];
        if (counts[output] != 1 || reader->input == OUTPUT_USE) return counts[output] > 1;
        number = reader->node;
        if (!is_unary(importer, &importer->nodes[number])) return false;
    }
    return false;
}

/* The name with * for the component that starts at `start`; NULL: others of that module are no siblings. */
static const char *sibling_key(Arena *arena, const char *name, size_t start)
{
    const char *component = name + start, *end = component + strcspn(component, ".");
    if (strcmp(component, "weight") == 0 || strcmp(component, "bias") == 0) return NULL;
    return arena_format(arena, "%.*s*%s", (int)start, name, end);
}

/* Sets `start` to that of the next component. */
static bool next_component(const char *name, size_t *start)
{
    *start += strcspn(name + *start, ".");
    return name[*start] && name[++*start];
}

/* Parameters by which a call computes what several nodes read, by their sibling keys. */
static void find_shared(Importer *importer, const Signature *signature, StringMap *shared)
{
    const uint32_t *counts = count_readers(importer);
    for (size_t i = 0; i < signature->count; i++) {
        const Told *told = &signature->told[i];
        if (!told->called || told->elsewhere || !is_shared(importer, counts, told->node)) continue;
        size_t start = 0;
        do {
            const char *key = sibling_key(&importer->arena, told->name, start);
            if (key) string_map_add(shared, key, (uint32_t)i);
        } while (next_component(told->name, &start));
    }
}

/* The parameter in whose call that of another, which nothing reads, may be; NULL: none. Tied parameters go by the name
 * of the last of them, so that a later one is not tied. */
static const Told *stand_in(Importer *importer, const Signature *signature, const StringMap *shared, const Told *gone)
{
    const char *module = arena_string_n(&importer->arena, gone->name, gone->module);
    bool alive = string_map_find(&signature->modules, module);
    size_t start = 0;
    do {
        const char *key = sibling_key(&importer->arena, gone->name, start);
        const uint32_t *found = key ? string_map_find(shared, key) : NULL;
        if (!found) continue;
        const Told *told = &signature->told[*found];
        bool same_module = start >= gone->module, own = !told->within && !same_module;
        bool fits =
            same_module || (!alive && signature->told[told->first].members == signature->told[gone->first].members);
        if (fits && (own || told < gone) && !(told->in_file && gone->in_file)) return told;
    } while (next_component(gone->name, &start));
    return NULL;
}

static void warn(Importer *importer, const Signature *signature)
{
    FREED_WITH(string_map_free) StringMap shared = {0};
    const Told *first = NULL, *other = NULL;
    size_t found = 0, gone = 0;
    for (size_t i = 0; i < signature->count; i++) gone += !signature->told[i].called;
    if (gone) find_shared(importer, signature, &shared);
    for (size_t i = 0; i < signature->count && gone; i++) {
        const Told *with =
            signature->told[i].called ? NULL : stand_in(importer, signature, &shared, &signature->told[i]);
        if (with && !found++) first = &signature->told[i], other = with;
    }
    if (!found) return;
    const char *hint = arena_format(&importer->model->arena,
                                    "export with optimize=False or with dynamo=False; this is right only if the "
                                    "model ties the two, or does not use '%s'",
                                    first->name);
    diagnostics_warning(importer->diagnostics, PLACE_FILE(importer->graph->file), hint,
                        "has no '%s' (the first of %zu such parameters), as the exporter merges calls of modules that "
                        "start equal: skycc trains '%s' in its place",
                        first->name, found, other->name);
}

void warn_of_merged_calls(Importer *importer)
{
    if (!importer->signature) return;
    Signature signature = {0};
    read_signature(importer, &signature);
    for (size_t n = 0; n < importer->node_count; n++) read_call(importer, &signature, (uint32_t)n);
    read_folds(importer, &signature);
    warn(importer, &signature);
    free(signature.told);
    string_map_free(&signature.calls);
    string_map_free(&signature.names);
    string_map_free(&signature.owners);
    string_map_free(&signature.modules);
}
