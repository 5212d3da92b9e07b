/* skycc plan: which layers run where, how long a step takes, and how good that provably is. */
#include <string.h>

#include "base/file.h"
#include "driver/commands/commands.h"
#include "driver/compile/plan_model.h"
#include "partitioner/report/report.h"

/* A model and a cluster, or costs. */
static bool check(const Options *options, Diagnostics *diagnostics)
{
    if (options->costs ? !options->model && !options->plan.cluster : options->model && options->plan.cluster)
        return true;
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "skycc plan --help lists the options",
                             "give either a model and a cluster (-d CLUSTER.yaml), or --costs");
}

static bool write_plan(const Plan *plan, const char *path, Diagnostics *diagnostics)
{
    Buffer buffer = {0};
    plan_print(plan, &buffer);
    bool ok = file_write_all(path, buffer.bytes, buffer.size, diagnostics);
    buffer_free(&buffer);
    return ok;
}

static bool print_report(const Options *options, const PlannedModel *planned, Diagnostics *diagnostics)
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

static bool load(const Options *options, PlannedModel *planned, Diagnostics *diagnostics)
{
    if (options->costs) return planned_model_read_costs(planned, &options->plan, options->costs, diagnostics);
    ModelOptions load = options->load;
    load.train = true;
    load.import.no_weights = true; /* their values do not matter here */
    if (!planned_model_load(planned, &options->plan, options->model, &load, diagnostics)) return false;
    return planned_model_costs(planned, &options->plan, diagnostics);
}

static bool make_plan(const Options *options, PlannedModel *planned, Diagnostics *diagnostics)
{
    if (!load(options, planned, diagnostics)) return false;
    bool ok = planned_model_plan(planned, &options->plan, diagnostics);
    if (planned->plan.infeasible && options->output) write_plan(&planned->plan, options->output, diagnostics);
    return ok && (!options->output || write_plan(&planned->plan, options->output, diagnostics)) &&
           print_report(options, planned, diagnostics) &&
           plan_check_limit(&planned->plan, "the", options->fail_above, diagnostics);
}

int plan_command(const Options *options, Diagnostics *diagnostics)
{
    PlannedModel planned = {0};
    bool ok = check(options, diagnostics) && make_plan(options, &planned, diagnostics);
    planned_model_free(&planned);
    return ok ? EXIT_OK : diagnostics->exit_code;
}
