#include "driver/plan_model.h"

#include <stdlib.h>
#include <string.h>

#include "driver/pins.h"
#include "partitioner/problem.h"
#include "profiler/device_spec.h"

enum { DEFAULT_MICROBATCHES = 8 };

void plan_model_defaults(PlanModelOptions *options)
{
    *options = (PlanModelOptions){.request = PLAN_REQUEST_DEFAULT, .fail_above = -1};
    options->request.microbatches = DEFAULT_MICROBATCHES;
}

/* The number of the name `text` among `count` names. */
static bool parse_choice(const char *option, const char *text, const char *(*name)(int), int count, int *choice,
                         Diagnostics *diagnostics)
{
    Buffer names = {0};
    for (int i = 0; i < count; i++) {
        if (strcmp(text, name(i)) == 0) *choice = i;
        buffer_print(&names, i ? ", %s" : "%s", name(i));
    }
    if (*choice < 0)
        diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL, "%s takes one of %s, not '%s'", option,
                          buffer_text(&names), text);
    buffer_free(&names);
    return *choice >= 0;
}

static const char *allocator_name(int i) { return plan_allocator_name((PlanAllocator)i); }
static const char *objective_name(int i) { return plan_objective_name((PlanObjective)i); }
static const char *recompute_name(int i) { return plan_recompute_name((PlanRecompute)i); }
static const char *schedule_name(int i) { return plan_schedule_name((PlanSchedule)i); }

bool plan_model_option(PlanModelOptions *options, int option, char *argument, Diagnostics *diagnostics)
{
    int64_t number;
    int choice = -1;
    switch (option) {
    case 'd': options->cluster = argument; return true;
    case OPTION_PROFILE: options->profile = argument; return true;
    case OPTION_DIM: return option_dimension(&options->dimensions, argument, diagnostics);
    case OPTION_MICROBATCHES:
        options->request.microbatches = PLAN_MICROBATCHES_AUTO;
        if (strcmp(argument, "auto") == 0) return true;
        if (!option_integer("--microbatches", argument, 1, COSTS_MAX_MICROBATCHES, &number, diagnostics)) return false;
        options->request.microbatches = (int)number;
        return true;
    case OPTION_ALLOCATE:
        if (!parse_choice("--allocate", argument, allocator_name, PLAN_ALLOCATOR_COUNT, &choice, diagnostics))
            return false;
        options->request.allocate = (PlanAllocator)choice;
        return true;
    case OPTION_OBJECTIVE:
        if (!parse_choice("--objective", argument, objective_name, 2, &choice, diagnostics)) return false;
        options->request.objective = (PlanObjective)choice;
        return true;
    case OPTION_TIME_LIMIT:
        return option_number("--time-limit", argument, 0, 1e9, &options->request.time_limit_s, diagnostics);
    case OPTION_SCHEDULE:
        if (!parse_choice("--schedule", argument, schedule_name, PLAN_SCHEDULE_COUNT, &choice, diagnostics))
            return false;
        options->request.schedule = (PlanSchedule)choice;
        return true;
    case OPTION_RECOMPUTE:
        if (!parse_choice("--recompute", argument, recompute_name, PLAN_RECOMPUTE_COUNT, &choice, diagnostics))
            return false;
        options->request.recompute = (PlanRecompute)choice;
        return true;
    case OPTION_WITHOUT:
        array_push(options->without, options->without_count, options->without_capacity, argument);
        return true;
    case OPTION_ADD: array_push(options->added, options->added_count, options->added_capacity, argument); return true;
    case OPTION_PIN: array_push(options->pins, options->pin_count, options->pin_capacity, argument); return true;
    case OPTION_FAIL_ABOVE: return option_number("--fail-above", argument, 0, 1e9, &options->fail_above, diagnostics);
    case OPTION_LOSS: options->load.loss = argument; return true;
    case OPTION_OPTIMIZER: options->load.optimizer = argument; return true;
    case OPTION_DROPOUT: return option_dropout(&options->load.import, argument, diagnostics);
    case OPTION_PRECISION: return option_precision(&options->load.bf16, argument, diagnostics);
    case OPTION_NO_PRUNE: return options->load.no_pruning = true;
    case OPTION_KEEP_TIES: return options->load.import.keep_ties = true;
    case OPTION_UNTIE: return options->load.import.untie = true;
    default: return false;
    }
}

void plan_model_options_free(PlanModelOptions *options)
{
    free(options->dimensions.items);
    free(options->without);
    free(options->pins);
    free(options->added);
}

bool planned_model_read_costs(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                              Diagnostics *diagnostics)
{
    return costs_read(&planned->costs, path, diagnostics) &&
           device_specs_add(&planned->costs, options->added, options->added_count, diagnostics);
}

bool planned_model_load(PlannedModel *planned, const PlanModelOptions *options, const ModelOptions *load,
                        Diagnostics *diagnostics)
{
    ModelOptions bound = *load;
    bound.want_loss = true;
    bound.import.dimensions = options->dimensions.items;
    bound.import.dimension_count = options->dimensions.count;
    return cluster_read_with(&planned->cluster, options->cluster, options->added, options->added_count, diagnostics) &&
           training_model_load(&planned->model, options->model, &bound, diagnostics);
}

/* What a report calls the model: its file's name without folders and suffix. */
static const char *model_name(Arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    return arena_string_n(arena, name, dot && dot != name ? (size_t)(dot - name) : strlen(name));
}

bool planned_model_costs(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics)
{
    char hash[33];
    if (options->profile && !profile_read(&planned->profile, options->profile, diagnostics)) return false;
    return model_costs(
        &planned->costs, &planned->model.graph, &planned->cluster, options->profile ? &planned->profile : NULL,
        model_name(&planned->model.graph.arena, options->model), hash_format(planned->model.imported.onnx.hash, hash),
        options->request.microbatches > 0 ? options->request.microbatches : DEFAULT_MICROBATCHES, diagnostics);
}

bool planned_model_plan(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics)
{
    PlanRequest request = options->request;
    planned->advice_deadline = monotonic_seconds() + request.time_limit_s + 0.5;
    request.without = options->without;
    request.without_count = options->without_count;
    request.pins = pins_read(options->pins, options->pin_count, &planned->costs, &planned->arena, diagnostics);
    request.pin_count = options->pin_count;
    return request.pins && plan_make(&planned->plan, &planned->costs, &request, diagnostics);
}

bool planned_model_check_limit(const PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics)
{
    double seconds = (double)plan_value_ns(&planned->plan) / 1e9;
    if (options->fail_above < 0 || seconds <= options->fail_above) return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL,
                             "the %s takes %g s, more than the %g s allowed",
                             plan_objective_name(planned->plan.objective), seconds, options->fail_above);
}

void planned_model_free(PlannedModel *planned)
{
    arena_free(&planned->arena);
    plan_free(&planned->plan);
    costs_free(&planned->costs);
    profile_free(&planned->profile);
    training_model_free(&planned->model);
    cluster_free(&planned->cluster);
}
