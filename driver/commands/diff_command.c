/* skycc diff: what changed between two plans. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "driver/commands/commands.h"
#include "partitioner/report/report.h"

static void print_times(const char *what, int64_t before, int64_t after)
{
    char a[REPORT_TEXT], b[REPORT_TEXT];
    if (before == after) {
        text_print(stdout, "%-15s %s, unchanged\n", what, report_seconds(before, a));
        return;
    }
    text_print(stdout, "%-15s %s -> %s", what, report_seconds(before, a), report_seconds(after, b));
    if (before > 0) text_print(stdout, " (%+.2f%%)", 100 * ((double)after / (double)before - 1));
    text_print(stdout, "\n");
}

static void print_words(const char *what, const char *before, const char *after)
{
    if (strcmp(before, after) != 0) text_print(stdout, "%-15s %s -> %s\n", what, before, after);
}

static void print_numbers(const char *what, int before, int after)
{
    if (before != after) text_print(stdout, "%-15s %d -> %d\n", what, before, after);
}

static void print_question(const Plan *before, const Plan *after)
{
    if (strcmp(before->model_hash, after->model_hash) != 0)
        text_print(stdout, "the plans were made for different models\n");
    else if (strcmp(before->costs_hash, after->costs_hash) != 0)
        text_print(stdout, "the plans were made for different costs\n");
    print_words("allocator", plan_allocator_name(before->allocator), plan_allocator_name(after->allocator));
    print_words("objective", plan_objective_name(before->objective), plan_objective_name(after->objective));
    print_words("schedule", plan_schedule_name(before->schedule), plan_schedule_name(after->schedule));
    print_words("recompute", plan_recompute_name(before->recompute), plan_recompute_name(after->recompute));
    print_numbers("micro-batches", before->microbatches, after->microbatches);
}

static void print_proof(const char *what, const Plan *plan)
{
    char text[REPORT_SENTENCE];
    text_print(stdout, "%-15s %s\n", what, report_proof(&(Report){.plan = plan}, text));
}

/* ---- layers ---- */

static const PlanStage *stage_of(const Plan *plan, int layer)
{
    int k = 0;
    while (plan->stages[k].last_layer < layer) k++;
    return &plan->stages[k];
}

/* Runs of layers that changed their device. */
static void print_moves(const Plan *before, const Plan *after)
{
    int moved = 0;
    for (int layer = 0; layer < before->layer_count;) {
        const char *from = stage_of(before, layer)->device, *to = stage_of(after, layer)->device;
        int first = layer;
        do layer++;
        while (layer < before->layer_count && strcmp(stage_of(before, layer)->device, from) == 0 &&
               strcmp(stage_of(after, layer)->device, to) == 0);
        if (strcmp(from, to) == 0) continue;
        text_print(stdout, "layers %d-%d: %s -> %s\n", first, layer - 1, from, to);
        moved += layer - first;
    }
    text_print(stdout, moved ? "%d of %d layers moved\n" : "no layer moved\n", moved, before->layer_count);
}

/* ---- devices ---- */

static void print_devices(const Plan *before, const Plan *after)
{
    char a[REPORT_TEXT], b[REPORT_TEXT];
    for (int r = 0; r < before->rank_count; r++)
        if (plan_rank_of(after, before->ranks[r].device) < 0)
            text_print(stdout, "%s: no longer used\n", before->ranks[r].device);
    for (int r = 0; r < after->rank_count; r++) {
        int q = plan_rank_of(before, after->ranks[r].device);
        int64_t work = plan_rank_work(after, r), memory = plan_rank_memory(after, r);
        if (q < 0) {
            text_print(stdout, "%s: new, load %s, memory %s\n", after->ranks[r].device, report_seconds(work, a),
                       report_bytes(memory, b));
            continue;
        }
        int64_t work_then = plan_rank_work(before, q), memory_then = plan_rank_memory(before, q);
        if (work != work_then)
            text_print(stdout, "%s: load %s -> %s\n", after->ranks[r].device, report_seconds(work_then, a),
                       report_seconds(work, b));
        if (memory != memory_then)
            text_print(stdout, "%s: memory %s -> %s\n", after->ranks[r].device, report_bytes(memory_then, a),
                       report_bytes(memory, b));
    }
}

/* ---- links ---- */

/* The link between these devices; NULL: the plan has none. */
static const PlanLink *find_link(const Plan *plan, const char *from, const char *to)
{
    for (int k = 0; k < plan->link_count; k++)
        if (strcmp(plan->stages[k].device, from) == 0 && strcmp(plan->stages[k + 1].device, to) == 0)
            return &plan->links[k];
    return NULL;
}

static int64_t busy(const PlanLink *link) { return plan_link_period(link); }
static int64_t sent(const PlanLink *link) { return link->wire_bytes[plan_link_busy(link)]; }

static void print_link(const char *sign, const PlanLink *link, const char *from, const char *to)
{
    char a[REPORT_TEXT], b[REPORT_TEXT];
    text_print(stdout, "%s link %s to %s: %s, busy %s per micro-batch\n", sign, from, to, report_bytes(sent(link), a),
               report_seconds(busy(link), b));
}

static void print_links(const Plan *before, const Plan *after)
{
    char bytes[2][REPORT_TEXT], times[2][REPORT_TEXT];
    for (int k = 0; k < before->link_count; k++) {
        const char *from = before->stages[k].device, *to = before->stages[k + 1].device;
        const PlanLink *old = &before->links[k], *link = find_link(after, from, to);
        if (!link)
            print_link("-", old, from, to);
        else if (sent(link) != sent(old) || busy(link) != busy(old))
            text_print(stdout, "  link %s to %s: %s -> %s, busy %s -> %s\n", from, to,
                       report_bytes(sent(old), bytes[0]), report_bytes(sent(link), bytes[1]),
                       report_seconds(busy(old), times[0]), report_seconds(busy(link), times[1]));
    }
    for (int k = 0; k < after->link_count; k++) {
        const char *from = after->stages[k].device, *to = after->stages[k + 1].device;
        if (!find_link(before, from, to)) print_link("+", &after->links[k], from, to);
    }
}

static int64_t crossing_bytes(const Plan *plan)
{
    int64_t bytes = 0;
    for (int i = 0; i < plan->crossing_count; i++) bytes += plan->crossings[i].bytes;
    return bytes;
}

/* ---- all of it ---- */

static void print_diff(const Plan *before, const Plan *after)
{
    char a[REPORT_TEXT], b[REPORT_TEXT];
    print_question(before, after);
    print_times("step time", before->simulated_step_ns, after->simulated_step_ns);
    print_times("step objective", before->step_ns, after->step_ns);
    print_times("period", before->period_ns, after->period_ns);
    if (before->objective == after->objective)
        print_times("lower bound", before->lower_bound_ns, after->lower_bound_ns);
    if (before->proven_optimal != after->proven_optimal) print_proof("now", after);
    print_numbers("stages", before->stage_count, after->stage_count);
    print_numbers("devices used", before->rank_count, after->rank_count);
    if (before->layer_count != after->layer_count)
        print_numbers("layers", before->layer_count, after->layer_count);
    else
        print_moves(before, after);
    print_devices(before, after);
    print_links(before, after);
    if (crossing_bytes(before) != crossing_bytes(after))
        text_print(stdout, "between regions: %s -> %s per micro-batch\n", report_bytes(crossing_bytes(before), a),
                   report_bytes(crossing_bytes(after), b));
}

bool diff_command(const Options *options, Diagnostics *diagnostics)
{
    FREED_WITH(plan_free) Plan before = {0}, after = {0};
    if (!plan_read(&before, options->plans[0], diagnostics)) return false;
    bool ok = plan_read(&after, options->plans[1], diagnostics);
    if (ok) {
        print_diff(&before, &after);
        ok = plan_check_limit(&after, "the new plan's", options->fail_above, diagnostics);
    }
    return ok;
}
