/* What a run says before its first step and after its last one. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "runtime/storage/checkpoint_directory.h"
#include "runtime/train/training.h"

/* As people write rates: 2e-4, 0.01. */
static void print_rate(Buffer *line, double rate)
{
    char text[32];
    if (rate >= 0.01 || rate == 0) {
        buffer_print(line, "%.6g", rate);
        return;
    }
    snprintf(text, sizeof text, "%.5e", rate);
    char *exponent = strchr(text, 'e'), *end = exponent;
    while (end[-1] == '0') end--;
    if (end[-1] == '.') end--;
    buffer_print(line, "%.*se%d", (int)(end - text), text, atoi(exponent + 1));
}

static void print_schedule(Buffer *line, const LearningRateSchedule *schedule)
{
    buffer_print(line, " (");
    if (schedule->warmup)
        buffer_print(line, "%lld warm-up step%s, ", (long long)schedule->warmup, schedule->warmup == 1 ? "" : "s");
    if (schedule->kind == SCHEDULE_CONSTANT)
        buffer_print(line, schedule->warmup ? "then constant)" : "constant)");
    else
        buffer_print(line, "%s decay to 0 at step %lld)", schedule_name(schedule->kind), (long long)schedule->total);
}

/* Prints the settings of the optimizer, also those left at their defaults. */
static void say_recipe(Training *t)
{
    static const char *const optimizers[SKY_OPTIMIZER_COUNT] = {"SGD", "Momentum", "Adam", "AdamW", "LAMB"};
    static const char *const exempt[] = {"", " (not on biases)", " (not on norms)", " (not on biases and norms)"};
    FREED_WITH(buffer_free) Buffer line = {0};
    buffer_print(&line, "%s: learning rate ", optimizers[t->program->optimizer.kind]);
    print_rate(&line, t->schedule.base);
    print_schedule(&line, &t->schedule);
    if (t->weight_decay > 0)
        buffer_print(&line, ", weight decay %.6g%s", t->weight_decay, exempt[t->options->no_decay >> 1 & 3]);
    double clip = training_clip(t);
    if (clip > 0)
        buffer_print(&line, ", gradient clipping at %.6g%s", clip, clip == (double)(int64_t)clip ? ".0" : "");
    else
        buffer_print(&line, ", no gradient clipping");
    progress_say(&t->progress, "%s", buffer_text(&line));
}

/* The model computes its own loss, or its labels cannot say that they do not count. */
static void say_filled(Training *t, const char *what, int64_t rows)
{
    long long lacking = (long long)((t->batch - rows % t->batch) % t->batch);
    if (lacking)
        progress_say(&t->progress,
                     "The loss needs whole batches: the last %s batch is filled up with %lld rows from the beginning",
                     what, lacking);
}

void training_say_begin(Training *t)
{
    if (t->world->rank != 0) return;
    say_recipe(t);
    if (t->program->whole_batches) say_filled(t, "training", t->rows);
    if (t->program->whole_batches && t->options->eval_data) say_filled(t, "evaluation", t->evaluation_rows);
    if (!t->options->checkpoint)
        progress_say(&t->progress, "Nothing of this training will be kept: --checkpoint DIR keeps the weights");
    if (t->step > 0) progress_say(&t->progress, "resuming after step %lld", (long long)t->step);
}

static void say_best(Training *t)
{
    const CheckpointBest *best = &t->watch.best;
    if (watch_is_over(&t->watch))
        progress_say(&t->progress, "ended by --patience: %s did not get better in %lld evaluations", best->metric,
                     (long long)best->waited);
    if (best->step)
        progress_say(&t->progress, "best %s: %.6g after step %lld%s%s", best->metric, best->value,
                     (long long)best->step, t->best_saved ? ": " : "", t->best_saved ? t->best_directory : "");
}

static void say_ended(Training *t)
{
    const char *signal = t->ended_by == SIGINT ? "SIGINT" : "SIGTERM";
    if (t->ended_site >= 0)
        progress_say(&t->progress, "ended by %s at site %s", signal, world_site_name(t->world, t->ended_site));
    else
        progress_say(&t->progress, "ended by %s", signal);
}

static void say_skipped(Training *t)
{
    if (t->gradients.skipped_in_all)
        progress_say(&t->progress, "%lld steps were skipped: their gradients were not finite",
                     (long long)t->gradients.skipped_in_all);
    if (t->unlabelled)
        progress_say(&t->progress, "%lld steps updated nothing: they had no label that counts",
                     (long long)t->unlabelled);
}

void training_say_end(Training *t, Diagnostics *diagnostics)
{
    if (t->world->rank == 0) {
        if (t->saved_step >= 0) {
            FREED char *path = checkpoint_path(t->options->checkpoint, t->saved_step);
            progress_say(&t->progress, "checkpoint: %s", path);
        }
        if (training_watches(t)) say_best(t);
        say_skipped(t);
        if (t->failed_evaluation)
            diagnostics_error(diagnostics, EXIT_DIVERGED, PLACE_FILE(t->options->eval_data),
                              "a lower --lr, --warmup or --clip may help",
                              "the evaluation after step %lld was not finite", (long long)t->failed_evaluation);
    }
    if (t->speaks && t->ended_by) say_ended(t);
}
