/* skycc verify: checks a plan and the proof of its bound, independently of the solver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "driver/commands/commands.h"
#include "partitioner/report/report.h"
#include "partitioner/verify/verify.h"
#include "partitioner/verify/verify_audit.h"
#include "profiler/costs/added_devices.h"

/* What the certificate proves, and about which plans: it names everything that was asked for. */
static void print_certified(const Report *report, const Verified *verified)
{
    const Plan *plan = report->plan;
    int64_t value = plan_value_ns(plan), optimum = plan_optimum_ns(plan);
    const char *objective = plan_objective_name(plan->objective), *leaves = verified->leaves == 1 ? "leaf" : "leaves";
    char bound[REPORT_TEXT], subject[REPORT_SENTENCE];
    report_subject(report, subject);
    if (plan->infeasible)
        text_print(stdout, "certified: no %s fits (certificate of %d %s)\n", subject, verified->leaves, leaves);
    else if (verified->certified_ns == value)
        text_print(stdout, "certified optimal: no %s has a smaller %s (certificate of %d %s)\n", subject, objective,
                   verified->leaves, leaves);
    else if (verified->certified_ns == optimum)
        text_print(stdout, "certified: no %s has a smaller %s than %s, %.3g%% less (certificate of %d %s)\n", subject,
                   objective, report_seconds(optimum, bound), 100.0 * (double)(value - optimum) / (double)value,
                   verified->leaves, leaves);
    else if (verified->certified_ns > 0)
        text_print(stdout, "certified: no %s has a %s below %s, %.3g%% less (certificate of %d %s)\n", subject,
                   objective, report_seconds(verified->certified_ns, bound),
                   100.0 * (double)(value - verified->certified_ns) / (double)value, verified->leaves, leaves);
    else
        text_print(stdout, "no lower bound is certified\n");
}

static void print_verdict(const Report *report, const Verified *verified)
{
    const Plan *plan = report->plan;
    char text[REPORT_TEXT], simulated[REPORT_TEXT];
    if (!plan->infeasible)
        text_print(stdout, "the plan is as it says: step time %s (simulated), objective: %s %s, on %d %s\n",
                   report_seconds(plan->simulated_step_ns, simulated), plan_objective_name(plan->objective),
                   report_seconds(plan_value_ns(plan), text), plan->rank_count,
                   plan->rank_count == 1 ? "device" : "devices");
    print_certified(report, verified);
    if (plan->infeasible) return;
    if (plan->microbatches_gain != 0)
        text_print(stdout, "not checked: what twice as many micro-batches would bring, which is about another plan\n");
    if (plan->objective == PLAN_OBJECTIVE_PERIOD && verified->certified_ns > 0)
        text_print(stdout, "the proof is about the period: another plan may have a shorter step\n");
    if (plan->proven_optimal && plan->lower_bound_ns > verified->certified_ns)
        text_print(stdout,
                   "accepted because of --allow-unproven: the plan calls itself proven optimal without a proof\n");
    if (plan->lower_bound_ns > verified->certified_ns)
        text_print(stdout, "not certified: the plan's own bound, %s, rests on the solver's search\n",
                   report_seconds(plan->lower_bound_ns, text));
}

/* What crossed in addition to tensors: how much of which class, both ways together. */
static void print_others(const WireAudit *audit)
{
    const char *separator = "other messages: ";
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
        text_print(stdout, "%lld of %lld starts did not end cleanly, so counts may be off by %lld steps%s\n",
                   (long long)loose, (long long)audit->starts, (long long)(AUDIT_LOOSE_STEPS * loose),
                   audit->evaluated_batches ? ", and those of activations by the length of an evaluation" : "");
    if (audit->cut_short)
        text_print(stdout, "%lld starts were cut short: messages of their last seconds are not counted\n",
                   (long long)audit->cut_short);
    if (audit->running)
        text_print(stdout, "the run has not ended, or was cut short: later messages are not counted here\n");
}

static bool verify_audits(const Options *options, const Plan *plan, const Costs *costs, Diagnostics *diagnostics)
{
    bool ok = true;
    for (size_t i = 0; i < options->audits.count; i++) {
        WireAudit audit;
        bool read = wire_audit_read(&audit, options->audits.items[i], diagnostics);
        bool good = read && plan_verify_audit(plan, costs, &audit, options->audits.items[i], diagnostics);
        if (good && !options->quiet) print_audit(&audit);
        if (read) wire_audit_free(&audit);
        ok = ok && good;
    }
    return ok;
}

/* compile writes costs.json next to plan.json. Another plan's costs are refused by their hash. */
static const char *find_costs(const Options *options, Arena *arena, Diagnostics *diagnostics)
{
    if (options->costs) return options->costs;
    const char *plan = options->plans[0], *name = strrchr(plan, '/');
    const char *costs = arena_format(arena, "%.*scosts.json", name ? (int)(name + 1 - plan) : 0, plan);
    if (access(costs, F_OK) == 0) return costs;
    usage_error(diagnostics, "skycc verify --help lists the options", "no costs: --costs FILE is missing");
    return NULL;
}

bool verify_command(const Options *options, Diagnostics *diagnostics)
{
    FREED_WITH(plan_free) Plan plan = {0};
    FREED_WITH(costs_free) Costs costs = {0};
    Verified verified;
    FREED_WITH(arena_free) Arena arena = {0};
    const TextList *added = &options->plan.added;
    const char *path = find_costs(options, &arena, diagnostics);
    if (!path || !plan_read_verdict(&plan, options->plans[0], diagnostics) || !costs_read(&costs, path, diagnostics) ||
        !costs_add_devices(&costs, added->items, (int)added->count, diagnostics) ||
        !plan_verify(&verified, &plan, &costs, options->allow_unproven, diagnostics))
        return false;
    if (!options->quiet) print_verdict(&(Report){.plan = &plan, .costs = &costs}, &verified);
    return verify_audits(options, &plan, &costs, diagnostics);
}
