/* skycc verify: checks a plan and the proof of its bound, independently of the solver. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "driver/commands/commands.h"
#include "partitioner/report/report.h"
#include "partitioner/verify/verify.h"
#include "partitioner/verify/verify_audit.h"
#include "profiler/costs/added_devices.h"

static void print_verdict(const Plan *plan, const Verified *verified)
{
    char value[REPORT_TEXT], bound[REPORT_TEXT];
    const char *objective = plan_objective_name(plan->objective);
    if (plan->infeasible) {
        text_print(stdout, "certified: nothing fits (%d %s)\n", verified->leaves,
                   verified->leaves == 1 ? "leaf" : "leaves");
        return;
    }
    text_print(stdout, "the plan is as it says: %s %s on %d devices\n", objective,
               report_seconds(plan_value_ns(plan), value), plan->rank_count);
    if (verified->certified_ns == plan_value_ns(plan))
        text_print(stdout, "certified optimal: no plan has a smaller %s (%d %s)\n", objective, verified->leaves,
                   verified->leaves == 1 ? "leaf" : "leaves");
    else if (verified->certified_ns > 0)
        text_print(stdout, "certified: no plan has a %s below %s, %.3g%% less (%d %s)\n", objective,
                   report_seconds(verified->certified_ns, bound),
                   100.0 * (double)(plan_value_ns(plan) - verified->certified_ns) / (double)plan_value_ns(plan),
                   verified->leaves, verified->leaves == 1 ? "leaf" : "leaves");
    else
        text_print(stdout, "no lower bound is certified\n");
    if (plan->proven_optimal && plan->lower_bound_ns > verified->certified_ns)
        text_print(stdout, "accepted as asked: the plan calls itself proven optimal without the proof\n");
    if (plan->lower_bound_ns > verified->certified_ns)
        text_print(stdout, "not certified: the rest of the plan's own bound, %s, which rests on the solver's search\n",
                   report_seconds(plan->lower_bound_ns, bound));
}

/* Of what crossed, beside the tensors: how much of which class, both ways together. */
static void print_others(const WireAudit *audit)
{
    const char *separator = "beside them: ";
    for (WireClass what = WIRE_CLASS_TENSOR + 1; what < WIRE_CLASS_COUNT; ++what) {
        int64_t messages = 0, bytes = 0;
        for (size_t i = 0; i < audit->crossing_count; i++) {
            if (audit->crossings[i].what != what) continue;
            messages += audit->crossings[i].messages;
            bytes += audit->crossings[i].bytes;
        }
        if (!messages) continue;
        text_print(stdout, "%s%s %lld of %lld bytes", separator, wire_class_name(what), (long long)messages,
                   (long long)bytes);
        separator = ", ";
    }
    if (separator[0] == ',') text_print(stdout, "\n");
}

static void print_audit(const WireAudit *audit)
{
    int64_t messages = 0, bytes = 0, tensors = 0, loose = audit->broken_off + audit->cut_short + audit->running;
    for (size_t i = 0; i < audit->crossing_count; i++) {
        if (audit->crossings[i].what != WIRE_CLASS_TENSOR) continue;
        tensors++;
        messages += audit->crossings[i].messages;
        bytes += audit->crossings[i].bytes;
    }
    text_print(stdout,
               "what crossed at site %s is in the plan: %lld tensors in %lld messages of %lld bytes, for %lld steps",
               audit->site, (long long)tensors, (long long)messages, (long long)bytes, (long long)audit->steps);
    if (audit->repeated_steps) text_print(stdout, ", %lld of them repeated", (long long)audit->repeated_steps);
    if (audit->evaluated_batches)
        text_print(stdout, ", and %lld evaluated batches", (long long)audit->evaluated_batches);
    text_print(stdout, "\n");
    print_others(audit);
    if (loose)
        text_print(stdout,
                   "%lld of %lld starts did not come to a good end: counts were allowed to be off by %lld steps%s\n",
                   (long long)loose, (long long)audit->starts, (long long)(AUDIT_LOOSE_STEPS * loose),
                   audit->evaluated_batches ? ", those of activations by evaluations, too" : "");
    if (audit->cut_short)
        text_print(stdout, "%lld starts were cut short: what crossed in their last seconds is not counted\n",
                   (long long)audit->cut_short);
    if (audit->running)
        text_print(stdout, "the run has not ended, or was cut short: what crosses from now on is not counted here\n");
}

static bool verify_audits(const Options *options, const Plan *plan, Diagnostics *diagnostics)
{
    bool ok = true;
    for (size_t i = 0; i < options->audits.count; i++) {
        WireAudit audit;
        bool read = wire_audit_read(&audit, options->audits.items[i], diagnostics);
        bool good = read && plan_verify_audit(plan, &audit, options->audits.items[i], diagnostics);
        if (good && !options->quiet) print_audit(&audit);
        if (read) wire_audit_free(&audit);
        ok = ok && good;
    }
    return ok;
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
        ok = costs_add_devices(&costs, added->items, (int)added->count, diagnostics) &&
             plan_verify(&verified, &plan, &costs, options->allow_unproven, diagnostics);
        if (ok && !options->quiet) print_verdict(&plan, &verified);
        ok = ok && verify_audits(options, &plan, diagnostics);
        costs_free(&costs);
    }
    plan_free(&plan);
    return ok;
}

int verify_command(const Options *options, Diagnostics *diagnostics)
{
    return verify(options, diagnostics) ? EXIT_OK : diagnostics->exit_code;
}
