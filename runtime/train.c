#include "runtime/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint.h"
#include "runtime/evaluate.h"
#include "runtime/gradients.h"
#include "runtime/handshake.h"
#include "runtime/parallel.h"
#include "runtime/parameters.h"
#include "runtime/progress.h"

typedef struct Training {
    World *world;
    const SkyProgram *program;
    const RunOptions *options;
    Dataset data, evaluation_data;
    int64_t rows, evaluation_rows; /* as all ranks agree */
    Execution execution;
    Pipeline pipeline;
    Gradients gradients;
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
    int64_t step, last_step; /* updates that were made; are to be made, INT64_MAX: no limit */
    int64_t saved_step;      /* of the newest checkpoint; -1: none */
    int loss_rank;
} Training;

/* --- Setting up ----------------------------------------------------------------------------------------------------
 */

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

static bool open_data(Training *t, Diagnostics *diagnostics, int *exit_code)
{
    const RunOptions *options = t->options;
    bool ok = dataset_open(&t->data, options->data, t->program, diagnostics);
    if (ok && options->eval_data) dataset_open(&t->evaluation_data, options->eval_data, t->program, diagnostics);
    if (!world_agree(t->world, diagnostics, exit_code)) return false;
    ok = agree_on_rows(t->world, &t->data, options->data, &t->rows, diagnostics);
    if (ok && options->eval_data)
        ok = agree_on_rows(t->world, &t->evaluation_data, options->eval_data, &t->evaluation_rows, diagnostics);
    if (ok && t->rows < t->batch)
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(options->data), "compile with fewer micro-batches",
                          "has %lld rows, which do not fill one batch of %lld", (long long)t->rows,
                          (long long)t->batch);
    if (ok && options->eval_data && evaluation_rows(t->program, t->evaluation_rows) == 0)
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(options->eval_data), NULL,
                          "has %lld rows, which do not fill one batch of %lld", (long long)t->evaluation_rows,
                          (long long)t->batch);
    return world_agree(t->world, diagnostics, exit_code);
}

static bool open_work(Training *t, const char *directory, Diagnostics *diagnostics, int *exit_code)
{
    if (execution_open(&t->execution, t->program, parallel_threads(t->program->threads), NULL, diagnostics))
        parameters_initialize(&t->execution, directory, diagnostics);
    if (!world_agree(t->world, diagnostics, exit_code)) return false;
    world_meet_hosts(t->world, t->execution.threads);
    t->trace.enabled = t->options->trace != NULL;
    pipeline_open(&t->pipeline, t->world, &t->execution, &t->trace, t->options->emulate, diagnostics);
    gradients_open(&t->gradients, &t->pipeline, t->options->clip, diagnostics);
    execution_exempt_from_decay(&t->execution, t->options->no_decay);
    return world_agree(t->world, diagnostics, exit_code);
}

static void open_schedule(Training *t)
{
    const RunOptions *options = t->options;
    int64_t batches = t->rows / t->batch, epochs = options->epochs;
    if (!options->steps && !epochs && isnan(options->until_loss)) epochs = 1;
    t->last_step = options->steps ? options->steps : epochs ? epochs * batches : INT64_MAX;
    int64_t warmup = options->warmup_steps;
    if (options->warmup_share > 0) warmup = (int64_t)(options->warmup_share * (double)t->last_step);
    double base = isnan(options->learning_rate) ? t->program->optimizer.learning_rate : options->learning_rate;
    t->schedule = (LearningRateSchedule){base, options->schedule, warmup, t->last_step};
    t->weight_decay = isnan(options->weight_decay) ? t->program->optimizer.weight_decay : options->weight_decay;
}

/* Takes over where the checkpoint stands: its seed and order, too. */
static void continue_from(Training *t, const CheckpointManifest *manifest, Diagnostics *diagnostics)
{
    Place place = PLACE_FILE(t->options->checkpoint);
    t->step = t->saved_step = manifest->step;
    t->cursor = manifest->cursor;
    if ((t->options->seed_given && t->options->seed != manifest->seed) || t->shuffled != manifest->shuffled)
        diagnostics_warning(diagnostics, place, NULL, "the order of the data goes on as it was begun, with seed %llu",
                            (unsigned long long)manifest->seed);
    t->seed = manifest->seed;
    t->shuffled = manifest->shuffled;
    if (manifest->rows == t->rows) return;
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

/* --- Running -------------------------------------------------------------------------------------------------------
 */

static _Noreturn void fail(Training *t, const Diagnostics *diagnostics)
{
    diagnostics_print(diagnostics, stderr);
    world_fail(t->world, "the step cannot be computed");
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
    gradients_clip(&t->gradients);
    for (uint32_t s = 0; s < t->program->stage_count; s++)
        if (!pipeline_update(&t->pipeline, s, *t->world->step, diagnostics)) return false;
    return true;
}

/* One batch; returns the loss on rank 0 and on the rank that computes it. */
static double run_step(Training *t, double learning_rate)
{
    Diagnostics diagnostics = {0};
    data_order_next(&t->order, &t->cursor, t->batch_rows);
    int64_t valid[SKY_MOST_LABELS];
    dataset_valid_labels(&t->data, t->program, t->batch_rows, t->batch, valid);
    step_scalars(t->execution.step, &t->program->optimizer, learning_rate, t->weight_decay, t->step);
    step_scalars_losses(t->execution.step, t->program, valid);
    step_scalars_drop(t->execution.step, t->seed, t->step);
    PipelineBatch batch = {.dataset = &t->data,
                           .rows = t->batch_rows,
                           .step = t->step + 1,
                           .finish = gradients_need_work(&t->gradients) ? finish_step : NULL,
                           .context = t};
    if (!pipeline_train(&t->pipeline, &batch, &diagnostics)) fail(t, &diagnostics);
    double loss = 0;
    for (uint32_t m = 0; m < t->program->microbatch_count; m++) loss += t->pipeline.losses[m];
    if (t->world->rank == t->loss_rank && !isfinite(loss))
        world_fail(t->world, "the loss is %g; a lower --lr, --warmup or --clip may help", loss);
    report(t, &loss, sizeof loss);
    return loss;
}

static void save(Training *t)
{
    if (t->saved_step == t->step) return;
    CheckpointManifest manifest = {.step = t->step,
                                   .cursor = t->cursor,
                                   .rows = t->rows,
                                   .seed = t->seed,
                                   .shuffled = t->shuffled,
                                   .optimizer = t->program->optimizer.kind};
    snprintf(manifest.model_hash, sizeof manifest.model_hash, "%s", t->program->model_hash);
    snprintf(manifest.plan_hash, sizeof manifest.plan_hash, "%s", t->program->plan_hash);
    checkpoint_save(t->world, &t->execution, t->options->checkpoint, manifest, t->options->keep);
    t->saved_step = t->step;
}

static void run_evaluation(Training *t)
{
    Diagnostics diagnostics = {0};
    EvaluationResult result;
    if (!evaluate(&t->pipeline, &t->evaluation_data, t->evaluation_rows, t->step, &result, &diagnostics))
        fail(t, &diagnostics);
    report(t, &result, sizeof result);
    if (t->world->rank == 0) progress_evaluation(&t->progress, t->step, result.loss, result.accuracy, result.labels);
}

/* Whether --until-loss is reached: rank 0 knows, and tells. */
static bool reached(Training *t, double loss)
{
    if (isnan(t->options->until_loss)) return false;
    bool stop = loss <= t->options->until_loss;
    world_broadcast(t->world, &stop, sizeof stop, 0, "the decision whether to go on");
    return stop;
}

static void run_steps(Training *t)
{
    const RunOptions *options = t->options;
    bool stop = false;
    while (t->step < t->last_step && !stop) {
        *t->world->step = t->step + 1;
        double learning_rate = learning_rate_at(&t->schedule, t->step);
        double loss = run_step(t, learning_rate);
        t->step++;
        if (t->world->rank == 0) progress_step(&t->progress, t->step, loss, learning_rate);
        stop = reached(t, loss);
        bool last = stop || t->step == t->last_step;
        if (options->eval_data && (last || data_order_at_epoch_end(&t->order, &t->cursor))) run_evaluation(t);
        if (options->checkpoint && (last || (options->checkpoint_every && t->step % options->checkpoint_every == 0)))
            save(t);
        if (t->world->rank == 0) progress_start_step(&t->progress);
    }
}

/* What is written only after hours must not fail then for a misspelt directory. */
static void check_outputs(const RunOptions *options, Diagnostics *diagnostics)
{
    OutputFile trace;
    if (options->checkpoint) checkpoint_check_directory(options->checkpoint, diagnostics);
    if (options->trace && file_create(&trace, options->trace, diagnostics)) file_abandon(&trace);
}

static bool run(Training *t, const char *directory, int *exit_code)
{
    Diagnostics diagnostics = {0};
    if (!open_data(t, &diagnostics, exit_code) || !open_work(t, directory, &diagnostics, exit_code)) return false;
    open_schedule(t);
    if (!resume(t, &diagnostics, exit_code)) return false;
    find_loss_rank(t);
    handshake_warm_up(t->world, t->program);
    bool writes = t->world->rank == 0;
    if (writes) check_outputs(t->options, &diagnostics);
    int64_t last = t->last_step == INT64_MAX ? 0 : t->last_step;
    if (writes)
        progress_open(&t->progress, t->options->quiet, t->options->log, t->step + 1, last,
                      (double)t->batch * t->program->sequence_length, &diagnostics);
    if (!world_agree(t->world, &diagnostics, exit_code)) return false;
    if (writes && t->step > 0) progress_say(&t->progress, "resuming after step %lld", (long long)t->step);
    run_steps(t);
    if (t->options->trace) trace_write(&t->trace, t->world, t->options->trace, &diagnostics);
    if (writes) {
        const double *predicted = t->program->predicted_step_s;
        progress_close(&t->progress, predicted ? *predicted : 0, &diagnostics);
        if (t->saved_step >= 0) {
            char *path = checkpoint_path(t->options->checkpoint, t->saved_step);
            progress_say(&t->progress, "checkpoint: %s", path);
            free(path);
        }
    }
    return world_agree(t->world, &diagnostics, exit_code);
}

static void close_all(Training *t)
{
    if (t->gradients.world) gradients_close(&t->gradients);
    if (t->pipeline.world) pipeline_close(&t->pipeline);
    if (t->execution.stages) execution_close(&t->execution);
    dataset_close(&t->data);
    dataset_close(&t->evaluation_data);
    data_order_close(&t->order);
    trace_free(&t->trace);
    free(t->batch_rows);
}

int train(World *world, const SkyProgram *program, const RunOptions *options, const char *directory)
{
    Training *t = memory_allocate(sizeof *t);
    int exit_code = EXIT_OK;
    t->world = world;
    t->program = program;
    t->options = options;
    t->batch = (int64_t)program->microbatch_count * program->microbatch_size;
    t->batch_rows = memory_allocate((size_t)t->batch * sizeof *t->batch_rows);
    run(t, directory, &exit_code);
    close_all(t);
    free(t);
    return exit_code;
}
