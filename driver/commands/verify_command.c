/* skycc verify: checks a plan and the proof of its bound, independently of the solver. */
#include <stdio.h>
#include <stdlib.h>

#include "driver/commands/commands.h"
#include "partitioner/report/report.h"
#include "partitioner/verify/verify.h"
#include "profiler/costs/device_spec.h"

static void print_verdict(const Plan *plan, const Verified *verified)
{
    char value[REPORT_TEXT], bound[REPORT_TEXT];
    const char *objective = plan_objective_name(plan->objective);
    if (plan->infeasible) {
        printf("certified: nothing fits (%d %s)\n", verified->leaves, verified->leaves == 1 ? "leaf" : "leaves");
        return;
    }
    printf("the plan is as it says: %s %s on %d devices\n", objective, report_seconds(plan_value_ns(plan), value),
           plan->rank_count);
    if (verified->certified_ns == plan_value_ns(plan))
        printf("certified optimal: no plan has a smaller %s (%d %s)\n", objective, verified->leaves,
               verified->leaves == 1 ? "leaf" : "leaves");
    else if (verified->certified_ns > 0)
        printf("certified: no plan has a %s below %s, %.3g%% less (%d %s)\n", objective,
               report_seconds(verified->certified_ns, bound),
               100.0 * (double)(plan_value_ns(plan) - verified->certified_ns) / (double)plan_value_ns(plan),
               verified->leaves, verified->leaves == 1 ? "leaf" : "leaves");
    else
        printf("no lower bound is certified\n");
    if (plan->proven_optimal && plan->lower_bound_ns > verified->certified_ns)
        printf("accepted as asked: the plan calls itself proven optimal without the proof\n");
    if (plan->lower_bound_ns > verified->certified_ns)
        printf("not certified: the rest of the plan's own bound, %s, which rests on the solver's search\n",
               report_seconds(plan->lower_bound_ns, bound));
}

static bool verify(const Options *options, Diagnostics *diagnostics)
{
    Plan plan;
    Costs costs;
    Verified verified;
    const TextList *added = &options->plan.added;
    if (!plan_read_verdict(&plan, options->plans[0], diagnostics)) return false;
    bool ok = costs_read(&costs, options->costs, diagnostics);
    if (ok) {
        ok = device_specs_add(&costs, added->items, (int)added->count, diagnostics) &&
             plan_verify(&verified, &plan, &costs, options->allow_unproven, diagnostics);
        if (ok && !options->quiet) print_verdict(&plan, &verified);
        costs_free(&costs);
    }
    plan_free(&plan);
    return ok;
}

int verify_command(const Options *options, Diagnostics *diagnostics)
{
    return verify(options, diagnostics) ? EXIT_OK : diagnostics->exit_code;
}
