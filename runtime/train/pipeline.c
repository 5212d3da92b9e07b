#include "runtime/train/pipeline.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/program/parallel.h"
#include "runtime/program/step.h"

enum { RECEIVES_AHEAD = 4 };

static Stopwatch stopwatch_start(const Pipeline *pipeline)
{
    double now = monotonic_seconds();
    return (Stopwatch){now, thread_seconds(), pipeline->emulate ? pipeline->emulated.now : now};
}

/* When the work since `start` is done, as far as it has come: now, or as the emulated device would do it. Where
 * this thread alone computes, its CPU time counts: it leaves out the other ranks of an emulation on the same cores. */
static double work_end(const Pipeline *pipeline, Stopwatch start)
{
    double now = monotonic_seconds(), slowdown = pipeline->program->slowdown > 1 ? pipeline->program->slowdown : 1;
    if (!pipeline->emulate) return now;
    double worked =
        execution_by_this_thread(pipeline->execution) ? thread_seconds() - start.processor : now - start.wall;
    return start.device + worked * slowdown;
}

static bool is_receive(uint32_t op) { return op == SKY_RECEIVE_FORWARD || op == SKY_RECEIVE_BACKWARD; }

static bool is_of_forward(uint32_t op)
{
    return op == SKY_RECEIVE_FORWARD || op == SKY_FORWARD || op == SKY_SEND_FORWARD;
}

static uint32_t *slot_of(const Pipeline *pipeline, int local, uint32_t microbatch)
{
    return &pipeline->slot_of[(uint32_t)local * pipeline->program->microbatch_count + microbatch];
}

/* The index of stage `stage` among this rank's stages; -1 if it is elsewhere, before the first or after the last. */
static int local_stage(const Pipeline *pipeline, int64_t stage)
{
    return stage < 0 || stage >= pipeline->program->total_stage_count ? -1 : pipeline->local[stage];
}

/* ---- Preparation ---- */

static bool touches_slot(const Pipeline *pipeline, const SkyInstruction *item, uint32_t stage, uint32_t slot)
{
    if (item->op == SKY_UPDATE || item->op == SKY_REDUCE) return false;
    if (item->stage == stage) return item->slot == slot;
    /* The next stage, if it is on this rank too, copies its activations out of the slot. */
    return item->op == SKY_FORWARD && item->stage == stage + 1 &&
           *slot_of(pipeline, pipeline->local[stage], item->microbatch) == slot;
}

/* The last instruction before `receive` that must be done before its buffer is written. */
static int find_ready(const Pipeline *pipeline, const InstructionList *list, int receive)
{
    const SkyInstruction *wanted = &list->items[receive];
    for (int i = receive - 1; i >= 0; i--) {
        const SkyInstruction *item = &list->items[i];
        if (wanted->op == SKY_RECEIVE_FORWARD && touches_slot(pipeline, item, wanted->stage, wanted->slot)) return i;
        if (wanted->op == SKY_RECEIVE_BACKWARD && item->op == SKY_FORWARD && item->stage == wanted->stage &&
            item->microbatch == wanted->microbatch)
            return i;
    }
    return -1;
}

static void list_open(Pipeline *pipeline, InstructionList *list, bool forward_only)
{
    const SkyProgram *program = pipeline->program;
    Arena *arena = &pipeline->arena;
    size_t size = program->instruction_count + 1;
    *list = (InstructionList){.items = arena_new_array(arena, SkyInstruction, size),
                              .receives = arena_new_array(arena, int, size),
                              .ready = arena_new_array(arena, int, size),
                              .pending = arena_new_array(arena, int, size),
                              .posted = arena_new_array(arena, bool, size),
                              .due = arena_new_array(arena, double, size)};
    for (uint32_t i = 0; i < program->instruction_count; i++)
        if (!forward_only || is_of_forward(program->instructions[i].op))
            list->items[list->count++] = program->instructions[i];
    for (int i = 0; i < list->count; i++)
        if (is_receive(list->items[i].op)) {
            list->ready[list->receive_count] = find_ready(pipeline, list, i);
            list->receives[list->receive_count++] = i;
        }
}

static void check_instructions(const Pipeline *pipeline)
{
    const SkyProgram *program = pipeline->program;
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const SkyInstruction *item = &program->instructions[i];
        if (item->op >= SKY_OP_COUNT || item->stage >= program->total_stage_count || pipeline->local[item->stage] < 0)
            bug("instruction %u is malformed", i);
        if (item->op == SKY_UPDATE || item->op == SKY_REDUCE) continue;
        if (item->microbatch >= sky_own_microbatches(program) ||
            item->slot >= program->stages[pipeline->local[item->stage]].slot_count)
            bug("instruction %u names micro-batch %u in slot %u", i, item->microbatch, item->slot);
    }
}

static bool settle_tags(Pipeline *pipeline, Diagnostics *diagnostics)
{
    World *world = pipeline->world;
    uint32_t most = world_largest(world, message_most_tensors(pipeline->program), "agreement on tags");
    pipeline->tags = message_tags(pipeline->program, most ? most : 1);
    int *limit, found;
    MPI_Comm_get_attr(world->data, MPI_TAG_UB, &limit, &found);
    int64_t needed = message_tag_of_parameter(&pipeline->tags, pipeline->program->total_parameter_count, false);
    if (found && needed < *limit) return true;
    return run_error(diagnostics, "use fewer micro-batches", "%lld different messages are more than MPI can tell apart",
                     (long long)needed);
}

static void post_unsent(Pipeline *pipeline, bool wait);

/* Called between kernels, because a large message waits for the sender's next call of MPI. */
static void keep_moving(void *context, uint32_t calls)
{
    static const double period = 50e-6;
    Pipeline *pipeline = context;
    World *world = pipeline->world;
    const struct PipelineEnding *ending = &pipeline->ending;
    if (ending->batch) {
        double end = work_end(pipeline, ending->start);
        ending->batch->gradients_grow(ending->batch->context, ending->local, calls, end);
    }
    post_unsent(pipeline, false);
    if (world->request_count && monotonic_seconds() - world->last_progress > period) world_progress(world);
}

bool pipeline_open(Pipeline *pipeline, World *world, Execution *execution, Trace *trace, bool emulate,
                   Diagnostics *diagnostics)
{
    const SkyProgram *program = execution->program;
    *pipeline =
        (Pipeline){.world = world, .execution = execution, .program = program, .trace = trace, .emulate = emulate};
    execution->between = keep_moving;
    execution->between_context = pipeline;
    Arena *arena = &pipeline->arena;
    pipeline->local = arena_new_array(arena, int, program->total_stage_count);
    pipeline->slot_of = arena_new_array(arena, uint32_t, (size_t)program->stage_count * program->microbatch_count);
    pipeline->sends = arena_new_array(arena, SlotSends *, program->stage_count);
    pipeline->emulate_links = emulate && world->one_host && program->links;
    pipeline->link_free = arena_new_array(arena, double, 2 * (size_t)program->total_stage_count);
    pipeline->losses = arena_new_array(arena, double, program->microbatch_count);
    pipeline->weights_kept = arena_new_array(arena, bool, (size_t)SKY_LIST_COUNT * program->stage_count);
    for (uint32_t s = 0; s < program->total_stage_count; s++) pipeline->local[s] = -1;
    for (uint32_t s = 0; s < program->stage_count; s++) {
        pipeline->local[program->stages[s].index] = (int)s;
        pipeline->sends[s] = arena_new_array(arena, SlotSends, program->stages[s].slot_count);
    }
    check_instructions(pipeline);
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const SkyInstruction *item = &program->instructions[i];
        if (item->op == SKY_FORWARD) *slot_of(pipeline, pipeline->local[item->stage], item->microbatch) = item->slot;
    }
    list_open(pipeline, &pipeline->training, false);
    list_open(pipeline, &pipeline->evaluation, true);
    return settle_tags(pipeline, diagnostics);
}

void pipeline_close(Pipeline *pipeline)
{
    pipeline->execution->between = NULL;
    arena_free(&pipeline->arena);
}

/* ---- Lines ---- */

/* The packed sequences of the micro-batch; 1 if rows are not packed. */
static uint32_t lines_of(const Pipeline *pipeline, const PipelineBatch *batch, uint32_t microbatch)
{
    if (!batch->packed) return 1;
    return pipeline->program->lines_vary
               ? row_packer_lines(&batch->packed->packer, sky_microbatch(pipeline->program, microbatch))
               : pipeline->program->packing.lines;
}

/* Its tokens up to the last one that a row has. */
static uint32_t tokens_of(const Pipeline *pipeline, const PipelineBatch *batch, uint32_t microbatch)
{
    const SkyPacking *packing = &pipeline->program->packing;
    if (!batch->packed) return 1;
    return pipeline->program->lines_vary
               ? row_packer_tokens(&batch->packed->packer, sky_microbatch(pipeline->program, microbatch))
               : packing->lines * packing->length;
}

/* The micro-batch's lines as a share of the most that any micro-batch has. */
static double share_of(const Pipeline *pipeline, const PipelineBatch *batch, uint32_t microbatch)
{
    return batch->packed ? (double)lines_of(pipeline, batch, microbatch) / pipeline->program->packing.lines : 1;
}

/* The bytes that the micro-batch fills of a boundary tensor. */
static size_t bytes_of(const Pipeline *pipeline, const PipelineBatch *batch, const SkyTensor *tensor,
                       uint32_t microbatch)
{
    if (!batch->packed || !tensor->by_lines) return tensor->bytes;
    return tensor->bytes / pipeline->program->packing.lines * lines_of(pipeline, batch, microbatch);
}

/* ---- Messages ---- */

static int message_tag(const Pipeline *pipeline, uint32_t boundary, bool forward, uint32_t tensor, uint32_t microbatch)
{
    return (int)message_tag_of_tensor(&pipeline->tags, boundary, !forward, tensor) + (int)microbatch;
}

/* The neighbour that a receive or send is with, and the boundary between them, named after its earlier stage. */
static int neighbour(const Pipeline *pipeline, const SkyInstruction *item, uint32_t *boundary)
{
    bool later = item->op == SKY_SEND_FORWARD || item->op == SKY_RECEIVE_BACKWARD;
    *boundary = later ? item->stage : item->stage - 1;
    return (int)pipeline->program->stage_rank[later ? item->stage + 1 : item->stage - 1];
}

static WaitReason reason_for(const Pipeline *pipeline, const SkyInstruction *item, const char *what)
{
    uint32_t boundary;
    int peer = neighbour(pipeline, item, &boundary);
    int stage = (int)(boundary == item->stage ? boundary + 1 : boundary);
    return (WaitReason){peer, stage, (int)item->microbatch, what};
}

/* The message after each boundary's tensors, which says when the emulated link delivers them. A link carries one
 * message at a time in each direction. */
static uint32_t due_tensor(const Pipeline *pipeline) { return pipeline->tags.tensors - 1; }

static double link_due(Pipeline *pipeline, uint32_t boundary, bool forward, double share)
{
    const SkyLink *link = &pipeline->program->links[boundary];
    double *free_at = &pipeline->link_free[2 * boundary + !forward], now = pipeline->emulated.now;
    *free_at = (*free_at > now ? *free_at : now) + share * link->transfer_s[!forward];
    return *free_at + link->latency_s[!forward];
}

/* What an instruction receives or sends: the messages of a boundary. */
typedef struct Boundary {
    const SkyTensor *tensors;
    uint32_t count, local; /* of the tensors; the stage's number on this rank */
    uint32_t index;        /* of the earlier stage */
    int peer;
    bool forward;
} Boundary;

static Boundary boundary_of(const Pipeline *pipeline, const SkyInstruction *item)
{
    Boundary boundary = {.local = (uint32_t)pipeline->local[item->stage], .forward = is_of_forward(item->op)};
    const SkyStage *stage = &pipeline->program->stages[boundary.local];
    boundary.peer = neighbour(pipeline, item, &boundary.index);
    if (is_receive(item->op)) {
        boundary.tensors = boundary.forward ? stage->receive_forward : stage->receive_backward;
        boundary.count = boundary.forward ? stage->receive_forward_count : stage->receive_backward_count;
    } else {
        boundary.tensors = boundary.forward ? stage->send_forward : stage->send_backward;
        boundary.count = boundary.forward ? stage->send_forward_count : stage->send_backward_count;
    }
    return boundary;
}

static void post_receive(Pipeline *pipeline, InstructionList *list, const PipelineBatch *batch, int receive)
{
    const SkyInstruction *item = &list->items[list->receives[receive]];
    Boundary from = boundary_of(pipeline, item);
    for (uint32_t t = 0; t < from.count; t++)
        world_receive(pipeline->world,
                      execution_address(pipeline->execution, from.local, item->slot, from.tensors[t].location),
                      bytes_of(pipeline, batch, &from.tensors[t], item->microbatch), from.peer,
                      message_tag(pipeline, from.index, from.forward, t, item->microbatch), &list->pending[receive]);
    if (pipeline->emulate_links)
        world_receive(pipeline->world, &list->due[receive], sizeof *list->due, from.peer,
                      message_tag(pipeline, from.index, from.forward, due_tensor(pipeline), item->microbatch),
                      &list->pending[receive]);
    list->posted[receive] = true;
}

static SlotSends *sends_of(Pipeline *pipeline, const SkyInstruction *item)
{
    return &pipeline->sends[pipeline->local[item->stage]][item->slot];
}

/* Whether the instruction is for a micro-batch that has no rows in this batch. */
static bool is_left_out(const Pipeline *pipeline, const PipelineBatch *batch, const SkyInstruction *item)
{
    return item->op != SKY_UPDATE && item->op != SKY_REDUCE &&
           sky_microbatch(pipeline->program, item->microbatch) >=
               pipeline_microbatches(pipeline, batch->packed, batch->row_count);
}

/* Posts the next receives whose buffers are free once `done` instructions are finished. */
static void post_ahead(Pipeline *pipeline, InstructionList *list, const PipelineBatch *batch, int next_receive,
                       int done)
{
    for (int r = next_receive; r < list->receive_count && r < next_receive + RECEIVES_AHEAD; r++) {
        const SkyInstruction *item = &list->items[list->receives[r]];
        if (is_left_out(pipeline, batch, item)) continue;
        if (list->posted[r] || list->ready[r] >= done) continue;
        const SlotSends *sends = sends_of(pipeline, item);
        if (item->op == SKY_RECEIVE_FORWARD && (sends->forward || sends->backward)) continue;
        post_receive(pipeline, list, batch, r);
    }
}

/* Sends what was copied from the device, which counts as one message under way. Before this rank waits for others, it
 * waits for the copies: the others may wait for them. */
static void post_unsent(Pipeline *pipeline, bool wait)
{
    const SkyInstruction *item = pipeline->unsent;
    if (!item || !execution_fetched(pipeline->execution, wait)) return;
    pipeline->unsent = NULL;
    Boundary to = boundary_of(pipeline, item);
    SlotSends *sends = sends_of(pipeline, item);
    int *pending = to.forward ? &sends->forward : &sends->backward;
    --*pending;
    for (uint32_t t = 0; t < to.count; t++)
        world_send(pipeline->world,
                   execution_address(pipeline->execution, to.local, item->slot, to.tensors[t].location),
                   bytes_of(pipeline, pipeline->unsent_batch, &to.tensors[t], item->microbatch), to.peer,
                   message_tag(pipeline, to.index, to.forward, t, item->microbatch), pending);
    if (!pipeline->emulate_links) return;
    double *due = to.forward ? &sends->forward_due : &sends->backward_due;
    *due = link_due(pipeline, to.index, to.forward, share_of(pipeline, pipeline->unsent_batch, item->microbatch));
    world_send(pipeline->world, due, sizeof *due, to.peer,
               message_tag(pipeline, to.index, to.forward, due_tensor(pipeline), item->microbatch), pending);
}

/* Waits until all sends from the slot that the instruction overwrites are done. */
static void await_sends(Pipeline *pipeline, const SkyInstruction *item, bool backward_too)
{
    SlotSends *sends = sends_of(pipeline, item);
    SkyInstruction send = *item;
    if (sends->forward || sends->backward) post_unsent(pipeline, true);
    send.op = SKY_SEND_FORWARD;
    if (sends->forward)
        world_wait(pipeline->world, &sends->forward, reason_for(pipeline, &send, "its receipt of activations"));
    send.op = SKY_SEND_BACKWARD;
    if (backward_too && sends->backward)
        world_wait(pipeline->world, &sends->backward, reason_for(pipeline, &send, "its receipt of gradients"));
}

static void receive(Pipeline *pipeline, InstructionList *list, const PipelineBatch *batch, int number)
{
    const SkyInstruction *item = &list->items[list->receives[number]];
    bool forward = item->op == SKY_RECEIVE_FORWARD;
    if (!list->posted[number]) {
        if (forward) await_sends(pipeline, item, true);
        post_receive(pipeline, list, batch, number);
    }
    if (list->pending[number]) post_unsent(pipeline, true);
    world_wait(pipeline->world, &list->pending[number],
               reason_for(pipeline, item, forward ? "activations" : "gradients"));
    Boundary from = boundary_of(pipeline, item); /* what was received goes to the stage's device */
    for (uint32_t t = 0; t < from.count; t++)
        execution_hand(pipeline->execution, from.local, item->slot, from.tensors[t].location,
                       bytes_of(pipeline, batch, &from.tensors[t], item->microbatch));
    double due = pipeline->emulate_links ? list->due[number] : monotonic_seconds();
    pipeline->emulated.now = fmax(pipeline->emulated.now, due);
    if (!pipeline->emulate_links) return;
    StepPart before = step_clock_enter(&pipeline->world->clock, PART_WAITING);
    world_sleep_until(pipeline->world, due);
    step_clock_leave(&pipeline->world->clock, before);
}

/* A device copies the tensors to the host while it computes what follows. */
static void send(Pipeline *pipeline, const PipelineBatch *batch, const SkyInstruction *item)
{
    Boundary to = boundary_of(pipeline, item);
    post_unsent(pipeline, true);
    for (uint32_t t = 0; t < to.count; t++)
        execution_fetch_ahead(pipeline->execution, to.local, item->slot, to.tensors[t].location,
                              bytes_of(pipeline, batch, &to.tensors[t], item->microbatch));
    pipeline->unsent = item;
    pipeline->unsent_batch = batch;
    ++*(to.forward ? &sends_of(pipeline, item)->forward : &sends_of(pipeline, item)->backward);
    if (!pipeline->execution->kind->fetch || pipeline->emulate) post_unsent(pipeline, true);
}

/* Copies boundary tensors between two stages of this rank. */
static void copy_boundary(Pipeline *pipeline, const PipelineBatch *batch, int from, const SkyTensor *sources, int to,
                          const SkyTensor *targets, uint32_t count, uint32_t microbatch)
{
    StepPart before = step_clock_enter(&pipeline->world->clock, PART_MESSAGES);
    for (uint32_t t = 0; t < count; t++) {
        const Execution *execution = pipeline->execution;
        uint32_t slot = *slot_of(pipeline, to, microbatch), before_slot = *slot_of(pipeline, from, microbatch);
        size_t bytes = bytes_of(pipeline, batch, &sources[t], microbatch);
        parallel_copy(execution->threads, execution_address(execution, (uint32_t)to, slot, targets[t].location),
                      execution_fetch(execution, (uint32_t)from, before_slot, sources[t].location, bytes), bytes);
        execution_hand(execution, (uint32_t)to, slot, targets[t].location, bytes);
    }
    step_clock_leave(&pipeline->world->clock, before);
}

/* ---- Work ---- */

/* Makes the work since `start` last as long as on the emulated device. Whoever is late, for want of a core or as it
 * woke up late, sleeps less after its next work. */
static void stretch(Pipeline *pipeline, Stopwatch start)
{
    if (!pipeline->emulate) return;
    double due = work_end(pipeline, start);
    pipeline->emulated.work += due - start.device;
    pipeline->emulated.now = due;
    world_sleep_until(pipeline->world, due);
}

/* The device's time is the clock's again: what a rank is late by here, the step takes longer. */
static void synchronise(Pipeline *pipeline, bool counts)
{
    double now = monotonic_seconds();
    if (pipeline->emulate && counts) pipeline->emulated.late += fmax(0, now - pipeline->emulated.now);
    pipeline->emulated.now = now;
}

/* For kernels that number or count the rows of the batch. */
static void begin_microbatch(Pipeline *pipeline, const PipelineBatch *batch, uint32_t microbatch)
{
    int64_t size = pipeline->program->microbatch_size;
    int64_t first = sky_microbatch(pipeline->program, microbatch) * size, rest = batch->row_count - first;
    step_scalars_rows(pipeline->execution->step, first, rest < size ? rest : size);
}

/* A list of a micro-batch. The first one of a batch keeps the weights for the others. */
static bool run_list(Pipeline *pipeline, uint32_t local, SkyListKind list, uint32_t slot, Diagnostics *diagnostics)
{
    bool *kept = &pipeline->weights_kept[local * SKY_LIST_COUNT + list];
    pipeline->execution->step[SKY_STEP_WEIGHTS_KEPT] = *kept;
    *kept = true;
    return execution_run(pipeline->execution, local, list, slot, diagnostics);
}

static bool forward(Pipeline *pipeline, const PipelineBatch *batch, const SkyInstruction *item,
                    Diagnostics *diagnostics)
{
    const SkyProgram *program = pipeline->program;
    Execution *execution = pipeline->execution;
    uint32_t local = (uint32_t)pipeline->local[item->stage];
    const SkyStage *stage = &program->stages[local];
    await_sends(pipeline, item, true);
    int before = local_stage(pipeline, (int64_t)item->stage - 1);
    if (before >= 0)
        copy_boundary(pipeline, batch, before, program->stages[before].send_forward, (int)local, stage->receive_forward,
                      stage->receive_forward_count, item->microbatch);
    Stopwatch start = stopwatch_start(pipeline);
    StepPart part = step_clock_enter(&pipeline->world->clock, PART_DATA);
    for (uint32_t i = 0; i < stage->input_count; i++) {
        const SkyTensor *input = &stage->inputs[i];
        void *to = execution_address(execution, local, item->slot, input->location);
        packed_batch_fill(batch->packed, batch->dataset, program, input, batch->rows,
                          sky_microbatch(program, item->microbatch), to);
        if (!dataset_check_filled(batch->dataset, program, input, to, diagnostics)) return false;
        execution_hand(execution, local, item->slot, input->location, input->bytes);
    }
    step_clock_leave(&pipeline->world->clock, part);
    begin_microbatch(pipeline, batch, item->microbatch);
    execution_set_tokens(execution, local, item->slot, tokens_of(pipeline, batch, item->microbatch));
    if (!run_list(pipeline, local, SKY_LIST_FORWARD, item->slot, diagnostics)) return false;
    if (stage->has_loss)
        pipeline->losses[sky_microbatch(program, item->microbatch)] =
            *(const float *)execution_fetch(execution, local, item->slot, stage->loss, sizeof(float));
    if (batch->after_forward) batch->after_forward(batch->context, local, item->microbatch, item->slot);
    stretch(pipeline, start);
    return true;
}

/* Whether `item` is the last of the batch that adds to the gradients of the stage. */
static bool is_last(const Pipeline *pipeline, const PipelineBatch *batch, const SkyInstruction *item)
{
    const InstructionList *list = &pipeline->training;
    for (const SkyInstruction *later = item + 1; later < list->items + list->count; later++)
        if ((later->op == SKY_BACKWARD || later->op == SKY_WEIGHT_GRADIENT) && later->stage == item->stage &&
            !is_left_out(pipeline, batch, later))
            return false;
    return true;
}

static bool run_backward(Pipeline *pipeline, const PipelineBatch *batch, const SkyInstruction *item, SkyListKind list,
                         Diagnostics *diagnostics)
{
    Stopwatch start = stopwatch_start(pipeline);
    uint32_t local = (uint32_t)pipeline->local[item->stage];
    if (batch->gradients_grow && is_last(pipeline, batch, item))
        pipeline->ending = (struct PipelineEnding){batch, local, start};
    begin_microbatch(pipeline, batch, item->microbatch);
    bool ok = run_list(pipeline, local, list, item->slot, diagnostics);
    pipeline->ending.batch = NULL;
    if (ok) stretch(pipeline, start);
    return ok;
}

static bool backward(Pipeline *pipeline, const PipelineBatch *batch, const SkyInstruction *item,
                     Diagnostics *diagnostics)
{
    int local = pipeline->local[item->stage];
    const SkyStage *stage = &pipeline->program->stages[local];
    await_sends(pipeline, item, false);
    if (!run_backward(pipeline, batch, item, SKY_LIST_BACKWARD, diagnostics)) return false;
    int before = local_stage(pipeline, (int64_t)item->stage - 1); /* copy before our slot is reused */
    if (before >= 0)
        copy_boundary(pipeline, batch, local, stage->send_backward, before,
                      pipeline->program->stages[before].receive_backward, stage->send_backward_count, item->microbatch);
    return true;
}

/* Checks before the stage computes with values that are not finite, because later nobody can tell where they began.
 * To check all parameters takes some hundredths of a step, so only saving does that. */
static void stop_if_diverged(const Pipeline *pipeline, uint32_t local)
{
    const SkyParameter *parameter = execution_spot_not_finite(pipeline->execution, local);
    if (parameter)
        world_diverged(pipeline->world,
                       "'%s' (stage %u) is not finite after the update; a lower --lr, --warmup or "
                       "--clip may help",
                       parameter->value.name, pipeline->program->stages[local].index);
}

const double *pipeline_squares(Pipeline *pipeline, uint32_t local)
{
    synchronise(pipeline, false);
    Stopwatch start = stopwatch_start(pipeline);
    const double *squares = execution_squares(pipeline->execution, local, EXECUTION_GRADIENT);
    stretch(pipeline, start);
    return squares;
}

bool pipeline_update(Pipeline *pipeline, uint32_t local, int64_t step, Diagnostics *diagnostics)
{
    SkyInstruction item = {.op = SKY_UPDATE, .stage = pipeline->program->stages[local].index};
    synchronise(pipeline, false);
    Stopwatch start = stopwatch_start(pipeline);
    if (!execution_run(pipeline->execution, local, SKY_LIST_UPDATE, 0, diagnostics)) return false;
    stop_if_diverged(pipeline, local);
    stretch(pipeline, start);
    trace_record(pipeline->trace, start.wall, monotonic_seconds(), step, &item);
    return true;
}

static bool run(Pipeline *pipeline, InstructionList *list, const PipelineBatch *batch, Diagnostics *diagnostics)
{
    static const StepPart part_of[SKY_OP_COUNT] = {
        [SKY_FORWARD] = PART_FORWARD,           [SKY_BACKWARD] = PART_BACKWARD,
        [SKY_WEIGHT_GRADIENT] = PART_BACKWARD,  [SKY_UPDATE] = PART_UPDATE,
        [SKY_RECEIVE_FORWARD] = PART_MESSAGES,  [SKY_SEND_FORWARD] = PART_MESSAGES,
        [SKY_RECEIVE_BACKWARD] = PART_MESSAGES, [SKY_SEND_BACKWARD] = PART_MESSAGES};
    StepClock *clock = &pipeline->world->clock;
    int next_receive = 0;
    synchronise(pipeline, false);
    memset(list->posted, 0, (size_t)list->receive_count * sizeof *list->posted);
    memset(pipeline->losses, 0, pipeline->program->microbatch_count * sizeof *pipeline->losses);
    memset(pipeline->weights_kept, 0, pipeline->program->stage_count * SKY_LIST_COUNT * sizeof *pipeline->weights_kept);
    for (int i = 0; i < list->count; i++) {
        const SkyInstruction *item = &list->items[i];
        if (is_left_out(pipeline, batch, item)) {
            next_receive += is_receive(item->op);
            continue;
        }
        step_clock_enter(clock, PART_MESSAGES);
        post_ahead(pipeline, list, batch, next_receive, i);
        step_clock_enter(clock, part_of[item->op]);
        double begin = monotonic_seconds();
        bool ok = true;
        switch (item->op) {
        case SKY_RECEIVE_FORWARD:
        case SKY_RECEIVE_BACKWARD: receive(pipeline, list, batch, next_receive++); break;
        case SKY_SEND_FORWARD:
        case SKY_SEND_BACKWARD: send(pipeline, batch, item); break;
        case SKY_FORWARD: ok = forward(pipeline, batch, item, diagnostics); break;
        case SKY_BACKWARD: ok = backward(pipeline, batch, item, diagnostics); break;
        case SKY_WEIGHT_GRADIENT:
            ok = run_backward(pipeline, batch, item, SKY_LIST_WEIGHT_GRADIENT, diagnostics);
            break;
        case SKY_UPDATE:
            if (!batch->finish)
                ok = pipeline_update(pipeline, (uint32_t)pipeline->local[item->stage], batch->step, diagnostics);
            continue; /* traces itself */
        case SKY_REDUCE: continue;
        }
        if (!ok) return false;
        trace_record(pipeline->trace, begin, monotonic_seconds(), batch->step, item);
    }
    post_unsent(pipeline, true);
    step_clock_enter(clock, PART_REST);
    synchronise(pipeline, true);
    return !batch->finish || batch->finish(batch->context, diagnostics);
}

uint32_t pipeline_microbatches(const Pipeline *pipeline, const PackedBatch *packed, int64_t row_count)
{
    int64_t size = pipeline->program->microbatch_size;
    return packed ? packed->microbatches : (uint32_t)((row_count + size - 1) / size);
}

bool pipeline_train(Pipeline *pipeline, const PipelineBatch *batch, Diagnostics *diagnostics)
{
    world_note(pipeline->world, false, batch->step, pipeline_microbatches(pipeline, batch->packed, batch->row_count));
    return run(pipeline, &pipeline->training, batch, diagnostics);
}

bool pipeline_evaluate(Pipeline *pipeline, const PipelineBatch *batch, Diagnostics *diagnostics)
{
    return run(pipeline, &pipeline->evaluation, batch, diagnostics);
}
