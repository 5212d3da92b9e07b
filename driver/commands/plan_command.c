/* skycc plan: assigns layers to devices and proves how good the assignment is. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "driver/commands/commands.h"
#include "driver/compile/plan_load.h"
#include "driver/compile/smaller_microbatches.h"
#include "partitioner/report/report.h"

static bool check(const Options *options, Diagnostics *diagnostics)
{
    if (options->costs && options->plan.batch)
        return usage_error(diagnostics, "use --microbatches N, or plan from the model",
                           "--batch does not go with --costs, which are of micro-batches of one size");
    if (options->costs && options->plan.request.recompute == PLAN_RECOMPUTE_LAYERS)
        return usage_error(diagnostics, "plan from the model",
                           "--recompute layers changes the costs that --costs gives");
    if (options->costs ? !options->model && !options->plan.cluster : options->model && options->plan.cluster)
        return true;
    return usage_error(diagnostics, "skycc plan --help lists the options",
                       "give a model and a cluster (-d CLUSTER.yaml), or --costs");
}

static bool write_plan(const Plan *plan, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer buffer = {0};
    plan_print(plan, &buffer);
    return file_write_all(path, buffer.bytes, buffer.size, diagnostics);
}

static bool print_report(const Options *options, const PlannedModel *planned, Diagnostics *diagnostics)
{
    if (options->output && strcmp(options->output, "-") == 0 && !options->report) return true;
    FREED_WITH(buffer_free) Buffer buffer = {0};
    FREED_WITH(advice_free) Advice advice = {0};
    advice_make(&advice, &planned->plan, &planned->costs, planned->advice_deadline);
    smaller_microbatches_advise(planned, &options->plan, &advice);
    report_print(&(Report){.plan = &planned->plan, .costs = &planned->costs, .advice = &advice},
                 options->report ? options->report : "text", &buffer);
    return file_write_all("-", buffer.bytes, buffer.size, diagnostics);
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
    if (!ok) smaller_microbatches_hint(planned, &options->plan, diagnostics);
    if (planned->plan.infeasible && options->output) write_plan(&planned->plan, options->output, diagnostics);
    return ok && (!options->output || write_plan(&planned->plan, options->output, diagnostics)) &&
           print_report(options, planned, diagnostics) &&
           plan_check_limit(&planned->plan, "the", options->fail_above, diagnostics);
}

/* ---- federations ---- */

/* Options that name devices or concern a single plan do not apply to federations. */
static bool check_federation(const Options *options, Diagnostics *diagnostics)
{
    const struct {
        bool given;
        const char *name;
    } refused[] = {{options->plan.cluster, "--cluster"},
                   {options->costs, "--costs"},
                   {options->plan.batch, "--batch"},
                   {options->plan.without.count, "--without"},
                   {options->plan.pins.count, "--pin"},
                   {options->plan.added.count, "--add"},
                   {options->output, "--output"},
                   {!isinf(options->fail_above), "--fail-above"},
                   {options->report && strcmp(options->report, "html") == 0, "--report html"},
                   {options->report && strcmp(options->report, "svg") == 0, "--report svg"},
                   {options->plan.request.microbatches == PLAN_MICROBATCHES_AUTO, "--microbatches auto"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].given)
            return usage_error(diagnostics, "leave it out, or plan one cluster with -d CLUSTER.yaml",
                               "%s does not apply to --federation", refused[i].name);
    return options->model ||
           usage_error(diagnostics, "skycc plan --help lists the options", "--federation needs a model");
}

static bool plan_federation(const Options *options, Diagnostics *diagnostics)
{
    FREED_WITH(federation_plans_free) FederationPlans plans = {0};
    ModelOptions load = options->load;
    FREED_WITH(buffer_free) Buffer buffer = {0};
    load.train = load.import.no_weights = true;
    load.seed = options->seed;
    bool ok = check_federation(options, diagnostics) &&
              federation_plans_make(&plans, options->federation, &options->federation_wishes, options->model,
                                    &options->plan, &load, diagnostics);
    if (ok) {
        proposal_print(&plans.proposal, options->report ? options->report : "text", &buffer);
        ok = file_write_all("-", buffer.bytes, buffer.size, diagnostics);
        if (plans.proposal.proposed < 0)
            ok = diagnostics_error(diagnostics, EXIT_NO_PLAN, PLACE_FILE(options->federation), NULL,
                                   "no way to train on these sites fits their memory");
    }
    return ok;
}

bool plan_command(const Options *options, Diagnostics *diagnostics)
{
    FREED_WITH(planned_model_free) PlannedModel planned = {0};
    if (options->federation) return plan_federation(options, diagnostics);
    if (options->federation_wishes.local_steps || options->federation_wishes.overlap)
        return usage_error(diagnostics, NULL, "--local-steps and --overlap need --federation");
    return check(options, diagnostics) && make_plan(options, &planned, diagnostics);
}
