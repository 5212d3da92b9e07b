#include "runtime/train/train.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/input_files.h"
#include "runtime/program/parallel.h"
#include "runtime/storage/checkpoint_directory.h"
#include "runtime/storage/parameters.h"
#include "runtime/train/agreed_lengths.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/gradients.h"
#include "runtime/train/handshake.h"
#include "runtime/train/interrupts.h"
#include "runtime/train/labelled_rows.h"
#include "runtime/train/progress.h"
#include "runtime/train/rates.h"
#include "runtime/train/watch.h"

typedef struct Training {
    World *world;
    const SkyProgram *program;
    const TrainingOptions *options;
    Dataset data, evaluation_data;
    Hash data_hash;
    RowLengths lengths, evaluation_lengths;
    LabelledRows labelled;
    PackedBatch packed;            /* where rows share lines */
    int64_t rows, evaluation_rows; /* as all ranks agree */
    Execution execution;
    Pipeline pipeline;
    Gradients gradients;
    Interrupts interrupts;
    Trace trace;
    Progress progress; /* rank 0 */
    DataOrder order;
    DataCursor cursor;
    uint64_t seed;
    bool shuffled;
    uint32_t *batch_rows;
    int64_t batch;
    LearningRateSchedule schedule;
    double weight_decay;
    int64_t step, last_step;   /* steps that were made; are to be made, INT64_MAX: no limit */
    int64_t skipped_before;    /* of those before this run, that updated nothing */
    int64_t unlabelled;        /* of this run's, that had no label */
    int64_t failed_evaluation; /* the step after the first evaluation that was not finite; 0: none was. Rank 0 */
    int64_t saved_step;        /* of the newest checkpoint; -1: none */
    MetricChoice metrics;
    Watch watch;     /* where --keep-best or --patience is given; all ranks agree */
    bool best_saved; /* by this run */
    char *best_directory;
    int loss_rank;
    int ended_by;   /* the signal that ended training early; 0: none */
    int ended_site; /* to which it came; -1: there is one site, or nobody knows */
    bool speaks;    /* this rank shows the progress of its site */
} Training;

static bool watches(const TrainingOptions *options) { return options->keep_best != METRIC_COUNT || options->patience; }

/* ---- Setting up ---- */

/* The number of rows, which ranks that read no inputs learn from the others. */
static bool agree_on_rows(World *world, const Dataset *dataset, const char *path, int64_t *rows,
                          Diagnostics *diagnostics)
{
    int64_t *all = memory_allocate((size_t)world->size * sizeof *all);
    world_allgather(world, &dataset->rows, sizeof *all, all, "agreement on data");
    bool ok = true;
    *rows = 0;
    for (int r = 0, first = -1; r < world->size && ok; r++) {
        if (all[r] == 0) continue;
        if (first < 0) first = r, *rows = all[r];
        if (all[r] != *rows)
            ok = diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), "give all hosts the same file",
                                   "has %lld rows for rank %d, but %lld for rank %d", (long long)*rows, first,
                                   (long long)all[r], r);
    }
    free(all);
    return ok;
}

/* Collective. What all ranks must know of one of the two data sets. */
static bool open_rows(Training *t, Dataset *dataset, const char *path, int64_t *rows, RowLengths *lengths, Hash *hash,
                      LabelledRows *labelled, Diagnostics *diagnostics)
{
    if (!agree_on_rows(t->world, dataset, path, rows, diagnostics) ||
        !handshake_data(t->world, t->program, dataset, path, hash, diagnostics))
        return false;
    if (*rows == 0) return true;
    bool ok = agreed_lengths_open(lengths, t->world, t->program, dataset, path, *rows, diagnostics);
    return labelled_rows_open(labelled, t->world, t->program, dataset, path, *rows, diagnostics) && ok;
}

static bool open_data(Training *t, Diagnostics *diagnostics, int *exit_code)
{
    const TrainingOptions *options = t->options;
    bool ok = dataset_open(&t->data, options->data, t->program, diagnostics);
    if (ok && options->eval_data) dataset_open(&t->evaluation_data, options->eval_data, t->program, diagnostics);
    if (!world_agree(t->world, diagnostics, exit_code)) return false;
    ok = open_rows(t, &t->data, options->data, &t->rows, &t->lengths, &t->data_hash, &t->labelled, diagnostics);
    if (ok && t->rows < t->batch)
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(options->data), "compile with fewer micro-batches",
                          "has %lld rows, which do not fill one batch of %lld", (long long)t->rows,
                          (long long)t->batch);
    if (t->program->packing.slots) packed_batch_open(&t->packed, t->program);
    if (ok && options->eval_data) {
        Hash unused;
        LabelledRows labelled;
        ok = open_rows(t, &t->evaluation_data, options->eval_data, &t->evaluation_rows, &t->evaluation_lengths, &unused,
                       &labelled, diagnostics);
        labelled_rows_close(&labelled);
        if (ok && evaluation_rows(t->program, t->evaluation_rows) == 0)
            diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(options->eval_data), NULL,
                              "has %lld rows, which do not fill one batch of %lld", (long long)t->evaluation_rows,
                              (long long)t->batch);
    }
    return world_agree(t->world, diagnostics, exit_code);
}

static double base_rate(const Training *t)
{
    double given = t->options->lr.base;
    return isnan(given) ? t->program->optimizer.learning_rate : given;
}

static double clip_of(const Training *t) { return isnan(t->options->clip) ? t->program->clip : t->options->clip; }

static bool open_work(Training *t, const char *directory, Diagnostics *diagnostics, int *exit_code)
{
    if (execution_open(&t->execution, t->program, parallel_threads(t->program->threads), NULL, diagnostics))
        parameters_initialize(&t->execution, directory, diagnostics);
    if (!world_agree(t->world, diagnostics, exit_code)) return false;
    world_meet_hosts(t->world, t->execution.threads);
    t->trace.enabled = t->options->trace != NULL;
    pipeline_open(&t->pipeline, t->world, &t->execution, &t->trace, t->options->emulate, diagnostics);
    gradients_open(&t->gradients, &t->pipeline, clip_of(t), t->options->skip_nonfinite, diagnostics);
    execution_exempt_from_decay(&t->execution, t->options->no_decay);
    if (!world_agree(t->world, diagnostics, exit_code)) return false;
    rates_set(t->world, &t->execution, t->options, base_rate(t), diagnostics);
    return world_agree(t->world, diagnostics, exit_code);
}

/* Collective. */
static bool open_evaluation(Training *t, Diagnostics *diagnostics, int *exit_code)
{
    const TrainingOptions *options = t->options;
    bool keeps = options->keep_best != METRIC_COUNT;
    Metric watched = keeps ? options->keep_best : METRIC_LOSS;
    if (options->eval_data) evaluation_choose(&t->pipeline, &options->metrics, 1u << watched, &t->metrics, diagnostics);
    if (watches(options)) watch_open(&t->watch, watched, options->patience);
    if (keeps) {
        Buffer path = {0};
        buffer_print(&path, "%s/best", options->checkpoint);
        t->best_directory = path.bytes;
        if (t->world->rank == t->world->first_here) checkpoint_check_directory(t->best_directory, diagnostics);
    }
    return world_agree(t->world, diagnostics, exit_code);
}

/* How many steps there are, and, until a checkpoint says otherwise, over how many the learning rate falls. */
static void open_schedule(Training *t)
{
    const TrainingOptions *options = t->options;
    int64_t batches = t->rows / t->batch, epochs = options->epochs;
    if (!options->steps && !epochs && isnan(options->until_loss)) epochs = 1;
    t->last_step = options->steps ? options->steps : epochs ? epochs * batches : INT64_MAX;
    t->schedule.total = options->schedule_steps     ? options->schedule_steps
                        : t->last_step == INT64_MAX ? 0
                                                    : t->last_step;
    t->weight_decay = isnan(options->weight_decay) ? t->program->optimizer.weight_decay : options->weight_decay;
}

/* What nobody said is as fine-tuning has it; without an end there is nothing to fall to. */
static void settle_schedule(Training *t, Diagnostics *diagnostics)
{
    enum { WARMUP_WITHOUT_END = 100 };
    static const double usual_warmup = 0.1;
    const TrainingOptions *options = t->options;
    LearningRateSchedule *schedule = &t->schedule;
    bool endless = t->last_step == INT64_MAX && !options->schedule_steps, warmup_given = options->warmup.steps >= 0;
    schedule->base = base_rate(t);
    schedule->kind = options->schedule;
    if (schedule->kind == SCHEDULE_COUNT) schedule->kind = endless ? SCHEDULE_CONSTANT : SCHEDULE_LINEAR;
    double share = warmup_given ? options->warmup.share : usual_warmup;
    schedule->warmup = warmup_given ? options->warmup.steps : endless ? WARMUP_WITHOUT_END : 0;
    if (share > 0 && !(endless && !warmup_given)) schedule->warmup = (int64_t)(share * (double)schedule->total);
    if (schedule->kind != SCHEDULE_CONSTANT && t->last_step != INT64_MAX && t->last_step > schedule->total &&
        t->world->rank == 0)
        diagnostics_warning(diagnostics, PLACE_NONE, "--schedule-steps makes it longer",
                            "the learning rate is 0 after step %lld, where its schedule ends",
                            (long long)schedule->total);
}

/* Takes over where the checkpoint stands: its seed and order, too. */
static void continue_from(Training *t, const CheckpointManifest *manifest, Diagnostics *diagnostics)
{
    Place place = PLACE_FILE(t->options->checkpoint);
    t->step = t->saved_step = manifest->step;
    t->skipped_before = manifest->skipped;
    t->cursor = manifest->cursor;
    if ((t->options->seed_given && t->options->seed != manifest->seed) || t->shuffled != manifest->shuffled)
        diagnostics_warning(diagnostics, place, NULL, "the order of the data goes on as it was begun, with seed %llu",
                            (unsigned long long)manifest->seed);
    t->seed = manifest->seed;
    if (manifest->schedule_steps && !t->options->schedule_steps) t->schedule.total = manifest->schedule_steps;
    t->shuffled = manifest->shuffled;
    if (watches(t->options) && !watch_continue(&t->watch, &manifest->best))
        diagnostics_warning(diagnostics, place, NULL, "the best %s until here says nothing about the best %s",
                            manifest->best.metric, metric_name(t->watch.metric));
    bool same_rows = manifest->rows == t->rows, known = !hash_equal(manifest->data, (Hash){0});
    if (same_rows && (!known || hash_equal(manifest->data, t->data_hash))) return;
    if (same_rows)
        diagnostics_warning(diagnostics, place, NULL,
                            "the checkpoint was made with other data than %s: starting at its beginning",
                            t->options->data);
    else
        diagnostics_warning(diagnostics, place, NULL,
                            "the checkpoint was made with data of %lld rows, this has %lld: starting at its beginning",
                            (long long)manifest->rows, (long long)t->rows);
    t->cursor = (DataCursor){0, 0};
}

static bool resume(Training *t, Diagnostics *diagnostics, int *exit_code)
{
    CheckpointManifest manifest;
    bool found = false;
    t->saved_step = -1;
    t->seed = t->options->seed;
    t->shuffled = !t->options->no_shuffle;
    if (t->options->resume &&
        checkpoint_resume(t->world, &t->execution, t->options->checkpoint, &manifest, &found, diagnostics) && found)
        continue_from(t, &manifest, diagnostics);
    settle_schedule(t, diagnostics);
    data_order_open(&t->order, t->seed, t->rows, t->batch, t->shuffled);
    return world_agree(t->world, diagnostics, exit_code);
}

/* The one rank with the loss. */
static void find_loss_rank(Training *t)
{
    uint32_t mine = 0, *all = memory_allocate((size_t)t->world->size * sizeof *all), count = 0;
    for (uint32_t s = 0; s < t->program->stage_count; s++) mine += t->program->stages[s].has_loss;
    world_allgather(t->world, &mine, sizeof mine, all, "agreement on the loss");
    for (int r = 0; r < t->world->size; r++) {
        count += all[r];
        if (all[r]) t->loss_rank = r;
    }
    if (count != 1) bug("%u stages compute the loss", count);
    free(all);
}

/* ---- Running ---- */

static _Noreturn void fail(Training *t, const Diagnostics *diagnostics)
{
    diagnostics_print(diagnostics, stderr);
    world_end(t->world, diagnostics->exit_code, "the step cannot be computed");
}

static void check_unchanged(Training *t, Dataset *dataset)
{
    Diagnostics diagnostics = {0};
    if (!dataset_check_unchanged(dataset, &diagnostics)) fail(t, &diagnostics);
}

/* Brings `size` bytes from the rank with the loss to rank 0. */
static void report(Training *t, void *bytes, size_t size)
{
    int pending = 0;
    if (t->loss_rank == 0) return;
    if (t->world->rank == t->loss_rank) world_send(t->world, bytes, size, 0, TAG_REPORT, &pending);
    if (t->world->rank == 0) world_receive(t->world, bytes, size, t->loss_rank, TAG_REPORT, &pending);
    world_wait(t->world, &pending, (WaitReason){t->world->rank ? 0 : t->loss_rank, -1, -1, "the loss"});
}

static bool finish_step(void *context, Diagnostics *diagnostics)
{
    Training *t = context;
    gradients_reduce(&t->gradients);
    if (!gradients_clip(&t->gradients)) return true;
    for (uint32_t s = 0; s < t->program->stage_count; s++)
        if (!pipeline_update(&t->pipeline, s, *t->world->step, diagnostics)) return false;
    return true;
}

static int64_t skipped_steps(const Training *t)
{
    return t->skipped_before + t->unlabelled + t->gradients.skipped_in_all;
}

/* The loss of a batch without labels is no number, and there is nothing to learn from it. All ranks know. */
static double skip_step(Training *t)
{
    t->unlabelled++;
    if (t->world->rank == 0 && t->unlabelled == 1)
        fprintf(stderr, "skycc: warning: step %lld: no row has a label that counts: the step updates nothing\n",
                (long long)t->step + 1);
    return NAN;
}

/* One batch; returns the loss on rank 0 and on the rank that computes it. */
static double run_step(Training *t, double learning_rate)
{
    Diagnostics diagnostics = {0};
    if (data_order_at_epoch_end(&t->order, &t->cursor)) check_unchanged(t, &t->data);
    data_order_next(&t->order, &t->cursor, t->batch_rows);
    if (!labelled_rows_any(&t->labelled, t->batch_rows, t->batch)) return skip_step(t);
    LabelCount labels[SKY_MOST_LABELS];
    dataset_count_labels(&t->data, t->program, t->batch_rows, t->batch, labels);
    step_scalars(t->execution.step, &t->program->optimizer, learning_rate, t->weight_decay, t->step - skipped_steps(t));
    step_scalars_losses(t->execution.step, t->program, labels);
    step_scalars_drop(t->execution.step, t->seed, t->step);
    if (t->packed.lengths) packed_batch_place(&t->packed, t->lengths.lengths, t->batch_rows);
    PipelineBatch batch = {.dataset = &t->data,
                           .rows = t->batch_rows,
                           .packed = t->packed.lengths ? &t->packed : NULL,
                           .step = t->step + 1,
                           .finish = gradients_need_work(&t->gradients) ? finish_step : NULL,
                           .context = t};
    if (!pipeline_train(&t->pipeline, &batch, &diagnostics)) fail(t, &diagnostics);
    double loss = 0;
    for (uint32_t m = 0; m < t->program->microbatch_count; m++) loss += t->pipeline.losses[m];
    if (t->world->rank == t->loss_rank && !isfinite(loss) && !t->gradients.skipped)
        world_diverged(t->world, "the loss is %g; a lower --lr, --warmup or --clip may help", loss);
    report(t, &loss, sizeof loss);
    return loss;
}

static CheckpointManifest describe(const Training *t)
{
    CheckpointManifest manifest = {.step = t->step,
                                   .skipped = skipped_steps(t),
                                   .data = t->data_hash,
                                   .cursor = t->cursor,
                                   .rows = t->rows,
                                   .seed = t->seed,
                                   .shuffled = t->shuffled,
                                   .schedule_steps = t->schedule.total,
                                   .optimizer = t->program->optimizer.kind};
    manifest.low_rank = checkpoint_low_rank(t->program);
    if (watches(t->options)) manifest.best = t->watch.best;
    snprintf(manifest.model_hash, sizeof manifest.model_hash, "%s", t->program->model_hash);
    snprintf(manifest.plan_hash, sizeof manifest.plan_hash, "%s", t->program->plan_hash);
    return manifest;
}

static void save(Training *t)
{
    if (t->saved_step == t->step) return;
    checkpoint_save(t->world, &t->execution, t->options->checkpoint, describe(t), t->options->keep);
    t->saved_step = t->step;
}

/* What follows from a value of the metric that is watched, which rank 0 knows. */
static void take_value(Training *t, double value)
{
    world_broadcast(t->world, WIRE_DECISION, &value, sizeof value, 0, "the evaluation");
    if (!watch_take(&t->watch, t->step, value) || t->options->keep_best == METRIC_COUNT) return;
    checkpoint_save_only(t->world, &t->execution, t->best_directory, describe(t));
    t->best_saved = true;
}

static void run_evaluation(Training *t)
{
    Diagnostics diagnostics = {0};
    EvaluationResult result;
    check_unchanged(t, &t->evaluation_data);
    const EvaluationRows rows = {t->evaluation_rows, t->evaluation_lengths.lengths, &t->packed};
    if (!evaluate(&t->pipeline, &t->evaluation_data, &rows, t->step, &t->metrics, &result, &diagnostics))
        fail(t, &diagnostics);
    report(t, &result, sizeof result);
    bool finite = isfinite(result.values[METRIC_LOSS]);
    if (!finite && !t->failed_evaluation) t->failed_evaluation = t->step;
    if (t->world->rank == 0) progress_evaluation(&t->progress, t->step, result.values, result.labels);
    if (watches(t->options)) take_value(t, result.values[t->watch.metric]);
}

static bool evaluation_is_due(const Training *t)
{
    int64_t every = t->options->eval_every;
    return every ? t->step % every == 0 : data_order_at_epoch_end(&t->order, &t->cursor);
}

/* Whether --until-loss is reached: rank 0 knows, and tells. */
static bool reached(Training *t, double loss)
{
    if (isnan(t->options->until_loss)) return false;
    bool stop = loss <= t->options->until_loss;
    world_broadcast(t->world, WIRE_DECISION, &stop, sizeof stop, 0, "the decision whether to go on");
    return stop;
}

/* What is to be done between this step and the next. Returns whether this one was the last. */
static bool finish_between(Training *t, double loss)
{
    const TrainingOptions *options = t->options;
    InterruptChoice choice = interrupts_agree(&t->interrupts);
    bool last = reached(t, loss) || t->step == t->last_step;
    if (!last) t->ended_by = choice.end, t->ended_site = choice.site;
    bool due = options->checkpoint_every && t->step % options->checkpoint_every == 0;
    if (options->eval_data && !t->ended_by && (last || evaluation_is_due(t))) run_evaluation(t);
    last = last || watch_is_over(&t->watch);
    bool stops = t->step == options->stop_after;
    if (options->checkpoint && (last || stops || due || choice.save)) {
        save(t);
        interrupts_saved();
    }
    return last || stops || t->ended_by;
}

/* Of the step that was just run. */
static StepTokens count_tokens(const Training *t)
{
    if (!labelled_rows_any(&t->labelled, t->batch_rows, t->batch)) return (StepTokens){0, 0};
    const SkyProgram *program = t->program;
    const PackedBatch *packed = t->packed.lengths ? &t->packed : NULL;
    int64_t lines = (int64_t)pipeline_microbatches(&t->pipeline, packed) * program->microbatch_size;
    if (packed && program->lines_vary) lines = packed->packer.lines;
    StepTokens tokens = {.computed = lines * program->sequence_length, .valid = -1};
    if (t->lengths.lengths) tokens.valid = agreed_lengths_sum(&t->lengths, t->batch_rows, t->batch);
    return tokens;
}

static void run_steps(Training *t)
{
    interrupts_open(&t->interrupts, t->world);
    bool over = t->step >= t->last_step || watch_is_over(&t->watch);
    if (t->options->stop_after && t->step >= t->options->stop_after) over = true;
    for (bool stop = over; !stop;) {
        *t->world->step = t->step + 1;
        double learning_rate = learning_rate_at(&t->schedule, t->step);
        double loss = run_step(t, learning_rate);
        t->step++;
        if (t->speaks) progress_step(&t->progress, t->step, loss, learning_rate, count_tokens(t));
        stop = finish_between(t, loss);
        if (!stop) interrupts_tell(&t->interrupts);
        if (t->speaks) progress_start_step(&t->progress);
    }
    interrupts_close(&t->interrupts);
}

/* Nothing that any rank has opened may be replaced, and what is written only after hours must not fail then for a
 * misspelt directory. */
static bool check_outputs(Training *t, Diagnostics *diagnostics, int *exit_code)
{
    const TrainingOptions *options = t->options;
    const char *const outputs[] = {options->log, options->trace, options->audit};
    OutputFile trace;
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        if (outputs[i]) input_files_spare(outputs[i], diagnostics);
    if (options->checkpoint) checkpoints_spare_inputs(options->checkpoint, diagnostics);
    if (t->best_directory) checkpoints_spare_inputs(t->best_directory, diagnostics);
    if (t->world->rank == 0 && options->trace && !diagnostics->errors &&
        file_create(&trace, options->trace, diagnostics))
        file_abandon(&trace);
    return world_agree(t->world, diagnostics, exit_code);
}

/* The first line: what is done without having been asked for, too. */
static void say_recipe(Training *t)
{
    static const char *const optimizers[] = {"SGD", "momentum", "Adam", "AdamW", "LAMB"};
    static const char *const exempt[] = {"", ", none on biases", ", none on norms", ", none on biases and norms"};
    const LearningRateSchedule *schedule = &t->schedule;
    Buffer line = {0};
    buffer_print(&line, "%s, learning rate %.6g", optimizers[t->program->optimizer.kind], schedule->base);
    if (schedule->warmup) buffer_print(&line, " after %lld steps of warm-up", (long long)schedule->warmup);
    if (schedule->kind == SCHEDULE_CONSTANT)
        buffer_print(&line, ", constant");
    else
        buffer_print(&line, ", %s decay to 0 after step %lld", schedule_name(schedule->kind),
                     (long long)schedule->total);
    if (t->weight_decay > 0)
        buffer_print(&line, ", weight decay %.6g%s", t->weight_decay, exempt[t->options->no_decay >> 1 & 3]);
    if (clip_of(t) > 0)
        buffer_print(&line, ", gradients clipped at %.6g", clip_of(t));
    else
        buffer_print(&line, ", no clipping");
    progress_say(&t->progress, "%s", buffer_text(&line));
    buffer_free(&line);
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

/* Of rank 0, which writes the log, and of the first rank of every other site. */
static void open_progress(Training *t, bool writes, Diagnostics *diagnostics)
{
    const TrainingOptions *options = t->options;
    int64_t last = t->last_step == INT64_MAX ? 0 : t->last_step, stop = options->stop_after;
    if (stop && (!last || stop < last)) last = stop;
    t->speaks = world_speaks(t->world);
    if (t->speaks)
        progress_open(&t->progress, options->quiet, writes ? options->log : NULL, t->step + 1, last, diagnostics);
    if (!writes) t->progress.site = world_site_name(t->world, world_site(t->world));
    t->progress.watched = options->keep_best;
}

static bool run(Training *t, const char *directory, int *exit_code)
{
    Diagnostics diagnostics = {0};
    if (!open_data(t, &diagnostics, exit_code) || !open_work(t, directory, &diagnostics, exit_code)) return false;
    if (t->options->checkpoint &&
        !checkpoint_lock_directory(t->world, t->program, t->options->checkpoint, &diagnostics, exit_code))
        return false;
    if (!open_evaluation(t, &diagnostics, exit_code) || !check_outputs(t, &diagnostics, exit_code)) return false;
    open_schedule(t);
    if (!resume(t, &diagnostics, exit_code)) return false;
    find_loss_rank(t);
    handshake_warm_up(t->world, t->program);
    bool writes = t->world->rank == 0;
    open_progress(t, writes, &diagnostics);
    if (!world_agree(t->world, &diagnostics, exit_code)) return false;
    if (writes) say_recipe(t);
    if (writes && t->step > 0) progress_say(&t->progress, "resuming after step %lld", (long long)t->step);
    run_steps(t);
    if (t->options->trace) trace_write(&t->trace, t->world, t->options->trace, &diagnostics);
    if (t->options->emulate) emulation_report(t->world, t->pipeline.emulated, t->execution.threads, &t->progress);
    const double *predicted = t->program->predicted_step_s;
    if (t->speaks) progress_close(&t->progress, predicted ? *predicted : 0, &diagnostics);
    if (writes) {
        if (t->saved_step >= 0) {
            char *path = checkpoint_path(t->options->checkpoint, t->saved_step);
            progress_say(&t->progress, "checkpoint: %s", path);
            free(path);
        }
        if (watches(t->options)) say_best(t);
        if (t->gradients.skipped_in_all)
            progress_say(&t->progress, "%lld steps were skipped: their gradients were not finite",
                         (long long)t->gradients.skipped_in_all);
        if (t->unlabelled)
            progress_say(&t->progress, "%lld steps updated nothing: they had no label that counts",
                         (long long)t->unlabelled);
        if (t->failed_evaluation)
            diagnostics_error(&diagnostics, EXIT_DIVERGED, PLACE_FILE(t->options->eval_data),
                              "a lower --lr, --warmup or --clip may help",
                              "the evaluation after step %lld was not finite", (long long)t->failed_evaluation);
    }
    if (t->speaks && t->ended_by) say_ended(t);
    if (!world_agree(t->world, &diagnostics, exit_code)) return false;
    if (t->ended_by) *exit_code = 128 + t->ended_by;
    return true;
}

static void close_all(Training *t)
{
    if (t->gradients.world) gradients_close(&t->gradients);
    if (t->pipeline.world) pipeline_close(&t->pipeline);
    if (t->execution.stages) execution_close(&t->execution);
    dataset_close(&t->data);
    dataset_close(&t->evaluation_data);
    labelled_rows_close(&t->labelled);
    row_lengths_free(&t->lengths);
    row_lengths_free(&t->evaluation_lengths);
    packed_batch_close(&t->packed);
    data_order_close(&t->order);
    trace_free(&t->trace);
    free(t->batch_rows);
    free(t->best_directory);
}

int train(World *world, const SkyProgram *program, const TrainingOptions *options, const char *directory)
{
    Training *t = memory_allocate(sizeof *t);
    int exit_code = EXIT_OK;
    t->world = world;
    t->program = program;
    t->options = options;
    t->batch = sky_batch_rows(program);
    t->batch_rows = memory_allocate((size_t)t->batch * sizeof *t->batch_rows);
    run(t, directory, &exit_code);
    close_all(t);
    free(t);
    return exit_code;
}
