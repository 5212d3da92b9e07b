#include "runtime/train/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "runtime/train/agreed_lengths.h"

/* Between looks whether the next round begins: seconds, and the share of the time so far. */
static const double round_pause[] = {5e-3, 0.2}, round_pause_share = 0.02;

static _Noreturn void fail(Training *t, const Diagnostics *diagnostics, const char *what)
{
    diagnostics_print(diagnostics, stderr);
    world_end(t->world, diagnostics->exit_code, "%s", what);
}

static void check_unchanged(Training *t, Dataset *dataset, bool samples)
{
    Diagnostics diagnostics = {0};
    if (!dataset_check_unchanged(dataset, samples, &diagnostics)) fail(t, &diagnostics, "the data cannot be used");
}

/* Brings `size` bytes from the first rank with a loss to rank 0. */
static void report(Training *t, void *bytes, size_t size)
{
    int pending = 0, from = t->losses.ranks[0];
    if (from == 0) return;
    if (t->world->rank == from) world_send(t->world, bytes, size, 0, TAG_REPORT, &pending);
    if (t->world->rank == 0) world_receive(t->world, bytes, size, from, TAG_REPORT, &pending);
    world_wait(t->world, &pending, (WaitReason){t->world->rank ? 0 : from, -1, -1, "the loss"});
}

static bool finish_step(void *context, Diagnostics *diagnostics)
{
    Training *t = context;
    step_clock_enter(&t->world->clock, PART_NORM);
    gradients_reduce(&t->gradients);
    proximal_add(&t->proximal);
    if (!gradients_clip(&t->gradients)) return true;
    step_clock_enter(&t->world->clock, PART_UPDATE);
    proximal_correct(&t->proximal, t->rate);
    if (t->proximal.corrects) t->rates += t->rate;
    for (uint32_t s = 0; s < t->program->stage_count; s++)
        if (!pipeline_update(&t->pipeline, s, *t->world->step, diagnostics)) return false;
    return true;
}

static void grow(void *context, uint32_t local_stage, uint32_t calls, double when)
{
    Training *t = context;
    gradient_sums_advance(&t->gradients.sums, local_stage, calls, when);
}

static int64_t skipped_steps(const Training *t)
{
    return t->skipped_before + t->unlabelled + t->gradients.skipped_in_all;
}

/* A batch without labels has no loss, so all ranks skip its update. */
static double skip_step(Training *t)
{
    t->unlabelled++;
    if (t->world->rank == 0 && t->unlabelled == 1)
        fprintf(stderr, "skycc: warning: step %lld: no row has a label that counts: the step updates nothing\n",
                (long long)t->step + 1);
    return NAN;
}

/* One batch; returns the loss on rank 0 and on the first rank that computes some of it. */
static double run_step(Training *t, double learning_rate)
{
    Diagnostics diagnostics = {0};
    StepClock *clock = &t->world->clock;
    t->rate = learning_rate;
    step_clock_enter(clock, PART_DATA);
    bool begins_epoch = data_order_at_epoch_end(&t->order, &t->cursor);
    t->row_count = data_order_next(&t->order, &t->cursor, t->batch_rows);
    if (!labelled_rows_any(&t->labelled, t->batch_rows, t->batch)) return skip_step(t);
    LabelCount labels[SKY_MOST_LABELS];
    dataset_count_labels(&t->data, t->program, t->batch_rows, t->batch, labels);
    step_clock_enter(clock, PART_PACKING);
    if (t->packed.lengths) packed_batch_place(&t->packed, t->lengths.lengths, t->batch_rows);
    step_clock_enter(clock, PART_REST);
    step_scalars(t->execution.step, &t->program->optimizer, learning_rate, t->weight_decay, t->step - skipped_steps(t));
    t->execution.learning_rate = learning_rate;
    step_scalars_losses(t->execution.step, t->program, labels, t->row_count);
    step_scalars_drop(t->execution.step, t->seed, t->step);
    PipelineBatch batch = {
        .dataset = &t->data,
        .rows = t->batch_rows,
        .row_count = t->row_count,
        .packed = t->packed.lengths ? &t->packed : NULL,
        .step = t->step + 1,
        .finish = gradients_need_work(&t->gradients) || proximal_needs_work(&t->proximal) ? finish_step : NULL,
        .gradients_grow = t->gradients.sums.piece_count ? grow : NULL,
        .context = t};
    if (!pipeline_train(&t->pipeline, &batch, &diagnostics)) fail(t, &diagnostics, "the step cannot be computed");
    step_clock_enter(clock, PART_DATA);
    check_unchanged(t, &t->data, begins_epoch);
    step_clock_enter(clock, PART_MESSAGES);
    double loss = 0;
    loss_ranks_add(&t->losses, t->pipeline.losses, t->program->microbatch_count);
    for (uint32_t m = 0; m < t->program->microbatch_count; m++) loss += t->pipeline.losses[m];
    if (t->world->rank == t->losses.ranks[0] && !isfinite(loss) && !t->gradients.skipped)
        world_diverged(t->world, "the loss is %g; a lower --lr, --warmup or --clip may help", loss);
    report(t, &loss, sizeof loss);
    return loss;
}

static CheckpointManifest describe(const Training *t)
{
    CheckpointManifest manifest = {.step = t->step,
                                   .skipped = skipped_steps(t),
                                   .data = t->data_hash,
                                   .evaluation_data = t->evaluation_hash,
                                   .cursor = t->cursor,
                                   .rows = t->rows,
                                   .seed = t->seed,
                                   .shuffled = t->shuffled,
                                   .schedule_steps = t->schedule.total,
                                   .rates = t->rates,
                                   .optimizer = t->program->optimizer.kind};
    manifest.low_rank = checkpoint_low_rank(t->program);
    manifest.microbatch = checkpoint_microbatch(t->program);
    if (training_watches(t)) manifest.best = t->watch.best;
    manifest.evaluation_due = t->evaluation_due;
    snprintf(manifest.model_hash, sizeof manifest.model_hash, "%s", t->program->model_hash);
    snprintf(manifest.plan_hash, sizeof manifest.plan_hash, "%s", t->program->plan_hash);
    return manifest;
}

/* `whole`: the checkpoint is complete afterwards; else it may be completed after later steps. */
static void save(Training *t, bool whole)
{
    checkpoint_finish(&t->writer);
    if (t->saved_step != t->step) checkpoint_begin(&t->writer, t->options->checkpoint, describe(t), t->options->keep);
    t->saved_step = t->step;
    if (whole) checkpoint_finish(&t->writer);
}

/* Acts on a new value of the watched metric, which rank 0 knows. */
static void take_value(Training *t, double value)
{
    world_broadcast(t->world, WIRE_DECISION, &value, sizeof value, 0, "the evaluation");
    if (!watch_take(&t->watch, t->step, value) || t->options->keep_best == METRIC_COUNT) return;
    checkpoint_save_only(t->world, &t->execution, t->best_directory, describe(t));
    t->best_saved = true;
}

/* The result is valid on rank 0. */
static EvaluationResult measure(Training *t)
{
    Diagnostics diagnostics = {0};
    EvaluationResult result;
    const EvaluationRows rows = {t->evaluation_rows, t->evaluation_lengths.lengths, &t->packed};
    if (!evaluate(&t->pipeline, &t->losses, &t->evaluation_data, &rows, t->step, &t->metrics, &result, &diagnostics))
        fail(t, &diagnostics, "the evaluation cannot be computed");
    check_unchanged(t, &t->evaluation_data, true);
    report(t, &result, sizeof result);
    return result;
}

static void run_evaluation(Training *t)
{
    t->evaluation_due = false;
    const EvaluationResult result = measure(t);
    bool finite = isfinite(result.values[METRIC_LOSS]);
    if (!finite && !t->failed_evaluation) t->failed_evaluation = t->step;
    if (t->world->rank == 0) progress_evaluation(&t->progress, t->step, result.values, result.rows);
    if (training_watches(t)) take_value(t, result.values[t->watch.metric]);
}

/* Of the model that the run begins with: to a file, for who started it. */
static void evaluate_first(Training *t)
{
    Diagnostics diagnostics = {0};
    FREED_WITH(buffer_free) Buffer text = {0};
    *t->world->step = t->step;
    const EvaluationResult result = measure(t);
    if (t->world->rank != 0) return;
    buffer_print(&text, "labels %lld\n", (long long)result.labels);
    for (Metric m = 0; m < METRIC_COUNT; m++) buffer_print(&text, "%s %.9g\n", metric_name(m), result.values[m]);
    if (!file_write_all(t->options->eval_first, text.bytes, text.size, &diagnostics))
        fail(t, &diagnostics, "--eval-first cannot be written");
}

static bool evaluation_is_due(const Training *t)
{
    int64_t every = t->options->eval_every;
    return every ? t->step % every == 0 : data_order_at_epoch_end(&t->order, &t->cursor);
}

/* Whether --until-loss is reached, which rank 0 tells the others. */
static bool reached(Training *t, double loss)
{
    if (isnan(t->options->until_loss)) return false;
    bool stop = loss <= t->options->until_loss;
    world_broadcast(t->world, WIRE_DECISION, &stop, sizeof stop, 0, "the decision whether to go on");
    return stop;
}

/* Evaluates, saves and reports between this step and the next. Returns whether this one was the last. */
static bool finish_between(Training *t, double loss)
{
    const TrainingOptions *options = t->options;
    InterruptChoice choice = interrupts_agree(&t->interrupts);
    bool last = reached(t, loss) || t->step == t->last_step;
    if (!last) t->ended_by = choice.end, t->ended_site = choice.site;
    bool due = options->checkpoint_every && t->step % options->checkpoint_every == 0;
    StepClock *clock = &t->world->clock;
    StepPart before = step_clock_enter(clock, PART_EVALUATION);
    t->evaluation_due = options->eval_data && (last || evaluation_is_due(t));
    if (t->evaluation_due && !t->ended_by) run_evaluation(t);
    step_clock_leave(clock, before);
    last = last || watch_is_over(&t->watch);
    bool stops = t->step == t->stop_after;
    bool ends = last || stops || t->ended_by;
    t->round_is_over = stops && !last && !t->ended_by && options->go_on;
    step_clock_enter(clock, PART_CHECKPOINT);
    if (!choice.writing) checkpoint_advance(&t->writer);
    if (options->checkpoint && (ends || due || choice.save)) {
        save(t, ends || choice.save);
        interrupts_saved();
    }
    step_clock_leave(clock, before);
    return ends;
}

/* Of the step that was just run. */
static StepTokens count_tokens(const Training *t)
{
    if (!labelled_rows_any(&t->labelled, t->batch_rows, t->batch)) return (StepTokens){0, 0};
    const SkyProgram *program = t->program;
    const PackedBatch *packed = t->packed.lengths ? &t->packed : NULL;
    int64_t lines = (int64_t)pipeline_microbatches(&t->pipeline, packed, t->row_count) * program->microbatch_size;
    StepTokens tokens = {.computed = lines * program->sequence_length, .valid = -1};
    if (packed && program->lines_vary) tokens.computed = (int64_t)packed->packer.lines * program->packing.length;
    if (packed && program->tokens_vary) tokens.computed = row_packer_all_tokens(&packed->packer);
    if (t->lengths.lengths) tokens.valid = agreed_lengths_sum(&t->lengths, t->batch_rows, t->batch);
    return tokens;
}

/* The next round, as a federation's member names it: from the step at which it begins up to another one. */
typedef struct Round {
    int64_t from, until; /* -1: there is none; both 0: it is not known yet */
} Round;

static Round read_round(const char *path)
{
    char line[64];
    long long from, until;
    FREED_WITH(stream_close) FILE *file = fopen(path, "re");
    bool is_whole = file && fgets(line, sizeof line, file) && strchr(line, '\n');
    return is_whole && sscanf(line, "%lld %lld", &from, &until) == 2 ? (Round){from, until} : (Round){0, 0};
}

/* Between two rounds of a federation: waits for the next one, which begins with the values that --round-start has then.
 * False: training ends. */
static bool next_round(Training *t)
{
    Diagnostics diagnostics = {0};
    Round round = {0, 0};
    double since = monotonic_seconds();
    bool found;
    if (!t->round_is_over) return false;
    while (round.until <= t->step) {
        double now = monotonic_seconds(), pause = round_pause_share * (now - since);
        world_sleep_until(t->world, now + fmin(fmax(pause, round_pause[0]), round_pause[1]));
        InterruptChoice choice = interrupts_agree(&t->interrupts);
        t->ended_by = choice.end, t->ended_site = choice.site;
        if (t->ended_by) return false;
        interrupts_saved();
        interrupts_tell(&t->interrupts, false);
        if (t->world->rank == 0) round = read_round(t->options->go_on);
        world_broadcast(t->world, WIRE_DECISION, &round, sizeof round, 0, "the next round");
        if (round.until < 0) return false;
    }
    if (t->step < round.from)
        world_fail(t->world, "the round begins at step %lld, and the newest checkpoint that is whole is of step %lld",
                   (long long)round.from, (long long)t->step);
    const char *start = t->options->round_start;
    if (checkpoint_load_start(&t->execution, start, t->step, &found, &diagnostics) && !found)
        diagnostics_error(&diagnostics, EXIT_RUN_FAILED, PLACE_FILE(start), NULL, "is not of step %lld",
                          (long long)t->step);
    if (diagnostics.errors) fail(t, &diagnostics, "the round cannot begin");
    gradient_sums_spread_values(&t->gradients.sums);
    t->stop_after = round.until;
    t->round_is_over = false;
    if (t->options->eval_first && t->step == round.from) evaluate_first(t);
    if (t->speaks) progress_go_on(&t->progress);
    return true;
}

static void run_steps(Training *t)
{
    interrupts_open(&t->interrupts, t->world);
    *t->world->step = t->step;
    if (t->evaluation_due && t->options->eval_data) run_evaluation(t);
    bool over = t->step >= t->last_step || watch_is_over(&t->watch);
    t->stop_after = t->options->stop_after;
    bool stops = t->stop_after && t->step >= t->stop_after;
    t->round_is_over = stops && !over && t->options->go_on; /* the launcher has started this run again */
    if (t->options->eval_first && !t->round_is_over) evaluate_first(t);
    for (bool stop = over || stops; !stop || next_round(t);) {
        step_clock_start(&t->world->clock);
        *t->world->step = t->step + 1;
        double learning_rate = learning_rate_at(&t->schedule, t->step);
        double loss = run_step(t, learning_rate);
        t->step++;
        step_clock_enter(&t->world->clock, PART_LOG);
        if (t->speaks) progress_step(&t->progress, t->step, loss, learning_rate, count_tokens(t));
        step_clock_enter(&t->world->clock, PART_MESSAGES);
        stop = finish_between(t, loss);
        if (!stop || t->round_is_over) interrupts_tell(&t->interrupts, checkpoint_is_being_written(&t->writer));
        if (t->speaks) progress_start_step(&t->progress);
        step_clock_enter(&t->world->clock, PART_REST);
        const PackedBatch *packed = t->packed.lengths ? &t->packed : NULL;
        step_parts_add(&t->parts, &t->world->clock, pipeline_microbatches(&t->pipeline, packed, t->row_count));
        trace_step(&t->trace, &t->world->clock, t->step);
    }
    interrupts_close(&t->interrupts);
}

static bool run(Training *t, const char *directory, int *exit_code)
{
    Diagnostics diagnostics = {0};
    if (!training_open(t, directory, &diagnostics, exit_code)) return false;
    training_say_begin(t);
    run_steps(t);
    if (t->options->trace)
        trace_write(&t->trace, t->world, t->program->stages[0].index, t->options->trace, &diagnostics);
    if (t->options->emulate)
        emulation_report(t->world, t->pipeline.emulated, execution_by_this_thread(&t->execution), &t->progress);
    const double *planned = t->program->predicted_step_s;
    if (t->speaks) progress_close(&t->progress, planned ? *planned : 0, &diagnostics);
    step_cause_say(t->world, t->program, &t->parts, &t->progress);
    training_say_end(t, &diagnostics);
    if (!world_agree(t->world, &diagnostics, exit_code)) return false;
    if (t->ended_by) *exit_code = 128 + t->ended_by;
    return true;
}

int train(World *world, const SkyProgram *program, const TrainingOptions *options, const char *directory)
{
    FREED Training *t = memory_allocate(sizeof *t);
    int exit_code = EXIT_OK;
    t->world = world;
    t->program = program;
    t->options = options;
    t->batch = sky_batch_rows(program);
    t->batch_rows = memory_allocate((size_t)t->batch * sizeof *t->batch_rows);
    run(t, directory, &exit_code);
    training_close(t);
    return exit_code;
}
