#include "runtime/train/trace.h"

#include <stdlib.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

enum { MAX_EVENTS = 1 << 22, EXCHANGES = 16 };

static const char *instruction_name(uint32_t op)
{
    static const char *const names[] = {[SKY_RECEIVE_FORWARD] = "receive activations",
                                        [SKY_FORWARD] = "forward",
                                        [SKY_SEND_FORWARD] = "send activations",
                                        [SKY_RECEIVE_BACKWARD] = "receive gradients",
                                        [SKY_BACKWARD] = "backward",
                                        [SKY_SEND_BACKWARD] = "send gradients",
                                        [SKY_WEIGHT_GRADIENT] = "weight gradient",
                                        [SKY_UPDATE] = "update",
                                        [SKY_REDUCE] = "reduce",
                                        [TRACE_NORM] = "norm",
                                        [TRACE_AGREEMENT] = "agree on norm"};
    return names[op];
}

/* Whether there is no room for more; notes the first step for which there was none. */
static bool is_full(Trace *trace, int64_t step)
{
    size_t most = trace->most ? trace->most : MAX_EVENTS;
    if (trace->count + trace->step_count >= most && !trace->full_at) trace->full_at = step;
    return trace->full_at;
}

void trace_record(Trace *trace, double begin, double end, int64_t step, const SkyInstruction *instruction)
{
    if (!trace->enabled || is_full(trace, step)) return;
    TraceEvent event = {begin, end, (uint32_t)step, *instruction};
    array_push(trace->events, trace->count, trace->capacity, event);
}

double trace_record_rank(Trace *trace, double begin, const World *world, const SkyProgram *program, uint32_t op)
{
    double now = monotonic_seconds();
    trace_record(trace, begin, now, *world->step, &(SkyInstruction){.op = op, .stage = program->stages[0].index});
    return now;
}

void trace_step(Trace *trace, const StepClock *clock, int64_t step)
{
    if (!trace->enabled || is_full(trace, step)) return;
    array_push(trace->steps, trace->step_count, trace->step_capacity, ((TraceStep){step, *clock}));
}

void trace_free(Trace *trace)
{
    free(trace->events);
    free(trace->steps);
    *trace = (Trace){0};
}

/* Rank 0's clock minus this rank's, from the fastest exchange of messages, assuming that both ways took equally long.
 * The ranks of one host share a clock. */
static double clock_offset(World *world, int rank, bool same_host)
{
    double best = 1e30, offset = 0;
    WaitReason reason = {world->rank == 0 ? rank : 0, -1, -1, "its clock"};
    for (int i = 0; i < EXCHANGES && !same_host; i++) {
        double sent = monotonic_seconds(), remote = 0;
        int pending = 0;
        if (world->rank == 0) {
            world_receive(world, &remote, sizeof remote, rank, TAG_TRACE, &pending);
            world_wait(world, &pending, reason);
            remote = monotonic_seconds();
            world_send(world, &remote, sizeof remote, rank, TAG_TRACE, &pending);
            world_wait(world, &pending, reason);
            continue;
        }
        world_receive(world, &remote, sizeof remote, 0, TAG_TRACE, &pending);
        world_send(world, &sent, sizeof sent, 0, TAG_TRACE, &pending);
        world_wait(world, &pending, reason);
        double now = monotonic_seconds();
        if (now - sent < best) best = now - sent, offset = remote - 0.5 * (sent + now);
    }
    return offset;
}

/* One event a step, with the microseconds of its parts, which add up to all of it. */
static void print_steps(Buffer *text, const Trace *trace, int rank, uint32_t stage, double shift)
{
    static const char *const names[PART_COUNT] = {[PART_REST] = "rest",
                                                  [PART_DATA] = "data",
                                                  [PART_PACKING] = "packing",
                                                  [PART_FORWARD] = "forward",
                                                  [PART_BACKWARD] = "backward",
                                                  [PART_NORM] = "norm",
                                                  [PART_MESSAGES] = "messages",
                                                  [PART_WAITING] = "waiting",
                                                  [PART_UPDATE] = "update",
                                                  [PART_LOG] = "log",
                                                  [PART_CHECKPOINT] = "checkpoint",
                                                  [PART_EVALUATION] = "evaluation"};
    for (size_t i = 0; i < trace->step_count; i++) {
        const StepClock *clock = &trace->steps[i].clock;
        buffer_print(text, ",\n{\"ph\":\"X\",\"name\":\"step\",\"pid\":%d,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,", rank,
                     stage, 1e6 * (clock->begin + shift), 1e6 * (clock->since - clock->begin));
        buffer_print(text, "\"args\":{\"step\":%lld,\"parts\":{", (long long)trace->steps[i].step);
        for (int p = 1; p <= PART_COUNT; p++)
            buffer_print(text, "%s\"%s\":%.3f", p > 1 ? "," : "", names[p % PART_COUNT],
                         1e6 * clock->seconds[p % PART_COUNT]);
        buffer_print(text, "}}}");
    }
}

/* That a trace ends before the run does. */
static void print_end(Buffer *text, const Trace *trace, const World *world, uint32_t stage)
{
    if (!trace->full_at) return;
    text_print(stderr,
               "skycc: warning: rank %d (%s): the trace ends at step %lld: it has room for %zu events; "
               "SKYCC_TRACE_EVENTS sets how many\n",
               world->rank, world->device, (long long)trace->full_at, trace->most ? trace->most : (size_t)MAX_EVENTS);
    buffer_print(text, ",\n{\"ph\":\"M\",\"name\":\"trace_full\",\"pid\":%d,\"tid\":%u,\"args\":{\"step\":%lld}}",
                 world->rank, stage, (long long)trace->full_at);
}

static void print_events(Buffer *text, const Trace *trace, const World *world, uint32_t stage, double offset,
                         double origin)
{
    buffer_print(text, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":", world->rank);
    char name[128];
    snprintf(name, sizeof name, "rank %d (%s)", world->rank, world->device);
    json_print_string(text, name);
    buffer_print(text, "}}");
    print_steps(text, trace, world->rank, stage, offset - origin);
    print_end(text, trace, world, stage);
    for (size_t i = 0; i < trace->count; i++) {
        const TraceEvent *event = &trace->events[i];
        buffer_print(text, ",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%d,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,",
                     instruction_name(event->instruction.op), world->rank, event->instruction.stage,
                     1e6 * (event->begin + offset - origin), 1e6 * (event->end - event->begin));
        if (event->instruction.op >= SKY_UPDATE)
            buffer_print(text, "\"args\":{\"step\":%u}}", event->step);
        else
            buffer_print(text, "\"args\":{\"step\":%u,\"microbatch\":%u,\"slot\":%u}}", event->step,
                         event->instruction.microbatch, event->instruction.slot);
    }
}

/* Rank 0 appends rank r's text to its own. */
static void collect(World *world, int rank, Buffer *text)
{
    int pending = 0;
    uint64_t size = 0;
    WaitReason reason = {rank, -1, -1, "its trace"};
    world_receive(world, &size, sizeof size, rank, TAG_TRACE, &pending);
    world_wait(world, &pending, reason);
    FREED char *part = memory_allocate(size);
    for (uint64_t done = 0, chunk; done < size; done += chunk) {
        chunk = size - done < 1 << 20 ? size - done : 1 << 20;
        world_receive(world, part + done, chunk, rank, TAG_TRACE, &pending);
        world_wait(world, &pending, reason);
    }
    buffer_append(text, ",\n", 2);
    buffer_append(text, part, size);
}

static void hand_over(World *world, const Buffer *text)
{
    int pending = 0;
    uint64_t size = text->size;
    WaitReason reason = {0, -1, -1, "receipt of the trace"};
    world_send(world, &size, sizeof size, 0, TAG_TRACE, &pending);
    world_wait(world, &pending, reason);
    for (uint64_t done = 0, chunk; done < size; done += chunk) {
        chunk = size - done < 1 << 20 ? size - done : 1 << 20;
        world_send(world, text->bytes + done, chunk, 0, TAG_TRACE, &pending);
        world_wait(world, &pending, reason);
    }
}

bool trace_write(const Trace *trace, World *world, uint32_t stage, const char *path, Diagnostics *diagnostics)
{
    /* The start of each rank's first step, by its own clock. */
    double mine = trace->step_count ? trace->steps[0].clock.begin : monotonic_seconds();
    FREED double *all = memory_allocate((size_t)world->size * sizeof *all);
    world_allgather(world, &mine, sizeof mine, all, "its trace");
    double offset = 0;
    for (int r = 1; r < world->size; r++)
        if (world->rank == 0 || world->rank == r)
            offset = clock_offset(world, r, world->near[world->rank == 0 ? r : 0]);
    if (world->rank == 0) offset = 0;
    FREED_WITH(buffer_free) Buffer text = {0};
    print_events(&text, trace, world, stage, offset, all[0]);
    if (world->rank != 0) {
        hand_over(world, &text);
        return true;
    }
    FREED_WITH(buffer_free) Buffer file = {0};
    buffer_print(&file, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    buffer_append(&file, text.bytes, text.size);
    for (int r = 1; r < world->size; r++) collect(world, r, &file);
    buffer_print(&file, "\n]}\n");
    return file_write_all(path, file.bytes, file.size, diagnostics);
}
