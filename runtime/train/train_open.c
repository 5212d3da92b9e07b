/* Everything before the first step: data, memory, evaluation, the schedule, a checkpoint to resume. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/input_files.h"
#include "base/owned_files.h"
#include "runtime/program/parallel.h"
#include "runtime/storage/checkpoint_directory.h"
#include "runtime/storage/parameters.h"
#include "runtime/train/agreed_lengths.h"
#include "runtime/train/handshake.h"
#include "runtime/train/rates.h"
#include "runtime/train/training.h"

/* The number of rows; ranks that read no inputs learn it from the others. */
static bool agree_on_rows(World *world, const Dataset *dataset, const char *path, int64_t *rows,
                          Diagnostics *diagnostics)
{
    FREED int64_t *all = memory_allocate((size_t)world->size * sizeof *all);
    world_allgather(world, &dataset->rows, sizeof *all, all, "agreement on data");
    bool ok = true;
    *rows = 0;
    for (int r = 0, first = -1; r < world->size && ok; r++) {
        if (all[r] == 0) continue;
        if (first < 0) first = r, *rows = all[r];
        if (all[r] != *rows)
            ok = input_error(diagnostics, path, "give all hosts the same file",
                             "has %lld rows for rank %d, but %lld for rank %d", (long long)*rows, first,
                             (long long)all[r], r);
    }
    return ok;
}

/* Collective. Shares with all ranks what they must know about one of the two data sets. */
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

/* Sites see nothing of each other's data sets, only what the common model says. */
static void warn_of_own_names(const Training *t, Diagnostics *diagnostics)
{
    const char *known = t->program->label_names, *names = safetensors_metadata(&t->data.file, "labels");
    if (getenv(SKY_RECIPE_VARIABLE) && names && !(known && *known))
        diagnostics_warning(diagnostics, PLACE_FILE(t->options->data),
                            "name them in the model before skycc federate: skycc import --labels DATA, or "
                            "skycc head MODEL --head HEAD --as-is --labels DATA",
                            "numbers its labels as %s, but the federation's model has no names for them: all sites "
                            "must number them alike",
                            names);
}

static bool open_data(Training *t, Diagnostics *diagnostics, int *exit_code)
{
    const TrainingOptions *options = t->options;
    bool ok = dataset_open(&t->data, options->data, t->program, NULL, diagnostics);
    if (ok && options->eval_data)
        dataset_open(&t->evaluation_data, options->eval_data, t->program, &t->data, diagnostics);
    if (ok && t->data.read_count) warn_of_own_names(t, diagnostics);
    if (!world_agree(t->world, diagnostics, exit_code)) return false;
    ok = open_rows(t, &t->data, options->data, &t->rows, &t->lengths, &t->data_hash, &t->labelled, diagnostics);
    if (t->program->packing.slots) packed_batch_open(&t->packed, t->program);
    if (ok && options->eval_data) {
        FREED_WITH(labelled_rows_close) LabelledRows labelled = {0};
        open_rows(t, &t->evaluation_data, options->eval_data, &t->evaluation_rows, &t->evaluation_lengths,
                  &t->evaluation_hash, &labelled, diagnostics);
    }
    return world_agree(t->world, diagnostics, exit_code);
}

static double base_rate(const Training *t)
{
    double given = t->options->lr.base;
    return isnan(given) ? t->program->optimizer.learning_rate : given;
}

static bool open_work(Training *t, const char *directory, Diagnostics *diagnostics, int *exit_code)
{
    if (execution_open(&t->execution, t->program, parallel_threads(t->program->threads), NULL, diagnostics))
        parameters_initialize(&t->execution, directory, diagnostics);
    if (!world_agree(t->world, diagnostics, exit_code)) return false;
    world_meet_hosts(t->world, t->execution.threads);
    handshake_paths(t->world, t->program, t->options, diagnostics);
    if (!world_agree(t->world, diagnostics, exit_code)) return false;
    const char *events = getenv("SKYCC_TRACE_EVENTS");
    t->trace = (Trace){.enabled = t->options->trace != NULL, .most = events ? strtoul(events, NULL, 10) : 0};
    pipeline_open(&t->pipeline, t->world, &t->execution, &t->trace, t->options->emulate, diagnostics);
    checkpoint_writer_open(&t->writer, t->world, &t->execution, t->options->checkpoint_every, diagnostics);
    t->writer.retires = t->options->go_on != NULL; /* one after every round */
    gradients_open(&t->gradients, &t->pipeline, training_clip(t), t->options->skip_nonfinite, diagnostics);
    const ProximalFiles files = {t->options->proximal_start, t->options->control};
    proximal_open(&t->proximal, &t->execution, t->options->proximal, &files, diagnostics);
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
    if (options->eval_data)
        evaluation_choose(&t->pipeline, &t->evaluation_data, &options->metrics, 1u << watched, &t->metrics,
                          diagnostics);
    if (training_watches(t)) watch_open(&t->watch, watched, options->patience, t->evaluation_hash);
    if (keeps) {
        Buffer path = {0};
        buffer_print(&path, "%s/best", options->checkpoint);
        t->best_directory = path.bytes;
        if (t->world->rank == t->world->first_here) checkpoint_check_directory(t->best_directory, diagnostics);
    }
    return world_agree(t->world, diagnostics, exit_code);
}

/* Sets the number of steps and, until a checkpoint overrides it, over how many of them the learning rate falls. */
static void open_schedule(Training *t)
{
    const TrainingOptions *options = t->options;
    int64_t batches = data_order_batches(t->rows, t->batch), epochs = options->epochs;
    if (!options->steps && !epochs && isnan(options->until_loss)) epochs = 1;
    t->last_step = options->steps ? options->steps : epochs ? epochs * batches : INT64_MAX;
    t->schedule.total = options->schedule_steps     ? options->schedule_steps
                        : t->last_step == INT64_MAX ? 0
                                                    : t->last_step;
    t->weight_decay = isnan(options->weight_decay) ? t->program->optimizer.weight_decay : options->weight_decay;
}

/* The default schedule is that of fine-tuning. A run without an end has no decay. */
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
    if (share > 0 && !(endless && !warmup_given)) /* a single step has none: its rate would be 0 */
        schedule->warmup = schedule->total > 1 ? (int64_t)ceil(share * (double)schedule->total) : 0;
    if (schedule->kind != SCHEDULE_CONSTANT && t->last_step != INT64_MAX && t->last_step > schedule->total &&
        t->world->rank == 0)
        diagnostics_warning(diagnostics, PLACE_NONE, "--schedule-steps makes it longer",
                            "the learning rate is 0 after step %lld, where its schedule ends",
                            (long long)schedule->total);
}

static void check_evaluation_data(const Training *t, const CheckpointManifest *manifest, Diagnostics *diagnostics)
{
    const Hash none = {0}, before = manifest->evaluation_data, now = t->evaluation_hash;
    if (!hash_equal(before, none) && !hash_equal(now, none) && !hash_equal(before, now))
        diagnostics_warning(diagnostics, PLACE_FILE(t->options->eval_data), NULL,
                            "is not the evaluation data that the checkpoint was made with: what is measured from here "
                            "on does not compare with what was measured before");
}

/* Continues at the step of the checkpoint, with its seed and data order. */
static void continue_from(Training *t, const CheckpointManifest *manifest, Diagnostics *diagnostics)
{
    Place place = PLACE_FILE(t->options->checkpoint);
    t->step = t->saved_step = manifest->step;
    t->skipped_before = manifest->skipped;
    t->rates = t->options->control ? manifest->rates : 0;
    t->cursor = manifest->cursor;
    t->evaluation_due = manifest->evaluation_due;
    if ((t->options->seed_given && t->options->seed != manifest->seed) || t->shuffled != manifest->shuffled)
        diagnostics_warning(diagnostics, place, NULL, "the order of the data goes on as it was begun, with seed %llu",
                            (unsigned long long)manifest->seed);
    t->seed = manifest->seed;
    if (manifest->schedule_steps && !t->options->schedule_steps) t->schedule.total = manifest->schedule_steps;
    t->shuffled = manifest->shuffled;
    if (training_watches(t) && !watch_continue(&t->watch, &manifest->best))
        diagnostics_warning(diagnostics, place, NULL, "the best %s until here says nothing about the best %s of %s",
                            manifest->best.metric, metric_name(t->watch.metric), t->options->eval_data);
    else
        check_evaluation_data(t, manifest, diagnostics);
    CheckpointMicrobatch now = checkpoint_microbatch(t->program), before = manifest->microbatch;
    if (before.rows && (before.rows != now.rows || before.length != now.length))
        diagnostics_warning(diagnostics, place, "compile with the same micro-batches for the same bits",
                            "the checkpoint was made with micro-batches of %lld %s, these programs have %lld: sums are "
                            "rounded in another way from here on",
                            (long long)before.rows, before.length ? "packed sequences" : "rows", (long long)now.rows);
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
    bool found = false, begins = false;
    t->saved_step = -1;
    t->seed = t->options->seed;
    t->shuffled = !t->options->no_shuffle;
    if (t->options->resume &&
        checkpoint_resume(t->world, &t->execution, t->options->checkpoint, &manifest, &found, diagnostics) && found) {
        if (t->options->round_start)
            checkpoint_load_start(&t->execution, t->options->round_start, manifest.step, &begins, diagnostics);
        gradient_sums_spread_values(&t->gradients.sums);
        continue_from(t, &manifest, diagnostics);
        if (begins) t->rates = 0;
    }
    settle_schedule(t, diagnostics);
    data_order_open(&t->order, t->seed, t->rows, t->batch, t->shuffled);
    t->order.whole = t->program->whole_batches;
    return world_agree(t->world, diagnostics, exit_code);
}

/* A checkpoint that is saved later would replace the output, or fail because of it. */
static bool spare_checkpoints(const char *output, const char *checkpoint, Diagnostics *diagnostics)
{
    FREED char *path = path_resolve(output), *directory = path_resolve(checkpoint);
    const char *inside = path_inside(path, directory);
    bool taken = inside && (strncmp(inside, "step-", 5) == 0 || strcmp(inside, "best") == 0 ||
                            strncmp(inside, "best/", 5) == 0 || strncmp(inside, ".lock-", 6) == 0);
    return !taken || diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(output), "name another place",
                                       "is where --checkpoint %s keeps its checkpoints", checkpoint);
}

/* No output may replace a file that any rank has opened, another output, or a part of what skycc made. A misspelt
 * directory must fail now and not hours later. */
static bool check_outputs(Training *t, const char *directory, Diagnostics *diagnostics, int *exit_code)
{
    const TrainingOptions *options = t->options;
    const char *const outputs[] = {options->log, options->trace, options->audit, options->tensorboard,
                                   options->eval_first};
    enum { COUNT = sizeof outputs / sizeof *outputs };
    bool writes = t->world->rank == 0; /* others may have another folder */
    OutputFile trace;
    if (writes) directory_spare_own(directory);
    for (size_t i = 0; i < COUNT; i++) {
        if (!outputs[i]) continue;
        input_files_spare(outputs[i], diagnostics);
        if (writes) owned_files_spare(outputs[i], OUTPUT_WRITTEN, directory, diagnostics);
        if (writes && options->checkpoint) spare_checkpoints(outputs[i], options->checkpoint, diagnostics);
    }
    if (writes) outputs_apart(outputs, COUNT, diagnostics);
    if (options->checkpoint) checkpoints_spare_inputs(options->checkpoint, diagnostics);
    if (t->best_directory) checkpoints_spare_inputs(t->best_directory, diagnostics);
    if (writes && options->trace && !diagnostics->errors && file_create(&trace, options->trace, diagnostics))
        file_abandon(&trace);
    return world_agree(t->world, diagnostics, exit_code);
}

static bool open_progress(Training *t, Diagnostics *diagnostics, int *exit_code)
{
    const TrainingOptions *options = t->options;
    bool writes = t->world->rank == 0;
    int64_t last = t->last_step == INT64_MAX ? 0 : t->last_step, stop = options->stop_after;
    if (stop && !options->go_on && (!last || stop < last)) last = stop;
    t->speaks = world_speaks(t->world);
    if (t->speaks)
        progress_open(&t->progress, options->quiet, writes ? options->log : NULL, writes ? options->tensorboard : NULL,
                      t->step + 1, last, diagnostics);
    if (!writes) t->progress.site = world_site_name(t->world, world_site(t->world));
    t->progress.watched = options->keep_best;
    return world_agree(t->world, diagnostics, exit_code);
}

bool training_open(Training *t, const char *directory, Diagnostics *diagnostics, int *exit_code)
{
    const char *checkpoint = t->options->checkpoint;
    if (!open_data(t, diagnostics, exit_code) || !open_work(t, directory, diagnostics, exit_code) ||
        (checkpoint && !checkpoint_lock_directory(t->world, t->program, checkpoint, diagnostics, exit_code)) ||
        !open_evaluation(t, diagnostics, exit_code) || !check_outputs(t, directory, diagnostics, exit_code))
        return false;
    open_schedule(t);
    if (!resume(t, diagnostics, exit_code)) return false;
    loss_ranks_open(&t->losses, t->world, t->program);
    handshake_warm_up(t->world, t->program);
    return open_progress(t, diagnostics, exit_code);
}

void training_close(Training *t)
{
    checkpoint_writer_close(&t->writer);
    loss_ranks_close(&t->losses);
    if (t->gradients.world) gradients_close(&t->gradients);
    proximal_close(&t->proximal);
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
