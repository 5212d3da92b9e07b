#include "runtime/program/step.h"

#include <math.h>
#include <string.h>

#include "base/random.h"

const char *schedule_name(ScheduleKind kind)
{
    static const char *const names[SCHEDULE_COUNT] = {"constant", "linear", "cosine"};
    return names[kind];
}

double learning_rate_at(const LearningRateSchedule *schedule, int64_t step)
{
    if (step < schedule->warmup) return schedule->base * (double)step / (double)schedule->warmup;
    if (schedule->kind == SCHEDULE_CONSTANT) return schedule->base;
    if (step >= schedule->total) return 0;
    double done = (double)(step - schedule->warmup) / (double)(schedule->total - schedule->warmup);
    return schedule->base *
           (schedule->kind == SCHEDULE_LINEAR ? 1 - done : 0.5 * (1 + cos(3.14159265358979323846 * done)));
}

void step_scalars_set(float scalars[SKY_STEP_SCALARS], int element, double value)
{
    scalars[element] = (float)value;
    scalars[element + SKY_STEP_GROUP] = (float)value;
}

void step_scalars_drop(float scalars[SKY_STEP_SCALARS], uint64_t seed, int64_t step)
{
    RandomStream stream = random_substream(random_stream(seed, "dropout"), (uint64_t)step);
    uint32_t key[2] = {random_word(stream, 0), random_word(stream, 1)};
    memcpy(&scalars[SKY_STEP_RANDOM_KEY], key, sizeof key);
    scalars[SKY_STEP_DROPOUT] = 1;
}

void step_scalars_rows(float scalars[SKY_STEP_SCALARS], int64_t first, int64_t rows)
{
    memcpy(&scalars[SKY_STEP_FIRST_ROW], &first, sizeof first);
    scalars[SKY_STEP_ROWS] = (float)rows;
}

void step_scalars_losses(float scalars[SKY_STEP_SCALARS], const SkyProgram *program,
                         const LabelCount labels[SKY_MOST_LABELS], int64_t rows)
{
    scalars[SKY_STEP_SHARE] = 1 / (float)program->microbatch_count;
    scalars[SKY_STEP_ROW_SHARE] = 1 / (float)rows;
    for (uint32_t i = 0; i < program->label_count; i++)
        scalars[loss_scale_element((int)i)] = labels[i].weight > 0 ? (float)(1 / labels[i].weight) : 0;
}

void step_scalars(float scalars[SKY_STEP_SCALARS], const SkyOptimizer *optimizer, double learning_rate,
                  double weight_decay, int64_t updates_before)
{
    memset(scalars, 0, SKY_STEP_SCALARS * sizeof *scalars);
    bool corrected = optimizer->kind == SKY_ADAM || optimizer->kind == SKY_ADAMW || optimizer->kind == SKY_LAMB;
    double updates = (double)(updates_before + 1);
    step_scalars_set(scalars, SKY_STEP_LEARNING_RATE, learning_rate);
    step_scalars_set(scalars, SKY_STEP_BETA1, optimizer->beta1);
    step_scalars_set(scalars, SKY_STEP_BETA2, optimizer->beta2);
    step_scalars_set(scalars, SKY_STEP_EPSILON, optimizer->epsilon);
    /* The kernels use float betas: 1 - 0.999 differs from 1 - 0.999f by a relative 1e-5. */
    double beta1 = (float)optimizer->beta1, beta2 = (float)optimizer->beta2;
    step_scalars_set(scalars, SKY_STEP_CORRECTION1, corrected ? 1 / (1 - pow(beta1, updates)) : 1);
    step_scalars_set(scalars, SKY_STEP_CORRECTION2, corrected ? 1 / (1 - pow(beta2, updates)) : 1);
    step_scalars_set(scalars, SKY_STEP_GRADIENT_SCALE, 1);
    scalars[SKY_STEP_WEIGHT_DECAY] = (float)weight_decay;
}
