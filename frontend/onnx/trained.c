/* Decides which initializers are trained, by their uses (graph/analysis/choose_trained.h) and by the options --freeze,
 * --train and --lora. The others become constants, or parameters without a gradient. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/parts.h"
#include "frontend/onnx/head_names.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/normalize.h"
#include "graph/passes/fold.h"

static bool rule_matches(const TrainingRule *rule, const ImportedParameter *parameter)
{
    return pattern_matches(rule->glob, parameter->name) || pattern_matches(rule->glob, parameter->alias);
}

/* What the names of a parameter say, its own and those tied to it. */
typedef struct NameFacts {
    const TrainingRule *rule; /* the last that matches wins; NULL: none */
    bool is_head;
} NameFacts;

/* By value; free() it. Warns of rules that match nothing. */
static NameFacts *read_names(const Importer *importer)
{
    const ImportedModel *model = importer->model;
    NameFacts *facts = memory_allocate(importer->graph->value_count * sizeof *facts);
    for (size_t i = 0; i < model->parameter_count; i++) {
        const ImportedParameter *parameter = &model->parameters[i];
        facts[parameter->value].is_head |=
            head_name_length(parameter->name) || (parameter->alias && head_name_length(parameter->alias));
    }
    for (size_t r = 0; r < importer->options->rule_count; r++) {
        const TrainingRule *rule = &importer->options->rules[r];
        bool matches = false;
        for (size_t i = 0; i < model->parameter_count; i++) {
            if (!rule_matches(rule, &model->parameters[i])) continue;
            facts[model->parameters[i].value].rule = rule;
            matches = true;
        }
        if (!matches)
            diagnostics_warning(importer->diagnostics, PLACE_FILE(importer->graph->file),
                                "skycc check -v lists the names", "%s '%s' matches no parameter",
                                rule->train ? "--train" : "--freeze", rule->glob);
    }
    return facts;
}

static void warn_if_unsure(const Importer *importer, const ImportedParameter *parameter, TrainedChoice choice)
{
    const Value *value = graph_value(importer->graph, parameter->value);
    if (!choice.unsure || (shape_elements(&value->shape) == 1 && !named_by_module(importer, parameter->name))) return;
    char place[512];
    snprintf(place, sizeof place, "initializer '%.400s'", parameter->name);
    const char *option = choice.trained ? "freeze" : "train";
    const char *hint =
        arena_format(&importer->model->arena, "give --%s '%s' if that is wrong", option, parameter->name);
    diagnostics_warning(importer->diagnostics, (Place){.file = importer->graph->file, .object = place}, hint,
                        "%s, so skycc %s it", choice.why, choice.trained ? "trains" : "does not train");
}

/* Makes the value a constant, or a frozen parameter if an option asks for it or its data is unknown. */
static void stop_training(Graph *graph, ValueId id, bool by_option)
{
    Value *value = graph_value(graph, id);
    if (by_option || (!value->data && shape_elements(&value->shape) > 0))
        value->frozen = true;
    else
        value->role = ROLE_CONSTANT;
}

/* TorchScript's exporter calls what a node computes /MODULE/NODE_output_N. An initializer with such a name was computed
 * by an optimiser. */
static bool was_folded(const char *name) { return *name == '/' && strstr(name, "_output_"); }

/* Whether NODE is one of these operators. */
static bool was_folded_from(const char *name, const char *const *operators, size_t count)
{
    const char *node = strrchr(name, '/') + 1;
    for (size_t i = 0; i < count; i++)
        if (strncmp(node, operators[i], strlen(operators[i])) == 0 && node[strlen(operators[i])] == '_') return true;
    return false;
}

/* What an optimiser computed: constants stay constants, and elements of one parameter that were only moved train in
 * its place. True of all else, which cannot be trained. */
static bool judge_folded(const char *name, TrainedChoice *choice)
{
    static const char *const constant[] = {"Constant"}, *const moves[] = {"Cast",    "Gather",    "Identity",
                                                                          "Reshape", "Slice",     "Split",
                                                                          "Squeeze", "Transpose", "Unsqueeze"};
    if (!choice->trained || !was_folded(name)) return false;
    *choice = (TrainedChoice){.trained = true,
                              .why = "was computed by an optimiser from parameters that the file no "
                                     "longer has"};
    if (was_folded_from(name, constant, 1))
        *choice = (TrainedChoice){.why = "was a constant before the model was optimised"};
    else if (was_folded_from(name, moves, sizeof moves / sizeof *moves))
        choice->unsure = true;
    return choice->trained && !choice->unsure;
}

static void tell_heads(const Importer *importer, const NameFacts *facts)
{
    FREED_WITH(buffer_free) Buffer names = {0};
    for (size_t i = 0; i < importer->model->parameter_count; i++) {
        const ImportedParameter *parameter = &importer->model->parameters[i];
        if (!parameter->trained || facts[parameter->value].rule) continue;
        buffer_print(&names, "%s'%s'", names.size ? ", " : "", parameter->name);
    }
    if (names.size)
        diagnostics_warning(importer->diagnostics, PLACE_FILE(importer->graph->file),
                            "change this with --freeze and --train; skycc check --lora lists what is trained",
                            "--lora freezes all weights except those of the head: %s", buffer_text(&names));
    else if (!importer->options->rule_count && !onnx_model_is_distinct(&importer->model->onnx))
        diagnostics_warning(importer->diagnostics, PLACE_FILE(importer->graph->file),
                            "change this with --train; skycc check -v lists the names",
                            "--lora freezes all weights: no head is found by its name");
}

static const Symbol *symbol_of(const Importer *importer, const ImportedParameter *parameter)
{
    const char *name = importer->proto->initializer[parameter->initializer]->name;
    return &importer->symbols[*string_map_find(&importer->names, name)];
}

/* What PEFT calls the weights next to its branches, whose own names the TorchScript exporter loses. */
static const char beside_branch[] = ".base_layer.";

/* Weights that PEFT adds to a model that it does not train; exports do not say what was frozen. */
static bool is_adapter(const char *name)
{
    static const char *const parts[] = {"lora_",      "ia3_", "vera_", "prompt_encoder.", "prompt_embeddings",
                                        beside_branch};
    for (size_t i = 0; name && i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i])) return true;
    return false;
}

/* The weights of an adapter of which the exporter computed this initializer, a prompt for instance; NULL: none. */
static const char *folded_adapter(Importer *importer, const ImportedParameter *parameter)
{
    const char *of = NULL, *sources = symbol_of(importer, parameter)->folded_from;
    if (sources) fold_kind(importer, "", sources, &of);
    return is_adapter(of) ? of : NULL;
}

static void tell_adapters(Importer *importer)
{
    const ImportedModel *model = importer->model;
    size_t trained = 0, folds = 0;
    const char *adapter = NULL;
    const ImportedParameter *folded = NULL;
    for (size_t i = 0; i < model->parameter_count; i++) {
        const ImportedParameter *parameter = &model->parameters[i];
        trained += parameter->trained;
        if ((adapter && !strstr(adapter, beside_branch)) || !parameter->trained) continue;
        if (is_adapter(parameter->name) || is_adapter(parameter->alias))
            adapter = is_adapter(parameter->alias) ? parameter->alias : parameter->name;
        else if (folded_adapter(importer, parameter) && folds++ == 0)
            folded = parameter;
    }
    if (adapter) folded = NULL;
    if (folded) adapter = folded_adapter(importer, folded);
    if (adapter && !importer->options->rule_count && !importer->options->adapters)
        diagnostics_warning(
            importer->diagnostics, PLACE_FILE(importer->graph->file),
            folds > 1 && folded
                ? "export the model with optimize=False, then give --freeze '*' --train '*ia3_*' (or '*prompt_*')"
            : folded ? arena_format(&importer->model->arena,
                                    "--freeze '*' --train '%s' trains what the exporter made of it only; a further "
                                    "--train 'NAME' the head; skycc check -v lists the names",
                                    folded->name)
            : strstr(adapter, beside_branch)
                ? "the export has lost the branches' names: export the model with dynamo=True, then give --freeze '*' "
                  "--train '*lora_*'; or import the folder and give --lora"
                : "--freeze '*' --train '*lora_*' trains branches of low rank only (or '*ia3_*', '*prompt_*'); "
                  "a further --train 'NAME' the head; skycc check -v lists the names",
            "has weights of a PEFT adapter ('%s'), but skycc trains all %zu parameters", adapter, trained);
}

/* A parameter of whose elements the exporter computed this initializer, as it says; NULL: none. */
static const char *computed_of(Importer *importer, const ImportedParameter *parameter)
{
    const Symbol *symbol = symbol_of(importer, parameter);
    const char *name = importer->proto->initializer[parameter->initializer]->name, *of;
    bool computed = symbol->folded_from && !parameter->one_plus &&
                    fold_kind(importer, name, symbol->folded_from, &of) == FOLD_COMPUTES;
    return computed ? of : NULL;
}

/* Training would move copies apart, and what was computed of parameters to where these cannot bring it. */
static void refuse_folded(const Importer *importer, const ImportedParameter *parameter, bool copies, bool optimised,
                          const char *of)
{
    char place[512];
    snprintf(place, sizeof place, "initializer '%.400s'", parameter->name);
    Arena *arena = &importer->model->arena;
    const char *how = "export the model with optimize=False (TorchScript: do_constant_folding=False)";
    const char *why =
        "has the form of activations: the exporter computed it of parameters that the file no longer has, "
        "and it cannot be trained in their place";
    if (copies) {
        how = "export the model with a dynamic batch, and token_type_ids as an input";
        why = "holds copies of one parameter for all rows or positions, as exports with fixed shapes do: trained "
              "apart, they would become different";
    } else if (of) {
        why = arena_format(arena,
                           "the exporter computed it of parameters that the file no longer has, as '%.400s', and it "
                           "cannot be trained in their place",
                           of);
    } else if (optimised) {
        how = "train the model as it was before it was optimised";
        why = "an optimiser computed it of parameters that the file no longer has, and it cannot be trained in their "
              "place";
    }
    diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT, (Place){.file = importer->graph->file, .object = place},
                      arena_format(arena, "%s; or leave it as it is with --freeze '%s'", how, parameter->name), "%s",
                      why);
}

static void choose(Importer *importer, UseSurvey *survey, const NameFacts *facts, ImportedParameter *parameter)
{
    TrainedChoice choice = choose_trained(survey, parameter->value);
    bool number = shape_elements(&graph_value(importer->graph, parameter->value)->shape) == 1;
    bool told = symbol_of(importer, parameter)->parameter;
    if (!choice.trained && (number || choice.unsure || choice.mask) && told)
        choice = (TrainedChoice){.trained = true,
                                 .unsure = choice.mask,
                                 .why = choice.mask ? "is a parameter, as the exporter says, but holds a mask"
                                                    : "is a parameter, as the exporter says"};
    choice.unsure |= told && !choice.trained; /* it may be a parameter without requires_grad */
    if (parameter->constant)
        choice = (TrainedChoice){.why = "is a buffer or a constant, which the exporter merged with a parameter"};
    bool optimised = judge_folded(parameter->name, &choice), doubtful = judge_by_name(importer, parameter, &choice);
    const TrainingRule *rule = facts[parameter->value].rule;
    bool left = !rule && importer->options->adapters && choice.trained && !facts[parameter->value].is_head;
    bool overruled = left || (rule && rule->train != choice.trained);
    bool computed = choice.activation && !named_by_module(importer, parameter->name) && !importer->distinct;
    const char *of = choice.trained || number ? computed_of(importer, parameter) : NULL;
    if ((choice.copies || computed || of || optimised) && !left && (!rule || rule->train))
        refuse_folded(importer, parameter, choice.copies && !of, optimised, of);
    if (!rule && !left) warn_if_unsure(importer, parameter, choice);
    parameter->trained = left ? false : rule ? rule->train : choice.trained;
    parameter->frozen = overruled && !parameter->trained;
    parameter->why = !parameter->frozen ? choice.why : left ? "is frozen by --lora" : "is frozen by --freeze";
    bool decided =
        (choice.by_numbers && !choice.unsure) || (number && computed_by_torchscript(importer, parameter->name));
    parameter->doubtful = !rule && !left && (doubtful || (decided && !choice.trained));
}

/* A trained parameter that may be among packed ones: a matrix or a vector that is not one number throughout. */
static bool may_be_packed(const Value *part)
{
    const char *data = part->data;
    int64_t elements = shape_elements(&part->shape);
    size_t size = dtype_size(part->dtype);
    return data && elements > 1 && (part->shape.rank == 1 || part->shape.rank == 2) &&
           memcmp(data, data + size, ((size_t)elements - 1) * size) != 0;
}

static int by_first_element(const void *a, const void *b)
{
    const Value *x = *(const Value *const *)a, *y = *(const Value *const *)b;
    if (x->dtype != y->dtype) return x->dtype < y->dtype ? -1 : 1;
    return memcmp(x->data, y->data, dtype_size(x->dtype));
}

/* The parameters that may be among packed ones, sorted by their first elements. The caller frees them. */
static const Value **list_parts(const Importer *importer, size_t *count)
{
    const ImportedModel *model = importer->model;
    const Value **parts = memory_allocate((model->parameter_count + 1) * sizeof *parts);
    for (size_t p = 0; p < model->parameter_count; p++) {
        parts[*count] = graph_value(importer->graph, model->parameters[p].value);
        *count += model->parameters[p].trained && may_be_packed(parts[*count]);
    }
    qsort(parts, *count, sizeof *parts, by_first_element);
    return parts;
}

/* Whether the columns of a matrix, or the elements of a vector, that begin at `first` are those of another one. */
static bool holds_columns(const Value *packed, int64_t first, const Value *part)
{
    const Shape *whole = &packed->shape, *own = &part->shape;
    int64_t rows = own->rank == 2 ? own->dim[0] : 1, all = whole->dim[whole->rank - 1], width = own->dim[own->rank - 1];
    if (whole->rank != own->rank || (own->rank == 2 && rows != whole->dim[0]) || width >= all || first % width ||
        first + width > all)
        return false;
    const char *from = packed->data, *other = part->data;
    size_t size = dtype_size(part->dtype);
    for (int64_t row = 0; row < rows; row++)
        if (memcmp(from + (size_t)(row * all + first) * size, other + (size_t)(row * width) * size,
                   (size_t)width * size) != 0)
            return false;
    return true;
}

/* The first of the parts, sorted by their first elements, that the packed value holds; NULL: none. */
static const Value *find_packed(const Value *packed, const Value **parts, size_t count)
{
    const Shape *whole = &packed->shape;
    for (int64_t first = 0; packed->data && whole->rank && first < whole->dim[whole->rank - 1]; first++) {
        const Value element = {.dtype = packed->dtype,
                               .data = (char *)packed->data + (size_t)first * dtype_size(packed->dtype)},
                    *key = &element;
        const Value **found = bsearch(&key, parts, count, sizeof *parts, by_first_element);
        while (found && found > parts && by_first_element(found - 1, &key) == 0) found--;
        for (; found && found < parts + count && by_first_element(found, &key) == 0; found++)
            if (holds_columns(packed, first, *found)) return *found;
    }
    return NULL;
}

/* Of a layer that is used several times, as ALBERT's are, ONNX Runtime's optimiser packs the weights of some uses and
 * leaves those of others: they would be trained apart. */
static void refuse_packed(const Importer *importer)
{
    enum { WEIGHT = 1, BIAS };
    const Value **parts = NULL, *part = NULL;
    size_t count = 0;
    for (size_t n = 0; n < importer->node_count && !part; n++) {
        const SourceNode *node = &importer->nodes[n];
        if (!node->rule || node->rule->apply != normalize_packed_attention) continue;
        if (!parts) parts = list_parts(importer, &count);
        for (size_t i = WEIGHT; i <= BIAS && i < node->proto->n_input && !part; i++) {
            const Symbol *symbol = &importer->symbols[node->inputs[i]];
            if (!symbol->trained || !symbol->value) continue;
            part = find_packed(graph_value(importer->graph, symbol->value), parts, count);
            if (!part) continue;
            char place[512];
            snprintf(place, sizeof place, "initializer '%.400s'", symbol->name);
            diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT,
                              (Place){.file = importer->graph->file, .object = place},
                              "train the model as it was before it was optimised",
                              "holds '%.400s' among others: an optimiser packed them for one use and left them for "
                              "another, and trained apart, they would become different",
                              part->name);
        }
    }
    free(parts);
}

/* The parameters of one initializer follow each other. */
static void warn_of_splits(const Importer *importer)
{
    const ImportedModel *model = importer->model;
    for (size_t i = 0, next; i < model->parameter_count; i = next) {
        size_t first = 0, last = 0, count = 0;
        for (next = i;
             next < model->parameter_count && model->parameters[next].initializer == model->parameters[i].initializer;
             next++) {
            if (!model->parameters[next].merged || !model->parameters[next].trained) continue;
            if (!count++) first = next;
            last = next;
        }
        if (count < 2) continue;
        char place[512];
        snprintf(place, sizeof place, "initializer '%.400s'",
                 importer->proto->initializer[model->parameters[i].initializer]->name);
        diagnostics_warning(importer->diagnostics, (Place){.file = importer->graph->file, .object = place},
                            "give --keep-ties to train them as one",
                            "was merged by the exporter: its uses are %zu separate parameters, '%s' to '%s'", count,
                            model->parameters[first].name, model->parameters[last].name);
    }
}

static void warn_of_ties(const Importer *importer)
{
    for (size_t i = 0; i < importer->model->parameter_count; i++) {
        const ImportedParameter *parameter = &importer->model->parameters[i];
        if (!parameter->tied || !parameter->trained) continue;
        char place[512];
        snprintf(place, sizeof place, "initializer '%.400s'", parameter->name);
        bool rows = parameter->copies;
        diagnostics_warning(importer->diagnostics, (Place){.file = importer->graph->file, .object = place},
                            rows ? NULL : "give --untie to train them separately",
                            "holds %s '%s'%s: both are one parameter", rows ? "rows of" : "the same numbers as",
                            graph_value(importer->graph, parameter->value)->name,
                            parameter->transposed ? ", transposed" : "");
    }
}

/* Whether an earlier use of the same initializer is not trained for the same reason. */
static bool repeats_untrained(const ImportedModel *model, size_t number)
{
    const ImportedParameter *parameter = &model->parameters[number];
    for (size_t i = number; parameter->merged && i-- > 0;) {
        const ImportedParameter *earlier = &model->parameters[i];
        if (earlier->initializer != parameter->initializer) return false;
        if (!earlier->trained && earlier->why == parameter->why) return true;
    }
    return false;
}

/* Moves parameters that are neither trained nor frozen to the list of untrained tensors. */
static void sort_out(ImportedModel *model)
{
    for (size_t i = 0; i < model->parameter_count; i++) {
        const ImportedParameter *parameter = &model->parameters[i];
        if (parameter->trained || repeats_untrained(model, i)) continue;
        UntrainedTensor tensor = {parameter->name, parameter->why};
        array_push(model->untrained, model->untrained_count, model->untrained_capacity, tensor);
    }
    size_t kept = 0;
    for (size_t i = 0; i < model->parameter_count; i++)
        if (model->parameters[i].trained || model->parameters[i].frozen)
            model->parameters[kept++] = model->parameters[i];
    model->parameter_count = kept;
}

bool choose_parameters(Importer *importer)
{
    ImportedModel *model = importer->model;
    UseSurvey *survey = use_survey_create(importer->graph);
    FREED NameFacts *facts = read_names(importer);
    bool constants = false;
    for (size_t i = 0; i < model->parameter_count; i++) choose(importer, survey, facts, &model->parameters[i]);
    tell_doubtful(importer);
    use_survey_free(survey);
    refuse_packed(importer);
    for (size_t i = 0; i < model->parameter_count; i++) {
        if (model->parameters[i].trained) continue;
        stop_training(importer->graph, model->parameters[i].value, model->parameters[i].frozen);
        constants = true;
    }
    if (importer->options->adapters) tell_heads(importer, facts);
    tell_adapters(importer);
    warn_of_splits(importer);
    warn_of_ties(importer);
    sort_out(model);
    return !importer->diagnostics->errors &&
           (!constants || fold_constants(importer->graph, &model->folding, importer->diagnostics));
}
