#include "runtime/train/gradients.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/program/norm_round.h"
#include "runtime/program/parallel.h"
#include "runtime/program/step.h"

bool gradients_open(Gradients *gradients, Pipeline *pipeline, double clip, int64_t most_skipped,
                    Diagnostics *diagnostics)
{
    uint32_t total = pipeline->program->total_parameter_count, ranks = pipeline->program->rank_count;
    *gradients = (Gradients){.world = pipeline->world,
                             .pipeline = pipeline,
                             .execution = pipeline->execution,
                             .trace = pipeline->trace,
                             .clip = clip,
                             .most_skipped = most_skipped,
                             .emulated = pipeline->emulate_links ? pipeline->program->norm : NULL};
    bool ok = gradient_sums_open(&gradients->sums, pipeline, diagnostics);
    gradients->squares = arena_new_array(&gradients->sums.arena, double, (size_t)total + ranks);
    gradients->begun = arena_new_array(&gradients->sums.arena, int64_t, 2 * ranks + NORM_ROUND_SCRATCH(ranks));
    gradients->known = gradients->begun + ranks;
    return ok;
}

void gradients_close(Gradients *gradients) { gradient_sums_close(&gradients->sums); }

/* Whether the norm of the gradient is wanted. */
static bool measures(const Gradients *gradients) { return gradients->clip > 0 || gradients->most_skipped > 0; }

bool gradients_need_work(const Gradients *gradients) { return measures(gradients) || gradients->sums.piece_count > 0; }

void gradients_reduce(Gradients *gradients)
{
    double begin = monotonic_seconds();
    if (!gradients->sums.piece_count) return;
    gradient_sums_make(&gradients->sums);
    trace_record_rank(gradients->trace, begin, gradients->world, gradients->execution->program, SKY_REDUCE);
}

/* The gradient of that parameter is not finite. Its owner reports that before any update, and ends the run unless the
 * step is to be skipped. */
static void tell_not_finite(const Gradients *gradients, uint32_t index, bool is_skipped)
{
    const World *world = gradients->world;
    uint32_t stage = 0;
    if (gradients->sums.owner[index] != (uint32_t)world->rank) return;
    const SkyParameter *parameter = gradient_sums_held(gradients->execution, index, &stage);
    FREED_WITH(arena_free) Arena arena = {0};
    const char *what = arena_format(&arena, "the gradient of '%s' (stage %u) is not finite", parameter->value.name,
                                    gradients->execution->stages[stage].stage->index);
    if (!is_skipped)
        world_diverged(gradients->world, "%s%s; a lower --lr or --warmup may help", what,
                       gradients->skipped ? arena_format(&arena,
                                                         ", nor were those of the %lld steps before, which were "
                                                         "skipped",
                                                         (long long)gradients->skipped)
                                          : "");
    world_warn(world, "%s: the step is skipped (%lld of at most %lld in a row)", what,
               (long long)gradients->skipped + 1, (long long)gradients->most_skipped);
}

/* The step counts, but changes nothing. */
static void skip(Gradients *gradients)
{
    const Execution *execution = gradients->execution;
    for (SkyHeld held = {0}; sky_next_parameter(execution->program, &held);) {
        SkyLocation gradient = held.parameter->gradient;
        size_t bytes = held.parameter->value.bytes;
        if (held.parameter->frozen) continue;
        parallel_zero(execution->threads, execution_address(execution, held.stage, 0, gradient), bytes);
        execution_hand(execution, held.stage, 0, gradient, bytes);
    }
    gradients->skipped++;
    gradients->skipped_in_all++;
}

/* For every parameter of the model, the sum of the squares of its gradient. */
static void measure(Gradients *gradients)
{
    const Execution *execution = gradients->execution;
    uint32_t total = execution->program->total_parameter_count;
    uint32_t ranks = gradients->emulated ? execution->program->rank_count : 0, rank = execution->program->rank;
    double begin = monotonic_seconds();
    step_clock_enter(&gradients->world->clock, PART_UPDATE); /* where plans count the squares */
    memset(gradients->squares, 0, (total + ranks) * sizeof *gradients->squares);
    for (uint32_t s = 0; s < execution->program->stage_count; s++) {
        const double *squares = pipeline_squares(gradients->pipeline, s);
        for (uint32_t p = 0; p < execution->stages[s].stage->parameter_count; p++) {
            uint32_t index = execution->stages[s].stage->parameters[p].global_index;
            if (gradients->sums.owner[index] == (uint32_t)gradients->world->rank)
                gradients->squares[index] = squares[p];
        }
    }
    begin = trace_record_rank(gradients->trace, begin, gradients->world, execution->program, TRACE_NORM);
    step_clock_enter(&gradients->world->clock, PART_NORM);
    if (ranks) gradients->squares[total + rank] = monotonic_seconds();
    world_sum(gradients->world, gradients->squares, total + ranks, "the norm of the gradient"); /* one term: exact */
    for (uint32_t r = 0; r < ranks; r++) gradients->begun[r] = (int64_t)(gradients->squares[total + r] * 1e9);
    if (ranks) {
        norm_round(gradients->emulated, gradients->begun, gradients->known, gradients->known + ranks);
        world_sleep_until(gradients->world, (double)gradients->known[rank] * 1e-9);
    }
    trace_record_rank(gradients->trace, begin, gradients->world, execution->program, TRACE_AGREEMENT);
}

bool gradients_clip(Gradients *gradients)
{
    if (!measures(gradients)) return true;
    uint32_t total = gradients->execution->program->total_parameter_count, wrong = 0;
    measure(gradients);
    while (wrong < total && isfinite(gradients->squares[wrong])) wrong++;
    if (wrong < total) {
        tell_not_finite(gradients, wrong, gradients->skipped < gradients->most_skipped);
        skip(gradients); /* unless the rank that reported it ends the run */
        return false;
    }
    gradients->skipped = 0;
    double square = 0;
    for (uint32_t i = 0; i < total; i++) square += gradients->squares[i];
    double scale = gradients->clip > 0 ? gradients->clip / (sqrt(square) + 1e-6) : 1; /* as PyTorch's clip_grad_norm_ */
    step_scalars_set(gradients->execution->step, SKY_STEP_GRADIENT_SCALE, scale < 1 ? scale : 1);
    return true;
}
