#include "driver/compile/dealt_step.h"

#include <string.h>

#include "partitioner/replicas.h"
#include "runtime/program/parallel.h"

void dealt_step_open(DealtStep *step, const Plan *plan)
{
    *step = (DealtStep){0};
    if (plan->replica_count < 2) return;
    step->replica_count = plan->replica_count;
    step->microbatches = plan->microbatches;
    step->codec = codecs_of_sums(plan->codecs);
    step->shares = arena_new_array(&step->arena, int, (size_t)plan->replica_count);
    step->dealt = arena_new_array(&step->arena, uint32_t *, (size_t)plan->replica_count);
    step->losses = arena_new_array(&step->arena, double, (size_t)plan->microbatches);
    for (int r = 0; r < plan->replica_count; r++) step->shares[r] = plan->replicas[r].microbatches;
    for (int r = 0; r < plan->replica_count; r++) {
        step->dealt[r] = arena_new_array(&step->arena, uint32_t, (size_t)step->shares[r]);
        plan_deal(step->shares, plan->replica_count, r, step->dealt[r]);
    }
}

void dealt_step_close(DealtStep *step) { arena_free(&step->arena); }

/* Where a use of the parameter accumulates; one without uses has its gradient. */
static float *use_at(const Execution *execution, const SkyParameter *parameter, uint32_t use)
{
    return execution_address(execution, 0, 0,
                             parameter->use_count ? parameter->uses[use].gradient : parameter->gradient);
}

static uint32_t uses_of(const SkyParameter *parameter)
{
    return parameter->frozen ? 0 : parameter->use_count ? parameter->use_count : 1;
}

static void make_residuals(DealtStep *step, const SkyStage *stage)
{
    size_t most = 0;
    step->residuals = arena_new_array(&step->arena, float **, stage->parameter_count);
    for (uint32_t p = 0; p < stage->parameter_count; p++) {
        size_t count = stage->parameters[p].value.bytes / sizeof(float);
        size_t terms = (size_t)step->replica_count * uses_of(&stage->parameters[p]) + 1;
        step->residuals[p] = arena_new_array(&step->arena, float *, terms);
        for (size_t t = 0; t < terms; t++) step->residuals[p][t] = arena_new_array(&step->arena, float, count);
        most = count > most ? count : most;
    }
    step->coded = arena_new_array(&step->arena, uint8_t, (size_t)codec_row_bytes(step->codec, (int64_t)most));
}

/* As runtime/train/gradient_sums.h codes terms and sums. */
static void code(DealtStep *step, uint32_t parameter, int number, float *values, size_t count)
{
    if (step->codec) parallel_code(1, step->codec, values, step->residuals[parameter][number], count, step->coded);
}

/* Adds what a replica has accumulated to the sum of those before it, use by use, and makes it 0. */
static void add_replica(DealtStep *step, const Execution *execution, int replica)
{
    const SkyStage *stage = execution->stages[0].stage;
    if (!step->terms) {
        step->terms = arena_new_array(&step->arena, float *, stage->parameter_count);
        for (uint32_t p = 0; p < stage->parameter_count; p++)
            step->terms[p] = arena_new_array(&step->arena, float, stage->parameters[p].value.bytes / sizeof(float));
        if (step->codec) make_residuals(step, stage);
    }
    for (uint32_t p = 0; p < stage->parameter_count; p++) {
        const SkyParameter *parameter = &stage->parameters[p];
        size_t count = parameter->value.bytes / sizeof(float);
        for (uint32_t u = 0; u < uses_of(parameter); u++) {
            float *term = use_at(execution, parameter, u), *sum = step->terms[p];
            code(step, p, replica * (int)uses_of(parameter) + (int)u, term, count);
            for (size_t i = 0; i < count; i++) sum[i] = replica == 0 && u == 0 ? term[i] : sum[i] + term[i];
            memset(term, 0, count * sizeof *term);
        }
        if (replica + 1 < step->replica_count || parameter->frozen) continue;
        if (replica > 1) code(step, p, step->replica_count * (int)uses_of(parameter), step->terms[p], count);
        memcpy(execution_address(execution, 0, 0, parameter->gradient), step->terms[p], count * sizeof(float));
    }
}

bool dealt_step_run(DealtStep *step, Execution *execution, bool backward, const DealtCalls *calls,
                    Diagnostics *diagnostics)
{
    for (int r = 0; r < step->replica_count; r++) {
        for (int m = 0; m < step->shares[r]; m++) {
            uint32_t number = step->dealt[r][m];
            if (!calls->begin(calls->context, number, diagnostics) ||
                !execution_run(execution, 0, SKY_LIST_FORWARD, 0, diagnostics))
                return false;
            calls->forward_done(calls->context, number);
            if (backward && !execution_run(execution, 0, SKY_LIST_BACKWARD, 0, diagnostics)) return false;
        }
        if (backward) add_replica(step, execution, r);
    }
    return true;
}
