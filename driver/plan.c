/* skycc plan: which layers run where, how long a step takes, and how good that provably is. */
#include <getopt.h>
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
    "  --report FORM         what to print: text (default), json or html\n" PLAN_OPTIONS_HELP
    "  --optimizer SPEC      what training will use\n"
    "  -h, --help            this text\n";

typedef struct PlanOptions {
    PlanModelOptions plan;
    const char *costs, *output, *report;
} PlanOptions;

enum { OPTION_COSTS = 256, OPTION_REPORT };

static const struct option long_options[] = {
    PLAN_LONG_OPTIONS,
    {"costs", required_argument, NULL, OPTION_COSTS},
    {"output", required_argument, NULL, 'o'},
    {"report", required_argument, NULL, OPTION_REPORT},
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
    default: return plan_model_option(&options->plan, option, value, diagnostics);
    }
}

/* -1: go on; else the exit code. */
static int parse(PlanOptions *options, int argc, char **argv, Diagnostics *diagnostics)
{
    *options = (PlanOptions){0};
    plan_model_defaults(&options->plan);
    int default_microbatches = options->plan.request.microbatches;
    options->plan.request.microbatches = 0;
    options->plan.load.train = true;
    options->plan.load.import.no_weights = true; /* their values do not matter here */
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "-o:d:h", long_options, NULL)) != -1;) {
        if (option == 'h') return fputs(usage, stdout), EXIT_OK;
        if (option == '?') return option_refused("plan");
        if (option == 1 && !options->plan.model)
            options->plan.model = optarg;
        else if (option == 1 ? !option_unexpected(optarg, diagnostics)
                             : !parse_option(options, option, optarg, diagnostics))
            return EXIT_USAGE;
    }
    if (options->plan.model && options->plan.request.microbatches == 0)
        options->plan.request.microbatches = default_microbatches; /* costs bring their own number */
    if (options->costs ? !options->plan.model && !options->plan.cluster : options->plan.model && options->plan.cluster)
        return -1;
    diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "skycc plan --help lists the options",
                      "give either a model and a cluster (-d CLUSTER.yaml), or --costs");
    return EXIT_USAGE;
}

static bool write_plan(const Plan *plan, const char *path, Diagnostics *diagnostics)
{
    Buffer buffer = {0};
    plan_print(plan, &buffer);
    bool ok = file_write_all(path, buffer.bytes, buffer.size, diagnostics);
    buffer_free(&buffer);
    return ok;
}

static bool print_report(const PlanOptions *options, const PlannedModel *planned, Diagnostics *diagnostics)
{
    if (options->output && strcmp(options->output, "-") == 0 && !options->report) return true;
    Buffer buffer = {0};
    Advice advice;
    advice_make(&advice, &planned->plan, &planned->costs, planned->advice_deadline);
    report_print(&(Report){&planned->plan, &planned->costs, &advice}, options->report ? options->report : "text",
                 &buffer);
    bool ok = file_write_all("-", buffer.bytes, buffer.size, diagnostics);
    advice_free(&advice);
    buffer_free(&buffer);
    return ok;
}

static bool make_plan(const PlanOptions *options, PlannedModel *planned, Diagnostics *diagnostics)
{
    if (options->costs) {
        if (!planned_model_read_costs(planned, &options->plan, options->costs, diagnostics)) return false;
    } else if (!planned_model_load(planned, &options->plan, &options->plan.load, diagnostics) ||
               !planned_model_costs(planned, &options->plan, diagnostics)) {
        return false;
    }
    bool ok = planned_model_plan(planned, &options->plan, diagnostics);
    if (planned->plan.infeasible && options->output) write_plan(&planned->plan, options->output, diagnostics);
    return ok && (!options->output || write_plan(&planned->plan, options->output, diagnostics)) &&
           print_report(options, planned, diagnostics) &&
           planned_model_check_limit(planned, &options->plan, diagnostics);
}

int plan_main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    PlanOptions options;
    PlannedModel planned = {0};
    int code = parse(&options, argc, argv, &diagnostics);
    if (code < 0) code = make_plan(&options, &planned, &diagnostics) ? EXIT_OK : diagnostics.exit_code;
    diagnostics_print(&diagnostics, stderr);
    planned_model_free(&planned);
    plan_model_options_free(&options.plan);
    diagnostics_free(&diagnostics);
    return code;
}
