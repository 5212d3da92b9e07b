#include "driver/compile/low_rank_targets.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/order.h"
#include "base/parts.h"
#include "base/string_map.h"
#include "frontend/onnx/head_names.h"

/* ---- What --lora says ---- */

enum { MOST_RANK = 1 << 16 };

static bool read_number(const char *text, double least, double greatest, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && !*end && *number >= least && *number <= greatest;
}

/* Sets what the item KEY=VALUE says; `value` is NULL where there is no '='. */
static bool read_item(LowRankSpec *spec, const char *key, const char *value, bool *in_targets)
{
    double number = 0;
    const char *target = value ? value : key;
    if (value) *in_targets = strcmp(key, "targets") == 0;
    if (*in_targets) return *target && (spec->targets[spec->target_count++] = target);
    if (!value) return false;
    if (strcmp(key, "r") == 0) {
        bool whole = read_number(value, 1, MOST_RANK, &number) && number == (int)number;
        spec->rank = (int)number;
        return whole;
    }
    if (strcmp(key, "alpha") == 0) return read_number(value, 1e-6, 1e6, &spec->alpha);
    return strcmp(key, "dropout") == 0 && read_number(value, 0, 1, &spec->dropout) && spec->dropout < 1;
}

/* The specification in one form, whatever the order of keys and targets, with defaults filled in. */
static const char *settled_text(const LowRankSpec *spec, Arena *arena)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    size_t bytes = spec->target_count * sizeof *spec->targets;
    const char **sorted = arena_copy(arena, spec->targets, bytes);
    qsort(sorted, spec->target_count, sizeof *sorted, order_texts);
    buffer_print(&text, "r=%d,alpha=", spec->rank);
    json_print_number(&text, spec->alpha);
    for (size_t i = 0; i < spec->target_count; i++)
        if (i == 0 || strcmp(sorted[i], sorted[i - 1]) != 0)
            buffer_print(&text, "%s%s", i ? "," : ",targets=", sorted[i]);
    if (spec->dropout > 0) {
        buffer_print(&text, ",dropout=");
        json_print_number(&text, spec->dropout);
    }
    return arena_string(arena, buffer_text(&text));
}

bool low_rank_parse(LowRankSpec *spec, const char *text, Arena *arena, Diagnostics *diagnostics)
{
    static const char hint[] = "write, for example, --lora r=8,alpha=16,targets=query,value,dropout=0.05";
    *spec = (LowRankSpec){.targets = arena_new_array(arena, const char *, strlen(text) + 1)};
    bool in_targets = false;
    for (char *item = arena_string(arena, text), *next; item; item = next) {
        next = strchr(item, ',');
        if (next) *next++ = '\0';
        char *equals = strchr(item, '=');
        if (equals) *equals++ = '\0';
        if (!read_item(spec, item, equals, &in_targets))
            return usage_error(diagnostics, hint, "malformed item '%s%s%s' of --lora", item, equals ? "=" : "",
                               equals ? equals : "");
    }
    if (!spec->rank || !spec->target_count)
        return usage_error(diagnostics, hint, "--lora %s lacks %s", text, spec->rank ? "targets" : "rank r");
    if (spec->alpha == 0) spec->alpha = spec->rank;
    spec->text = settled_text(spec, arena);
    return true;
}

/* ---- Which weights it means ---- */

/* Whether the weight is one of embeddings, or of what makes the outputs: what PEFT's all-linear leaves out. */
static bool is_at_an_end(const char *name)
{
    static const char *const ends[] = {"word_embeddings", "tok_embeddings", "embed_tokens",       "embed_in", "wte",
                                       "lm_head",         "embed_out",      "predictions.decoder"};
    bool found = name && head_name_length(name);
    for (size_t i = 0; name && i < sizeof ends / sizeof *ends; i++) found |= pattern_matches(ends[i], name);
    return found;
}

/* Whether the target means a parameter with this name or alias (NULL: none). */
static bool low_rank_target_matches(const char *target, const char *name, const char *alias)
{
    if (strcmp(target, "all-linear") == 0) return !is_at_an_end(name) && !is_at_an_end(alias);
    return pattern_matches(target, name) || pattern_matches(target, alias);
}

static bool is_meant(const LowRankSpec *spec, const ImportedParameter *parameter, bool *used)
{
    bool meant = false;
    for (size_t t = 0; t < spec->target_count; t++) {
        if (!low_rank_target_matches(spec->targets[t], parameter->name, parameter->alias)) continue;
        used[t] = meant = true;
    }
    return meant;
}

/* Whether the name comes from a module rather than from an exporter. */
static bool speaks(const char *name) { return !strstr(name, "::") && text_stem(name, ".weight") < strlen(name); }

/* The name of the module that the weight belongs to. */
static const char *module_of(ImportedModel *model, const ImportedParameter *parameter)
{
    const char *name = speaks(parameter->name) || !parameter->alias ? parameter->name : parameter->alias;
    return arena_string_n(&model->arena, name, text_stem(name, ".weight"));
}

/* While branches are chosen. */
typedef struct Choice {
    const Graph *graph;
    ImportedModel *model;
    LowRank *low_rank;
    ProductWeight *weights; /* of every value */
    bool *has_branch;       /* of every value */
    StringMap modules;      /* how often each was named */
} Choice;

/* The module's name, with a number where it has several weights. */
static const char *unique_name(Choice *choice, const char *module)
{
    const char *unique = module;
    uint32_t *known = string_map_find(&choice->modules, module), number = known ? *known : 0;
    while (!string_map_add(&choice->modules, unique, 1))
        unique = arena_format(&choice->model->arena, "%s#%u", module, number++);
    if (known) *string_map_find(&choice->modules, module) = number;
    return unique;
}

static bool add_branch(Choice *choice, const ImportedParameter *parameter, Diagnostics *diagnostics)
{
    const Graph *graph = choice->graph;
    LowRank *low_rank = choice->low_rank;
    const ProductWeight weight = choice->weights[parameter->value];
    char object[512], node[512];
    if (!weight.in_product) return false;
    if (weight.problem) {
        snprintf(object, sizeof object, "parameter '%.400s'", parameter->name);
        diagnostics_warning(diagnostics, (Place){.file = graph->file, .object = object},
                            arena_format(&choice->model->arena, "in %s",
                                         node_place(graph, graph_node(graph, weight.node), node).object),
                            "%s, so it gets no low-rank branch", weight.problem);
        return false;
    }
    if (choice->has_branch[parameter->value]) return true; /* tied to one that has */
    choice->has_branch[parameter->value] = true;
    const char *module = unique_name(choice, module_of(choice->model, parameter));
    low_rank->branches[low_rank->count++] = (LowRankBranch){.weight = parameter->value, .module = module};
    return true;
}

/* ---- What there is, if a target means nothing ---- */

/* The component of a weight's name before the last dot, or the whole name. */
static const char *last_component(ImportedModel *model, const ImportedParameter *parameter)
{
    const char *module = module_of(model, parameter), *dot = strrchr(module, '.');
    return dot && dot[1] ? dot + 1 : module;
}

static bool refuse_target(const char *target, const Choice *choice, Diagnostics *diagnostics)
{
    enum { MOST_LISTED = 40 };
    ImportedModel *model = choice->model;
    FREED_WITH(buffer_free) Buffer names = {0};
    int listed = 0;
    for (size_t i = 0; i < model->parameter_count; i++) {
        const ProductWeight weight = choice->weights[model->parameters[i].value];
        const char *name = last_component(model, &model->parameters[i]);
        if (!weight.in || text_has_part(names.size ? buffer_text(&names) : "", name, ", ")) continue;
        if (++listed <= MOST_LISTED) buffer_print(&names, "%s%s", names.size ? ", " : "", name);
    }
    if (listed > MOST_LISTED) buffer_print(&names, " and %d more (skycc check -v)", listed - MOST_LISTED);
    char hint[2048];
    snprintf(hint, sizeof hint, "weights of matrix products are: %s", listed ? buffer_text(&names) : "none");
    return input_error(diagnostics, choice->graph->file, hint,
                       "--lora: the target '%s' matches no weight of a matrix product", target);
}

bool low_rank_choose(LowRank *low_rank, const LowRankSpec *spec, uint64_t seed, const Graph *graph,
                     ImportedModel *model, Diagnostics *diagnostics)
{
    *low_rank = (LowRank){.rank = spec->rank,
                          .alpha = spec->alpha,
                          .dropout = spec->dropout,
                          .seed = seed,
                          .branches = arena_new_array(&model->arena, LowRankBranch, model->parameter_count)};
    Choice choice = {
        graph,       model, low_rank, product_weights(graph), memory_allocate(graph->value_count * sizeof(bool)),
        {NULL, 0, 0}};
    bool *used = memory_allocate(spec->target_count), *useful = memory_allocate(spec->target_count), ok = true;
    for (size_t i = 0; i < model->parameter_count; i++) {
        memset(used, 0, spec->target_count);
        if (!is_meant(spec, &model->parameters[i], used) || !add_branch(&choice, &model->parameters[i], diagnostics))
            continue;
        for (size_t t = 0; t < spec->target_count; t++) useful[t] |= used[t];
    }
    for (size_t t = 0; t < spec->target_count; t++)
        if (!useful[t]) ok = refuse_target(spec->targets[t], &choice, diagnostics);
    string_map_free(&choice.modules);
    free(choice.weights);
    free(choice.has_branch);
    free(used);
    free(useful);
    return ok;
}

void low_rank_list_parameters(const LowRank *low_rank, ImportedModel *model, const Graph *graph)
{
    for (size_t i = 0; i < low_rank->count; i++) {
        const ValueId values[2] = {low_rank->branches[i].a, low_rank->branches[i].b};
        for (int k = 0; k < 2 && values[k]; k++) {
            ImportedParameter parameter = {.name = graph_value(graph, values[k])->name,
                                           .initializer = SIZE_MAX,
                                           .value = values[k],
                                           .trained = true,
                                           .why = "belongs to a low-rank branch"};
            array_push(model->parameters, model->parameter_count, model->parameter_capacity, parameter);
        }
    }
}
