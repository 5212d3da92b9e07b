#include "driver/federate/federation_start.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/string_map.h"
#include "driver/compile/local_program.h"
#include "driver/compile/plan_load.h"
#include "driver/compile/recipe.h"
#include "graph/analysis/parameter_values.h"
#include "runtime/storage/parameters.h"

typedef struct Making {
    Federation *federation;
    FederationStart *start;
    PlannedModel planned;
    StageCode code;
    LocalProgram program;
    WeightInit init;
    uint64_t seed;
    double clip;
    Arena arena;
} Making;

/* The parameter with the model's values; NULL: they are drawn, or there are none. */
static const Value *own_value(const Making *making, uint32_t parameter)
{
    ValueId id = making->code.parameter_values[parameter];
    const Value *value = graph_value(&making->planned.model.graph, id);
    bool own = !making->init.drawn || is_low_rank(&making->planned.model, id);
    return own && parameter_has_values(value) ? value : NULL;
}

static bool check_parameter(const Making *making, uint32_t number, const char *path, Diagnostics *diagnostics)
{
    const SkyParameter *parameter = &making->code.stage.parameters[number];
    Place place = {.file = path, .object = parameter->value.name};
    if (own_value(making, number)) return true;
    if (!making->init.drawn)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "draw initial values with --init normal:0.02",
                                 "the model has no value for this parameter");
    return !parameter->frozen || diagnostics_error(diagnostics, EXIT_BAD_INPUT, place,
                                                   "freeze only parameters whose values are in the model's file",
                                                   "is frozen, but its value is drawn at random");
}

static void note_tied(Buffer *tied, const SkyParameter *parameter)
{
    for (uint32_t i = 0; i < parameter->tied_name_count; i++)
        buffer_print(tied, "%s%s\t%s\t%d", tied->size ? "\n" : "", parameter->tied_names[i].name, parameter->value.name,
                     parameter->tied_names[i].transposed ? 1 : 0);
}

/* Names of parameters that are not trained, and what programs check of their values, once that is known. */
static void note_frozen(const Making *making, GlobalModel *model)
{
    const SkyStage *stage = &making->code.stage;
    const ImportedModel *imported = &making->planned.model.imported;
    FREED_WITH(buffer_free) Buffer names = {0}, checks = {0};
    FREED_WITH(string_map_free) StringMap numbers = {0};
    for (uint32_t p = 0; p < stage->parameter_count; p++) string_map_add(&numbers, stage->parameters[p].value.name, p);
    for (size_t i = 0; i < imported->parameter_count; i++) {
        if (!imported->parameters[i].frozen) continue;
        const uint32_t *number = string_map_find(&numbers, imported->parameters[i].name);
        const char *separator = names.size ? "\n" : "";
        buffer_print(&names, "%s%s", separator, imported->parameters[i].name);
        buffer_print(&checks, "%s", separator);
        if (number) buffer_print(&checks, "%016" PRIx64, stage->parameters[*number].initial_check);
    }
    if (names.size) model->frozen = arena_string(&model->arena, buffer_text(&names));
    if (names.size) model->frozen_checks = arena_string(&model->arena, buffer_text(&checks));
}

static void fill(Making *making, uint32_t number, float *values, size_t count)
{
    const SkyParameter *parameter = &making->code.stage.parameters[number];
    const Value *value = own_value(making, number);
    if (value)
        parameter_copy_values(value, values);
    else
        parameter_draw(parameter->value.name, making->seed, parameter->initial_mean, parameter->initial_deviation,
                       values, count);
}

static void make_model(Making *making)
{
    const SkyStage *stage = &making->code.stage;
    GlobalModel *model = &making->start->model;
    const char **names = arena_new_array(&making->arena, const char *, stage->parameter_count);
    Shape *shapes = arena_new_array(&making->arena, Shape, stage->parameter_count);
    uint32_t *numbers = arena_new_array(&making->arena, uint32_t, stage->parameter_count);
    FREED_WITH(buffer_free) Buffer tied = {0};
    size_t count = 0;
    for (uint32_t p = 0; p < stage->parameter_count; p++) {
        const SkyParameter *parameter = &stage->parameters[p];
        if (parameter->frozen) continue;
        names[count] = parameter->value.name;
        shapes[count].rank = (int)parameter->value.rank;
        for (int i = 0; i < shapes[count].rank; i++) shapes[count].dim[i] = parameter->value.dim[i];
        numbers[count++] = p;
        note_tied(&tied, parameter);
        making->federation->compiled.states = parameter->state_count;
    }
    global_model_open(model, (Hash){0}, names, shapes, count, false);
    for (size_t i = 0; i < count; i++)
        fill(making, numbers[i], model->values + model->tensors[i].first, model->tensors[i].elements);
    if (tied.size) model->tied = arena_string(&model->arena, buffer_text(&tied));
}

static Hash hash_model(const GlobalModel *model, const FederationCompiled *compiled)
{
    Hash hash = hash_bytes(compiled->model_hash, strlen(compiled->model_hash));
    hash = hash_extend(hash, compiled->recipe, strlen(compiled->recipe));
    hash = hash_extend(hash, compiled->low_rank, strlen(compiled->low_rank));
    return global_model_hash(model, hash);
}

/* Of the values in the form in which programs have them, as weights.c checks them. */
static void set_check(const Value *value, SkyParameter *parameter)
{
    FREED void *bytes = value->data ? NULL : memory_allocate(parameter->value.bytes);
    if (bytes) parameter_copy_values(value, bytes);
    parameter->initial_check = hash_bytes(bytes ? bytes : value->data, parameter->value.bytes).low;
}

/* As stage_programs.c does it for the programs of every site. */
static const char *describe_recipe(Making *making)
{
    SkyProgram *program = &making->program.program;
    SkyParameter *parameters = (SkyParameter *)making->code.stage.parameters;
    program->optimizer = recipe_optimizer(&making->planned.model);
    program->clip = making->clip;
    program->seed = making->seed;
    for (uint32_t p = 0; p < making->code.stage.parameter_count; p++)
        if (own_value(making, p)) set_check(own_value(making, p), &parameters[p]);
    recipe_describe(program, &making->arena, &making->planned.model, making->init);
    recipe_describe_weights(program, &making->arena, &making->code, 1);
    return arena_format(&making->federation->arena, "%s %s", program->recipe_hash, program->weights_hash);
}

static void describe(Making *making)
{
    Federation *federation = making->federation;
    FederationCompiled *compiled = &federation->compiled;
    GlobalModel *model = &making->start->model;
    char hash[33];
    const SkyProgram *program = &making->program.program;
    hash_format(making->planned.model.imported.onnx.hash, hash);
    compiled->site = -1;
    compiled->model_hash = arena_string(&federation->arena, hash);
    compiled->optimizer = program->optimizer.kind;
    compiled->low_rank = arena_string(&federation->arena, program->low_rank);
    compiled->recipe = describe_recipe(making);
    note_frozen(making, model);
    if (*program->low_rank) model->lora = arena_string(&model->arena, program->low_rank);
    making->start->microbatch_rows = program->microbatch_size;
}

static bool check_tensor_names(const GlobalModel *model, const char *path, Diagnostics *diagnostics)
{
    for (size_t i = 0; i < model->tensor_count; i++) {
        const Place place = {.file = path, .object = model->tensors[i].name};
        if (global_model_name_is_reserved(model->tensors[i].name))
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "rename it in the model, or --freeze it",
                                     "a federation's model keeps the state of another parameter under such a name");
    }
    return true;
}

static bool make(Making *making, const char *path, Diagnostics *diagnostics)
{
    local_program_build(&making->program, &making->code, &making->planned.model);
    if (making->init.drawn) weights_draw(&making->code, &making->planned.model.graph, making->init.deviation);
    bool ok = true;
    for (uint32_t p = 0; p < making->code.stage.parameter_count; p++)
        ok &= check_parameter(making, p, path, diagnostics);
    if (!ok) return false;
    make_model(making);
    describe(making);
    if (making->start->model.elements == 0)
        return input_error(diagnostics, path, NULL, "no parameter of the model is trained");
    return check_tensor_names(&making->start->model, path, diagnostics);
}

bool federation_start_make(FederationStart *start, Federation *federation, const char *path,
                           const PlanModelOptions *plan, const ModelOptions *load, WeightInit init,
                           Diagnostics *diagnostics)
{
    Making making = {.federation = federation, .start = start, .init = init, .seed = load->seed, .clip = plan->clip};
    PlanModelOptions bound = *plan;
    bound.batch = BATCH_BOUND;
    *start = (FederationStart){0};
    bool ok = planned_model_load(&making.planned, &bound, path, load, diagnostics);
    if (ok && making.planned.model.graph.packing.slots)
        ok = input_error(diagnostics, path, "give one length with --dim seq=N",
                         "federations cannot train rows of several lengths yet");
    ok = ok && weights_check_names(&making.planned.model, diagnostics) && make(&making, path, diagnostics);
    local_program_free(&making.program);
    stage_free(&making.code);
    planned_model_free(&making.planned);
    arena_free(&making.arena);
    return ok;
}

static bool same_tensors(const GlobalModel *one, const GlobalModel *other)
{
    bool same = one->tensor_count == other->tensor_count;
    for (size_t i = 0; same && i < one->tensor_count; i++) {
        const GlobalTensor *found = global_model_find(other, one->tensors[i].name);
        same = found && shape_equal(&found->shape, &one->tensors[i].shape);
    }
    return same;
}

/* Files may have tensors in another order. */
static void copy_tensors(GlobalModel *to, const GlobalModel *from)
{
    if (from->momentum) to->momentum = memory_allocate(to->elements * sizeof *to->momentum);
    if (from->variance) to->variance = memory_allocate(to->elements * sizeof *to->variance);
    global_model_keep_control(to, from->control != NULL);
    if (from->remainder) global_model_keep_remainder(to);
    for (size_t i = 0; i < to->tensor_count; i++) {
        const GlobalTensor *tensor = &to->tensors[i], *found = global_model_find(from, tensor->name);
        size_t bytes = tensor->elements * sizeof *to->values;
        memcpy(to->values + tensor->first, from->values + found->first, bytes);
        if (from->momentum) memcpy(to->momentum + tensor->first, from->momentum + found->first, bytes);
        if (from->variance) memcpy(to->variance + tensor->first, from->variance + found->first, bytes);
        if (from->control) memcpy(to->control + tensor->first, from->control + found->first, bytes);
        if (from->remainder) memcpy(to->remainder + tensor->first, from->remainder + found->first, bytes);
    }
}

static bool take_former(FederationStart *start, Federation *federation, const Federation *was, GlobalModel *former,
                        const char *path, Diagnostics *diagnostics)
{
    GlobalModel *model = &start->model;
    const FederationCompiled *compiled = &was->compiled;
    const FederationPrivacy *before = &was->privacy, *now = &federation->privacy;
    if (strcmp(compiled->model_hash, federation->compiled.model_hash) != 0 ||
        strcmp(compiled->low_rank, federation->compiled.low_rank) != 0 || !same_tensors(model, former))
        return input_error(diagnostics, path, "use the same --lora, --freeze and --train as when it was trained",
                           "belongs to a federation that trains another model, or other parameters of it");
    if (former->round >= federation->rounds)
        return input_error(diagnostics, path, "raise --rounds",
                           "has already made %lld rounds, and this federation ends after %lld",
                           (long long)former->round, (long long)federation->rounds);
    if (before->clip != now->clip || before->noise != now->noise || before->delta != now->delta)
        return input_error(diagnostics, path, "keep the same dp in federation.yaml",
                           "was trained with different privacy settings, so epsilon would not count its rounds");
    if (was->codec != federation->codec)
        return input_error(diagnostics, path, "keep the same codec in federation.yaml",
                           "was trained with another codec, whose remainders the sites still hold");
    copy_tensors(model, former);
    model->round = former->round;
    model->branch = former->branch;
    model->spent = former->spent;
    federation->compiled.follows = compiled->identity;
    return true;
}

bool federation_start_follow(FederationStart *start, Federation *federation, const char *directory,
                             Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena scratch = {0};
    FREED_WITH(federation_free) Federation former = {0};
    FREED_WITH(global_model_free) GlobalModel model = {0};
    const char *path = arena_format(&scratch, "%s/model.safetensors", directory);
    int moments = outer_moments(federation->outer.kind);
    if (!federation_read_compiled(&former, arena_format(&scratch, "%s/federation.yaml", directory), diagnostics))
        return false;
    return global_model_open_file(&model, former.compiled.identity, path, moments, diagnostics) &&
           take_former(start, federation, &former, &model, path, diagnostics);
}

void federation_start_identify(FederationStart *start, Federation *federation)
{
    federation->compiled.identity = federation_hash(federation, hash_model(&start->model, &federation->compiled));
    start->model.identity = federation->compiled.identity;
}
