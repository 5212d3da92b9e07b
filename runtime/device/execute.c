#include "runtime/device/execute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/program/parallel.h"

static bool out_of_range(const SkyCall *call, Diagnostics *diagnostics)
{
    Place place = {.object = call->name};
    return diagnostics_error(diagnostics, EXIT_RUN_FAILED, place,
                             "check that ids lie inside the vocabulary and labels inside the classes",
                             "an index is outside the tensor it reads");
}

static void fill_updates(const Execution *execution, const StageSpaces *spaces)
{
    for (uint32_t i = 0; i < spaces->stage->lists[SKY_LIST_UPDATE].count; i++) {
        UpdateScalars *update = &spaces->updates[i];
        memcpy(update->values, &execution->step[update->exempt ? SKY_STEP_GROUP : 0], sizeof update->values);
        if (update->rate != 1)
            update->values[SKY_STEP_LEARNING_RATE] = (float)(execution->learning_rate * update->rate);
    }
}

/* False after reporting. */
static bool run_work(DeviceWork *work, Diagnostics *diagnostics)
{
    return work->execution->kind->run(work, diagnostics) ||
           (work->failed ? out_of_range(work->failed, diagnostics) : false);
}

bool execution_run(Execution *execution, uint32_t stage, SkyListKind list, uint32_t slot, Diagnostics *diagnostics)
{
    const StageSpaces *spaces = &execution->stages[stage];
    bool update = list == SKY_LIST_UPDATE;
    DeviceWork work = {.execution = execution,
                       .stage = stage,
                       .slot = slot,
                       .list = list,
                       .present = spaces->present[slot],
                       .updates = update ? spaces->updates : NULL};
    if (update) fill_updates(execution, spaces);
    return run_work(&work, diagnostics);
}

void *execution_address(const Execution *execution, uint32_t stage, uint32_t slot, SkyLocation location)
{
    unsigned char *base = device_bases(execution, stage, slot).space[location.space];
    return base ? base + location.offset : NULL;
}

void *execution_fetch(const Execution *execution, uint32_t stage, uint32_t slot, SkyLocation location, size_t bytes)
{
    if (execution->kind->fetch) execution->kind->fetch(execution, (DevicePiece){stage, slot, location, bytes});
    return execution_address(execution, stage, slot, location);
}

void execution_fetch_ahead(const Execution *execution, uint32_t stage, uint32_t slot, SkyLocation location,
                           size_t bytes)
{
    if (execution->kind->fetch) execution->kind->fetch_ahead(execution, (DevicePiece){stage, slot, location, bytes});
}

bool execution_fetched(const Execution *execution, bool wait)
{
    return !execution->kind->fetch || execution->kind->fetched(execution, wait);
}

void execution_hand(const Execution *execution, uint32_t stage, uint32_t slot, SkyLocation location, size_t bytes)
{
    if (execution->kind->hand) execution->kind->hand(execution, (DevicePiece){stage, slot, location, bytes});
}

void execution_set_tokens(Execution *execution, uint32_t stage, uint32_t slot, uint32_t tokens)
{
    uint32_t length = execution->line_length, lines = (tokens + length - 1) / length;
    if (!lines || lines > device_most_lines(execution->program)) bug("a micro-batch has %u lines", lines);
    execution->stages[stage].present[slot] = (SkyPresent){lines, execution->counts_tokens ? tokens : lines * length};
}

void execution_keep_apart(Execution *execution)
{
    for (uint32_t i = 0; i < execution->program->stage_count; i++)
        cpu_make_waves(execution, &execution->stages[i], true);
}

static bool open_stage(const Execution *execution, StageSpaces *spaces, const SkyStage *stage, Diagnostics *diagnostics)
{
    int threads = execution->kind->fetch ? 0 : execution->threads; /* else the host touches what it needs */
    uint32_t most = device_most_lines(execution->program);
    spaces->stage = stage;
    spaces->present = memory_allocate((stage->slot_count + 1) * sizeof *spaces->present);
    for (uint32_t slot = 0; slot <= stage->slot_count; slot++)
        spaces->present[slot] = (SkyPresent){most, most * execution->line_length};
    spaces->slot_stride = memory_round_up(stage->space_bytes[SKY_SPACE_SLOT], MEMORY_ALIGNMENT);
    spaces->updates = memory_allocate((stage->lists[SKY_LIST_UPDATE].count + 1) * sizeof *spaces->updates);
    spaces->squares = memory_allocate((stage->parameter_count + 1) * sizeof *spaces->squares);
    for (uint32_t i = 0; i < stage->lists[SKY_LIST_UPDATE].count; i++) spaces->updates[i].rate = 1;
    size_t slots;
    if (!size_multiply(spaces->slot_stride, stage->slot_count, &slots)) bug("stage %u: slots overflow", stage->index);
    return memory_map(&spaces->state, stage->space_bytes[SKY_SPACE_STATE], threads, "parameters and optimiser state",
                      diagnostics) &&
           memory_map(&spaces->slots, slots, threads, "micro-batches in flight", diagnostics);
}

bool execution_open(Execution *execution, const SkyProgram *program, int threads, ExecuteInterpreter *interpreter,
                    Diagnostics *diagnostics)
{
    *execution = (Execution){.program = program,
                             .kind = program->opencl_source ? &device_opencl : &device_cpu,
                             .threads = threads,
                             .line_length = program->packing.slots ? program->packing.length : 1,
                             .interpreter = interpreter};
    execution->stages = memory_allocate(program->stage_count * sizeof *execution->stages);
    bool ok = true;
    for (uint32_t i = 0; i < program->stage_count && ok; i++)
        ok = open_stage(execution, &execution->stages[i], &program->stages[i], diagnostics);
    ok = ok && execution->kind->open(execution, diagnostics);
    if (!ok) execution_close(execution);
    return ok;
}

void execution_close(Execution *execution)
{
    if (!execution->stages) return;
    execution->kind->close(execution);
    for (uint32_t i = 0; i < execution->program->stage_count; i++) {
        memory_unmap(&execution->stages[i].state);
        memory_unmap(&execution->stages[i].slots);
        free(execution->stages[i].updates);
        free(execution->stages[i].squares);
        free(execution->stages[i].present);
    }
    free(execution->stages);
    memory_unmap(&execution->scratch);
    execution->stages = NULL;
}

/* The next of the parameter's update calls, from call `from` on; NULL after the last. */
static UpdateScalars *next_update(const StageSpaces *spaces, const SkyParameter *parameter, uint32_t *from)
{
    if (*from >= spaces->stage->lists[SKY_LIST_UPDATE].count) return NULL;
    UpdateScalars *update = &spaces->updates[*from];
    *from = parameter->update_stride ? *from + parameter->update_stride : UINT32_MAX;
    return update;
}

void execution_exempt_from_decay(Execution *execution, uint32_t classes)
{
    for (SkyHeld held = {0}; sky_next_parameter(execution->program, &held);) {
        const StageSpaces *spaces = &execution->stages[held.stage];
        uint32_t call = held.parameter->update;
        if (held.parameter->frozen) continue;
        if (call >= spaces->stage->lists[SKY_LIST_UPDATE].count) bug("%s has no update", held.parameter->value.name);
        for (UpdateScalars *update; (update = next_update(spaces, held.parameter, &call));)
            update->exempt = classes >> held.parameter->decay_exempt_class & 1;
    }
}

void execution_set_rate(Execution *execution, uint32_t stage, const SkyParameter *parameter, double rate)
{
    uint32_t call = parameter->update;
    for (UpdateScalars *update; (update = next_update(&execution->stages[stage], parameter, &call));)
        update->rate = rate;
}

/* ---- Uses and squares ---- */

void execution_sum_uses(const Execution *execution, uint32_t stage)
{
    const SkyStage *from = execution->stages[stage].stage;
    for (uint32_t p = 0; p < from->parameter_count; p++) {
        const SkyParameter *parameter = &from->parameters[p];
        if (parameter->use_count < 2) continue;
        FREED float **uses = memory_allocate(parameter->use_count * sizeof *uses);
        for (uint32_t u = 0; u < parameter->use_count; u++)
            uses[u] = execution_fetch(execution, stage, 0, parameter->uses[u].gradient, parameter->value.bytes);
        float *sum = execution_address(execution, stage, 0, parameter->gradient);
        parallel_add(execution->threads, sum, uses, (int)parameter->use_count, parameter->value.bytes / sizeof *sum);
        for (uint32_t u = 0; u < parameter->use_count; u++)
            if (uses[u] != sum) parallel_zero(execution->threads, uses[u], parameter->value.bytes);
        for (uint32_t u = 0; u < parameter->use_count; u++)
            execution_hand(execution, stage, 0, parameter->uses[u].gradient, parameter->value.bytes);
        execution_hand(execution, stage, 0, parameter->gradient, parameter->value.bytes);
    }
}

/* Runs the squares of a tensor, or of each the first part alone. Only a device that is lost fails: nobody could go
 * on. */
static void run_squares(const Execution *execution, uint32_t stage, int tensor, bool spot)
{
    DeviceWork work = {.execution = execution,
                       .stage = stage,
                       .list = SKY_LIST_SQUARES,
                       .present = execution->stages[stage].present[0],
                       .first_operand = tensor,
                       .spot = spot};
    Diagnostics said = {0};
    if (run_work(&work, &said)) return;
    diagnostics_print(&said, stderr);
    _exit(EXIT_RUN_FAILED);
}

/* The sums of squares of a parameter's parts. */
static const double *square_parts(const Execution *execution, uint32_t stage, const SkyParameter *parameter,
                                  uint32_t count)
{
    const SkyCall *call = &execution->stages[stage].stage->lists[SKY_LIST_SQUARES].calls[parameter->squares];
    return execution_fetch(execution, stage, 0, call->operands[1], count * sizeof(double));
}

const double *execution_squares(const Execution *execution, uint32_t stage, int tensor)
{
    const StageSpaces *spaces = &execution->stages[stage];
    run_squares(execution, stage, tensor, false);
    for (uint32_t p = 0; p < spaces->stage->parameter_count; p++) {
        const SkyParameter *parameter = &spaces->stage->parameters[p];
        spaces->squares[p] = 0;
        if (parameter->frozen) continue;
        const double *parts = square_parts(execution, stage, parameter, parameter->square_parts);
        for (uint32_t i = 0; i < parameter->square_parts; i++) spaces->squares[p] += parts[i];
    }
    return spaces->squares;
}

/* A sum of squares in double is finite if and only if all its numbers are: none overflows. */
const SkyParameter *execution_not_finite(const Execution *execution, uint32_t stage, int *state)
{
    const SkyStage *s = execution->stages[stage].stage;
    uint32_t states = 0, first = s->parameter_count;
    for (uint32_t p = 0; p < s->parameter_count; p++)
        if (s->parameters[p].state_count > states) states = s->parameters[p].state_count;
    for (uint32_t i = 0; i <= states; i++) {
        const double *squares = execution_squares(execution, stage, EXECUTION_VALUE + (int)i);
        for (uint32_t p = 0; p < first; p++) {
            if (isfinite(squares[p])) continue;
            first = p;
            *state = (int)i - 1;
        }
    }
    return first < s->parameter_count ? &s->parameters[first] : NULL;
}

const SkyParameter *execution_spot_not_finite(const Execution *execution, uint32_t stage)
{
    const SkyStage *s = execution->stages[stage].stage;
    run_squares(execution, stage, EXECUTION_VALUE, true);
    for (uint32_t p = 0; p < s->parameter_count; p++) {
        if (s->parameters[p].frozen || !s->parameters[p].square_parts) continue;
        if (!isfinite(*square_parts(execution, stage, &s->parameters[p], 1))) return &s->parameters[p];
    }
    return NULL;
}
