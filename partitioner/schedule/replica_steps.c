#include "partitioner/schedule/replica_steps.h"

#include "base/integers.h"
#include "partitioner/replicas.h"
#include "partitioner/schedule/simulate.h"

/* What a step with the first micro-batches takes in simulation: the slowest replica that has any of them. */
static int64_t simulate_first(const Plan *plan, uint32_t *const *dealt, int microbatches)
{
    int64_t most = 0, whole = 0;
    Diagnostics ignored = {0};
    for (int r = 0; r < plan->replica_count; r++) {
        const Plan *part = plan->replicas[r].pipeline;
        Simulation simulation;
        int count = 0;
        whole = larger(whole, part->simulated_step_ns);
        while (count < part->microbatches && dealt[r][count] < (uint32_t)microbatches) count++;
        if (count == 0 || !plan_simulate_first(&simulation, part, count, &ignored)) continue;
        most = larger(most, simulation.step_ns);
        simulation_free(&simulation);
    }
    diagnostics_free(&ignored);
    return larger(0, plan->padded_step_ns - whole + most);
}

void replica_steps_expect(Plan *plan)
{
    Arena arena = {0};
    int64_t steps = row_samples_steps(&plan->rows), all = 0;
    if (!plan->rows.microbatch_kinds) return;
    int *shares = arena_new_array(&arena, int, (size_t)plan->replica_count);
    uint32_t **dealt = arena_new_array(&arena, uint32_t *, (size_t)plan->replica_count);
    for (int r = 0; r < plan->replica_count; r++) shares[r] = plan->replicas[r].microbatches;
    for (int r = 0; r < plan->replica_count; r++) {
        dealt[r] = arena_new_array(&arena, uint32_t, (size_t)shares[r]);
        plan_deal(shares, plan->replica_count, r, dealt[r]);
    }
    plan->padded_step_ns = plan->simulated_step_ns;
    for (int i = 0; i < plan->rows.microbatch_kinds; i++) {
        plan->worst_step_ns = simulate_first(plan, dealt, plan->rows.microbatches[i].value);
        all += plan->worst_step_ns * plan->rows.microbatches[i].times;
    }
    plan->simulated_step_ns = divide_up(all, steps);
    plan->step_ns = larger(plan->step_ns - plan->padded_step_ns + plan->simulated_step_ns, 0);
    plan->lower_bound_ns = 0;
    plan->gap = plan_value_ns(plan) > 0;
    arena_free(&arena);
}
