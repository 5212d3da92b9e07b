/* skycc plan: which layers run where, how long a step takes, and how good that provably is. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "driver/commands.h"
#include "driver/plan_model.h"
#include "partitioner/report.h"

static const char usage[] =
    "usage: skycc plan MODEL.onnx -d CLUSTER.yaml [options]\n"
    "       skycc plan --costs COSTS.json [options]\n"
    "\n"
    "Assigns the layers of a model to the devices of a cluster and proves how good the assignment is.\n"
    "\n"
    "  --costs FILE          times and sizes of the layers and devices, instead of a model and a cluster\n"
    "  -o, --output FILE     write plan.json there\n"
    "  --report FORM         what to print: text (default), json or html\n"
    "  --without DEVICE      leave a device out (may be repeated)\n"
    "  --pin LAYERS=DEVICE   keep layers on a device: a name, the beginning of names, or FIRST-LAST by name or number\n"
    "  --fail-above SECONDS  exit 1 if the step (or the period, if that is the objective) is longer\n" PLAN_OPTIONS_HELP
    "  --optimizer SPEC      what training will use\n"
    "  -h, --help            this text\n";

typedef struct PlanOptions {
    PlanModelOptions plan;
    const char *costs, *output, *report;
    const char **without, **pins;
    int without_count, without_capacity, pin_count, pin_capacity;
    double fail_above; /* < 0: no limit */
} PlanOptions;

enum { OPTION_COSTS = 256, OPTION_REPORT, OPTION_WITHOUT, OPTION_PIN, OPTION_FAIL_ABOVE };

static const struct option long_options[] = {
    PLAN_LONG_OPTIONS,
    {"costs", required_argument, NULL, OPTION_COSTS},
    {"output", required_argument, NULL, 'o'},
    {"report", required_argument, NULL, OPTION_REPORT},
    {"without", required_argument, NULL, OPTION_WITHOUT},
    {"pin", required_argument, NULL, OPTION_PIN},
    {"fail-above", required_argument, NULL, OPTION_FAIL_ABOVE},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static bool parse_report(PlanOptions *options, const char *value, Diagnostics *diagnostics)
{
    options->report = value;
    if (strcmp(value, "text") == 0 || strcmp(value, "json") == 0 || strcmp(value, "html") == 0) return true;
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL, "--report takes text, json or html, not '%s'",
                             value);
}

static bool parse_option(PlanOptions *options, int option, char *value, Diagnostics *diagnostics)
{
    switch (option) {
    case OPTION_COSTS: options->costs = value; return true;
    case 'o': options->output = value; return true;
    case OPTION_REPORT: return parse_report(options, value, diagnostics);
    case OPTION_FAIL_ABOVE: return option_number("--fail-above", value, 0, 1e9, &options->fail_above, diagnostics);
    case OPTION_WITHOUT:
        array_push(options->without, options->without_count, options->without_capacity, value);
        return true;
    case OPTION_PIN: array_push(options->pins, options->pin_count, options->pin_capacity, value); return true;
    default: return plan_model_option(&options->plan, option, value, diagnostics);
    }
}

/* -1: go on; else the exit code. */
static int parse(PlanOptions *options, int argc, char **argv, Diagnostics *diagnostics)
{
    *options = (PlanOptions){.fail_above = -1};
    plan_model_defaults(&options->plan);
    int default_microbatches = options->plan.request.microbatches;
    options->plan.request.microbatches = 0;
    options->plan.load.train = true;
    options->plan.load.import.no_weights = true; /* their values do not matter here */
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "-o:d:h", long_options, NULL)) != -1;) {
        if (option == 'h') return fputs(usage, stdout), EXIT_OK;
        if (option == '?') return fputs(usage, stderr), EXIT_USAGE;
        if (option == 1 && !options->plan.model)
            options->plan.model = optarg;
        else if (option == 1 ? !diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL, "what is '%s'?", optarg)
                             : !parse_option(options, option, optarg, diagnostics))
            return EXIT_USAGE;
    }
    options->plan.request.without = options->without;
    options->plan.request.without_count = options->without_count;
    if (options->plan.model && options->plan.request.microbatches == 0)
        options->plan.request.microbatches = default_microbatches; /* costs bring their own number */
    if (options->costs ? !options->plan.model && !options->plan.cluster : options->plan.model && options->plan.cluster)
        return -1;
    diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "skycc plan --help lists the options",
                      "give either a model and a cluster (-d CLUSTER.yaml), or --costs");
    return EXIT_USAGE;
}

/* ---- pins ---- */

/* A layer by name or number; -1 if there is none. */
static int find_layer(const Costs *costs, const char *text)
{
    for (int l = 0; l < costs->layer_count; l++)
        if (strcmp(costs->layers[l].name, text) == 0) return l;
    char *end;
    long number = strtol(text, &end, 10);
    return end != text && !*end && number >= 0 && number < costs->layer_count ? (int)number : -1;
}

static bool begins_with(const char *name, const char *beginning)
{
    size_t length = strlen(beginning);
    return strncmp(name, beginning, length) == 0 && (name[length] == '.' || name[length] == '/' || !name[length]);
}

/* The layers whose names are `text` or begin with it; first -1 if there are none. */
static void find_beginning(const Costs *costs, const char *text, int *first, int *last)
{
    *first = *last = -1;
    for (int l = 0; l < costs->layer_count; l++) {
        if (!begins_with(costs->layers[l].name, text)) continue;
        if (*first < 0) *first = l;
        *last = l;
    }
}

/* NAME, NUMBER, BEGINNING, FIRST-LAST of these, or "encoder.0-3": the last part of the name counts on. */
static void find_range(Arena *arena, const Costs *costs, const char *text, int *first, int *last)
{
    int unused;
    find_beginning(costs, text, first, last);
    if (*first < 0) *first = *last = find_layer(costs, text);
    for (const char *dash = strchr(text, '-'); dash && *first < 0; dash = strchr(dash + 1, '-')) {
        char *left = arena_string_n(arena, text, (size_t)(dash - text)), *dot = strrchr(left, '.');
        const char *right = dash + 1;
        find_beginning(costs, left, first, &unused);
        if (*first < 0) *first = find_layer(costs, left);
        find_beginning(costs, right, &unused, last);
        if (*last < 0) *last = find_layer(costs, right);
        if (*first >= 0 && dot) {
            int counted_on;
            find_beginning(costs, arena_format(arena, "%.*s%s", (int)(dot + 1 - left), left, right), &unused,
                           &counted_on);
            if (counted_on >= 0) *last = counted_on;
        }
        if (*last < *first || *last < 0) *first = -1;
    }
}

static bool read_pins(PlanOptions *options, Arena *arena, const Costs *costs, Diagnostics *diagnostics)
{
    PlanPin *pins = arena_new_array(arena, PlanPin, (size_t)options->pin_count);
    for (int i = 0; i < options->pin_count; i++) {
        const char *text = options->pins[i], *equals = strrchr(text, '=');
        if (!equals)
            return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL, "--pin takes LAYERS=DEVICE, not '%s'",
                                     text);
        char *layers = arena_string_n(arena, text, (size_t)(equals - text));
        pins[i].device = equals + 1;
        find_range(arena, costs, layers, &pins[i].first_layer, &pins[i].last_layer);
        if (pins[i].first_layer < 0)
            return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL, "--pin: no layers match '%s'", layers);
    }
    options->plan.request.pins = pins;
    options->plan.request.pin_count = options->pin_count;
    return true;
}

/* ---- the command ---- */

static bool write_plan(const Plan *plan, const char *path, Diagnostics *diagnostics)
{
    Buffer buffer = {0};
    plan_print(plan, &buffer);
    bool ok = file_write_all(path, buffer.bytes, buffer.size, diagnostics);
    buffer_free(&buffer);
    return ok;
}

static bool print_report(const PlanOptions *options, const Plan *plan, const Costs *costs, Diagnostics *diagnostics)
{
    if (options->output && strcmp(options->output, "-") == 0 && !options->report) return true;
    Buffer buffer = {0};
    report_print(plan, costs, options->report ? options->report : "text", &buffer);
    bool ok = file_write_all("-", buffer.bytes, buffer.size, diagnostics);
    buffer_free(&buffer);
    return ok;
}

static bool check_limit(const PlanOptions *options, const Plan *plan, Diagnostics *diagnostics)
{
    double seconds = (double)plan_value_ns(plan) / 1e9;
    if (options->fail_above < 0 || seconds <= options->fail_above) return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL,
                             "the %s takes %g s, more than the %g s allowed", plan_objective_name(plan->objective),
                             seconds, options->fail_above);
}

static bool make_plan(PlanOptions *options, PlannedModel *planned, Arena *arena, Diagnostics *diagnostics)
{
    if (options->costs) {
        if (!costs_read(&planned->costs, options->costs, diagnostics)) return false;
    } else if (!planned_model_load(planned, &options->plan, &options->plan.load, diagnostics) ||
               !planned_model_costs(planned, &options->plan, diagnostics)) {
        return false;
    }
    return read_pins(options, arena, &planned->costs, diagnostics) &&
           planned_model_plan(planned, &options->plan, diagnostics) &&
           (!options->output || write_plan(&planned->plan, options->output, diagnostics)) &&
           print_report(options, &planned->plan, &planned->costs, diagnostics) &&
           check_limit(options, &planned->plan, diagnostics);
}

int plan_main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    PlanOptions options;
    PlannedModel planned = {0};
    Arena arena = {0};
    int code = parse(&options, argc, argv, &diagnostics);
    if (code < 0) code = make_plan(&options, &planned, &arena, &diagnostics) ? EXIT_OK : diagnostics.exit_code;
    diagnostics_print(&diagnostics, stderr);
    planned_model_free(&planned);
    plan_model_options_free(&options.plan);
    arena_free(&arena);
    diagnostics_free(&diagnostics);
    free(options.without);
    free(options.pins);
    return code;
}
