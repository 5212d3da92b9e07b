#include "runtime/train/rates.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/parts.h"

static bool rule_matches(const RateRule *rule, const SkyParameter *parameter)
{
    return pattern_matches(rule->pattern, parameter->value.name) || pattern_matches(rule->pattern, parameter->alias);
}

/* A parameter's rate as a multiple of `base`: that of the last pattern that matches its name or its place in the model,
 * else 1; times lr_decay for every block after it (layer-wise decay as in ELECTRA: Clark et al., ICLR 2020). */
static double rate_of(const SkyParameter *parameter, uint32_t block_count, const TrainingOptions *options, double base)
{
    double rate = 1;
    for (size_t i = 0; i < options->rate_count; i++)
        if (rule_matches(&options->rates[i], parameter)) rate = options->rates[i].rate / base;
    if (options->lr_decay == 1) return rate;
    return rate * pow(options->lr_decay, (double)(block_count + 1 - parameter->block));
}

static bool check(const SkyProgram *program, const TrainingOptions *options, double base, Diagnostics *diagnostics)
{
    if (options->rate_count && !(base > 0))
        return usage_error(diagnostics, "give a --lr X of its own, too",
                           "--lr PATTERN=X needs a rate for the rest that is above 0");
    return options->lr_decay == 1 || program->block_count ||
           usage_error(diagnostics, "--lr PATTERN=X sets rates by name",
                       "--lr-decay: no name of a parameter says which block it belongs to");
}

/* Sets matched[i] to 1 if pattern i matches a parameter that is trained here. */
static void note_matches(const SkyParameter *parameter, const TrainingOptions *options, double *matched)
{
    for (size_t i = 0; i < options->rate_count; i++)
        if (rule_matches(&options->rates[i], parameter)) matched[i] = 1;
}

bool rates_set(World *world, Execution *execution, const TrainingOptions *options, double base,
               Diagnostics *diagnostics)
{
    const SkyProgram *program = execution->program;
    if (!check(program, options, base, diagnostics)) return false;
    FREED double *matched = memory_allocate(options->rate_count * sizeof *matched);
    for (SkyHeld held = {0}; sky_next_parameter(program, &held);) {
        const SkyParameter *parameter = held.parameter;
        if (parameter->frozen) continue;
        note_matches(parameter, options, matched);
        execution_set_rate(execution, held.stage, parameter, rate_of(parameter, program->block_count, options, base));
    }
    if (options->rate_count) world_sum(world, matched, options->rate_count, "what --lr matches");
    bool ok = true;
    for (size_t i = 0; i < options->rate_count; i++)
        if (matched[i] == 0)
            ok = usage_error(diagnostics, "skycc check -v lists the names",
                             "--lr: the pattern '%s' matches no parameter that is trained", options->rates[i].pattern);
    return ok;
}
