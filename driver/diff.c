/* skycc diff: what changed between two plans. */
#include <stdio.h>
#include <string.h>

#include "driver/commands.h"
#include "partitioner/report.h"

static const char usage[] = "usage: skycc diff OLD.json NEW.json\n"
                            "\n"
                            "Prints what differs between two plans: times, bound, and which layers moved to which "
                            "device. Exits 0 also when they\n"
                            "differ.\n";

static void print_times(const char *what, int64_t before, int64_t after)
{
    char a[REPORT_TEXT], b[REPORT_TEXT];
    if (before == after) {
        printf("%-15s %s, unchanged\n", what, report_seconds(before, a));
        return;
    }
    printf("%-15s %s -> %s", what, report_seconds(before, a), report_seconds(after, b));
    if (before > 0) printf(" (%+.2f%%)", 100 * ((double)after / (double)before - 1));
    printf("\n");
}

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
        printf("layers %d-%d: %s -> %s\n", first, layer - 1, from, to);
        moved += layer - first;
    }
    printf(moved ? "%d of %d layers moved\n" : "no layer moved\n", moved, before->layer_count);
}

static void print_memory(const Plan *before, const Plan *after)
{
    char a[REPORT_TEXT], b[REPORT_TEXT];
    for (int r = 0; r < after->rank_count; r++)
        for (int q = 0; q < before->rank_count; q++) {
            int64_t now = report_rank_memory(after, r), then = report_rank_memory(before, q);
            if (strcmp(before->ranks[q].device, after->ranks[r].device) == 0 && now != then)
                printf("memory of %s: %s -> %s\n", after->ranks[r].device, report_bytes(then, a), report_bytes(now, b));
        }
}

static void print_diff(const Plan *before, const Plan *after)
{
    if (strcmp(before->costs_hash, after->costs_hash) != 0) printf("the plans were made for different costs\n");
    if (before->schedule != after->schedule)
        printf("schedule: %s -> %s\n", plan_schedule_name(before->schedule), plan_schedule_name(after->schedule));
    if (before->microbatches != after->microbatches)
        printf("micro-batches: %d -> %d\n", before->microbatches, after->microbatches);
    print_times("step", before->step_ns, after->step_ns);
    print_times("simulated step", before->simulated_step_ns, after->simulated_step_ns);
    print_times("period", before->period_ns, after->period_ns);
    if (before->objective == after->objective)
        print_times("lower bound", before->lower_bound_ns, after->lower_bound_ns);
    if (before->rank_count != after->rank_count)
        printf("devices used: %d -> %d\n", before->rank_count, after->rank_count);
    if (before->layer_count != after->layer_count) {
        printf("layers: %d -> %d\n", before->layer_count, after->layer_count);
        return;
    }
    print_moves(before, after);
    print_memory(before, after);
}

int diff_main(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return fputs(usage, stdout), EXIT_OK;
    if (argc != 3) return fputs(usage, stderr), EXIT_USAGE;
    Diagnostics diagnostics = {0};
    Plan before, after;
    bool ok = plan_read(&before, argv[1], &diagnostics);
    if (ok) {
        ok = plan_read(&after, argv[2], &diagnostics);
        if (ok) {
            print_diff(&before, &after);
            plan_free(&after);
        }
        plan_free(&before);
    }
    diagnostics_print(&diagnostics, stderr);
    int code = ok ? EXIT_OK : diagnostics.exit_code;
    diagnostics_free(&diagnostics);
    return code;
}
