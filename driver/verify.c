/* skycc verify: checks a plan and the proof of its bound, independently of the solver. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver/commands.h"
#include "driver/options.h"
#include "partitioner/report.h"
#include "partitioner/verify.h"
#include "profiler/device_spec.h"

static const char usage[] =
    "usage: skycc verify PLAN.json --costs COSTS.json\n"
    "\n"
    "Recomputes every number of a plan from the costs, runs its schedule in the simulator and checks the certificate "
    "of its\n"
    "lower bound, or of that nothing fits, with exact integers. Exits 1, saying why, if anything is not as the plan\n"
    "says.\n"
    "\n"
    "  --costs FILE   the costs the plan was made from (compile leaves costs.json beside it)\n"
    "  --add SPEC     a device that skycc plan --costs was told to add\n"
    "  -q, --quiet    print nothing if all is well\n"
    "  -h, --help     this text\n";

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
    if (plan->lower_bound_ns > verified->certified_ns)
        printf("not certified: the rest of the plan's own bound, %s, which rests on the solver's search\n",
               report_seconds(plan->lower_bound_ns, bound));
}

typedef struct VerifyOptions {
    const char *plan, *costs, **added;
    int added_count, added_capacity;
    bool quiet;
} VerifyOptions;

/* -1: go on; else the exit code. */
static int parse(VerifyOptions *options, int argc, char **argv, Diagnostics *diagnostics)
{
    enum { OPTION_COSTS = 256, OPTION_ADD };
    static const struct option long_options[] = {
        {"costs", required_argument, NULL, OPTION_COSTS},
        {"add", required_argument, NULL, OPTION_ADD},
        {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "-qh", long_options, NULL)) != -1;) {
        if (option == 'h') return fputs(usage, stdout), EXIT_OK;
        if (option == '?') return option_refused("verify");
        if (option == OPTION_COSTS) options->costs = optarg;
        if (option == OPTION_ADD) array_push(options->added, options->added_count, options->added_capacity, optarg);
        if (option == 'q') options->quiet = true;
        if (option == 1 && options->plan) return option_unexpected(optarg, diagnostics), EXIT_USAGE;
        if (option == 1) options->plan = optarg;
    }
    if (options->plan && options->costs) return -1;
    diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "skycc verify --help", "give a plan, and --costs");
    return EXIT_USAGE;
}

static bool verify(const VerifyOptions *options, Diagnostics *diagnostics)
{
    Plan plan;
    Costs costs;
    Verified verified;
    if (!plan_read_verdict(&plan, options->plan, diagnostics)) return false;
    bool ok = costs_read(&costs, options->costs, diagnostics);
    if (ok) {
        ok = device_specs_add(&costs, options->added, options->added_count, diagnostics) &&
             plan_verify(&verified, &plan, &costs, diagnostics);
        if (ok && !options->quiet) print_verdict(&plan, &verified);
        costs_free(&costs);
    }
    plan_free(&plan);
    return ok;
}

int verify_main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    VerifyOptions options = {0};
    int code = parse(&options, argc, argv, &diagnostics);
    if (code < 0) code = verify(&options, &diagnostics) ? EXIT_OK : diagnostics.exit_code;
    diagnostics_print(&diagnostics, stderr);
    free(options.added);
    diagnostics_free(&diagnostics);
    return code;
}
