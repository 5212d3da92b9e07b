#include "runtime/device/device.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/device/opencl_build.h"

enum { GROUP = 64 }; /* work items of a work group, where the kernel has no wish */

/* A stage's spaces on the device. */
typedef struct StageBuffers {
    ClBufferId constants, state, slots;
    ClBufferId pinned;  /* what the host has of the slots; NULL: memory that it may move */
    MemoryRegion moved; /* which that took the place of */
} StageBuffers;

typedef struct OpenCl {
    const OpenClApi *api;
    const char *owner; /* the device of the cluster */
    OpenClDevice device;
    ClContextId context;
    ClQueueId queue, copies; /* of kernels; of copies that they do not wait for */
    ClEventId copied;        /* the last of these that was started; NULL: all are done */
    ClProgramId program;
    OpenClSizes sizes;
    ClKernelId *kernels; /* per SkyDeviceKernel */
    StageBuffers *stages;
    ClBufferId scratch, blocks, step; /* step: all step scalars, then those of each update */
    uint32_t most_blocks;
    size_t group;
} OpenCl;

/* ---- Opening ---- */

static bool failed(const OpenCl *cl, int32_t code, const char *what, Diagnostics *diagnostics)
{
    char text[40];
    return diagnostics_error(diagnostics, EXIT_RUN_FAILED, (Place){.object = cl->owner}, NULL,
                             "OpenCL device '%s': %s: %s", cl->device.name, what, opencl_error_name(code, text));
}

/* While the host waits for what only the device has: nobody could go on. */
static void check_transfer(const OpenCl *cl, int32_t code)
{
    if (code == CL_SUCCESS) return;
    Diagnostics said = {0};
    failed(cl, code, "its memory cannot be reached", &said);
    diagnostics_print(&said, stderr);
    _exit(EXIT_RUN_FAILED);
}

/* Zeroed. Without memory where `size` is 0, which kernels do not access then. */
static bool make_buffer(OpenCl *cl, ClBufferId *buffer, uint64_t size, const char *what, Diagnostics *diagnostics)
{
    int32_t code = CL_SUCCESS;
    size = size ? memory_round_up(size, MEMORY_ALIGNMENT) : MEMORY_ALIGNMENT;
    *buffer = cl->api->CreateBuffer(cl->context, CL_MEM_READ_WRITE, size, NULL, &code);
    uint32_t zero = 0;
    if (code == CL_SUCCESS)
        code = cl->api->EnqueueFillBuffer(cl->queue, *buffer, &zero, sizeof zero, 0, size, 0, NULL, NULL);
    if (code == CL_SUCCESS) code = cl->api->Finish(cl->queue);
    if (code == CL_SUCCESS) return true;
    char text[40];
    return run_error(diagnostics, "compile with a smaller memory: of this device in the cluster file",
                     "OpenCL device '%s': no memory for %s: %llu bytes (it has %lld bytes in all, and promises "
                     "%lld in one piece): %s",
                     cl->device.name, what, (unsigned long long)size, (long long)cl->device.memory_bytes,
                     (long long)cl->device.buffer_bytes, opencl_error_name(code, text));
}

/* Boundary tensors come from memory of the host that the driver pins, if it has any: their copies then need not wait
 * for the host. */
static void pin_slots(const OpenCl *cl, StageBuffers *buffers, MemoryRegion *slots)
{
    int32_t code;
    if (!slots->size) return;
    uint64_t flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
    buffers->pinned = cl->api->CreateBuffer(cl->context, flags, slots->size, NULL, &code);
    if (code != CL_SUCCESS) return;
    void *bytes = cl->api->EnqueueMapBuffer(cl->queue, buffers->pinned, 1, CL_MAP_READ_WRITE, 0, slots->size, 0, NULL,
                                            NULL, &code);
    if (code != CL_SUCCESS || (uintptr_t)bytes % MEMORY_ALIGNMENT) {
        if (code == CL_SUCCESS) cl->api->EnqueueUnmapMemObject(cl->queue, buffers->pinned, bytes, 0, NULL, NULL);
        cl->api->ReleaseMemObject(buffers->pinned);
        buffers->pinned = NULL;
        return;
    }
    memset(bytes, 0, slots->size);
    buffers->moved = *slots;
    slots->bytes = bytes;
}

static void unpin_slots(const OpenCl *cl, StageBuffers *buffers, MemoryRegion *slots)
{
    if (!buffers->pinned) return;
    cl->api->EnqueueUnmapMemObject(cl->queue, buffers->pinned, slots->bytes, 0, NULL, NULL);
    cl->api->Finish(cl->queue);
    cl->api->ReleaseMemObject(buffers->pinned);
    *slots = buffers->moved;
}

static bool make_buffers(OpenCl *cl, const Execution *execution, Diagnostics *diagnostics)
{
    const SkyProgram *program = execution->program;
    uint64_t scratch = 0, blocks = 0, updates = 0;
    cl->stages = memory_allocate(program->stage_count * sizeof *cl->stages);
    for (uint32_t s = 0; s < program->stage_count; s++) {
        const SkyStage *stage = &program->stages[s];
        StageBuffers *to = &cl->stages[s];
        uint64_t constants = stage->space_bytes[SKY_SPACE_CONSTANT];
        if (!make_buffer(cl, &to->constants, constants, "constants", diagnostics) ||
            !make_buffer(cl, &to->state, execution->stages[s].state.size, "parameters and optimiser state",
                         diagnostics) ||
            !make_buffer(cl, &to->slots, execution->stages[s].slots.size, "micro-batches in flight", diagnostics))
            return false;
        pin_slots(cl, to, &execution->stages[s].slots);
        int32_t code = CL_SUCCESS;
        if (constants)
            code =
                cl->api->EnqueueWriteBuffer(cl->queue, to->constants, 1, 0, constants, stage->constants, 0, NULL, NULL);
        if (code != CL_SUCCESS) return failed(cl, code, "constants", diagnostics);
        if (stage->space_bytes[SKY_SPACE_SCRATCH] > scratch) scratch = stage->space_bytes[SKY_SPACE_SCRATCH];
        if (stage->space_bytes[SKY_SPACE_BLOCK] > blocks) blocks = stage->space_bytes[SKY_SPACE_BLOCK];
        if (stage->lists[SKY_LIST_UPDATE].count > updates) updates = stage->lists[SKY_LIST_UPDATE].count;
    }
    updates = sizeof(float) * (SKY_STEP_SCALARS + updates * SKY_STEP_GROUP);
    return make_buffer(cl, &cl->scratch, scratch, "scratch", diagnostics) &&
           make_buffer(cl, &cl->blocks, blocks * cl->most_blocks, "blocks of attention", diagnostics) &&
           make_buffer(cl, &cl->step, updates, "step scalars", diagnostics);
}

/* Also that a group of it fits into what the driver has compiled. */
static bool make_kernel(const OpenCl *cl, const SkyDeviceKernel *described, ClKernelId *kernel,
                        Diagnostics *diagnostics)
{
    int32_t code;
    size_t most = 0, group = opencl_group(described, &cl->sizes);
    *kernel = cl->api->CreateKernel(cl->program, described->name, &code);
    if (code == CL_SUCCESS)
        code = cl->api->GetKernelWorkGroupInfo(*kernel, cl->device.id, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most,
                                               NULL);
    if (code != CL_SUCCESS) return failed(cl, code, described->label, diagnostics);
    if (!group) group = cl->group;
    if (group <= most) return true;
    return run_error(diagnostics, "use another device: skycc probe --devices",
                     "OpenCL device '%s': groups of kernel '%s' have %zu work items, and the device runs %zu",
                     cl->device.name, described->label, group, most);
}

static bool make_kernels(OpenCl *cl, const SkyProgram *program, Diagnostics *diagnostics)
{
    if (!opencl_sizes(&cl->device, program, &cl->sizes, diagnostics)) return false;
    Hash key;
    bool kept;
    cl->program = opencl_build(cl->api, cl->context, &cl->device, program, &cl->sizes, &key, &kept, diagnostics);
    if (!cl->program) return false;
    cl->kernels = memory_allocate((program->device_kernel_count + 1) * sizeof *cl->kernels);
    for (uint32_t k = 0; k < program->device_kernel_count; k++)
        if (!make_kernel(cl, &program->device_kernels[k], &cl->kernels[k], diagnostics)) return false;
    if (!kept) opencl_keep(cl->api, program, cl->program, &key);
    return true;
}

static bool choose(OpenCl *cl, const SkyProgram *program, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    int count;
    const OpenClDevice *devices = opencl_devices(&arena, &count, diagnostics), *chosen = NULL;
    if (devices) chosen = opencl_choose(devices, count, program->opencl_platform, program->opencl_device, diagnostics);
    if (chosen) cl->device = *chosen;
    if (chosen && !cl->device.doubles)
        return run_error(diagnostics, NULL,
                         "OpenCL device '%s' has no float64 (cl_khr_fp64), which norms of gradients need",
                         cl->device.name);
    return chosen != NULL;
}

static bool open_device(Execution *execution, Diagnostics *diagnostics)
{
    OpenCl *cl = memory_allocate(sizeof *cl);
    const SkyProgram *program = execution->program;
    int32_t code;
    execution->device = cl;
    cl->most_blocks = program->device_blocks ? program->device_blocks : 1;
    cl->owner = program->device_name;
    cl->api = opencl_api(diagnostics);
    if (!cl->api || !choose(cl, program, diagnostics)) return false;
    execution->memory_bytes = cl->device.memory_bytes;
    cl->group = cl->device.work_group < GROUP ? cl->device.work_group : GROUP;
    cl->context = cl->api->CreateContext(NULL, 1, &cl->device.id, NULL, NULL, &code);
    if (code != CL_SUCCESS) return failed(cl, code, "context", diagnostics);
    cl->queue = cl->api->CreateCommandQueue(cl->context, cl->device.id, 0, &code);
    if (code == CL_SUCCESS) cl->copies = cl->api->CreateCommandQueue(cl->context, cl->device.id, 0, &code);
    if (code != CL_SUCCESS) return failed(cl, code, "queue", diagnostics);
    uint64_t scratch = 0; /* what the host reads of it */
    for (uint32_t s = 0; s < program->stage_count; s++)
        if (program->stages[s].space_bytes[SKY_SPACE_SCRATCH] > scratch)
            scratch = program->stages[s].space_bytes[SKY_SPACE_SCRATCH];
    return memory_map(&execution->scratch, scratch, 0, "scratch", diagnostics) &&
           make_buffers(cl, execution, diagnostics) && make_kernels(cl, program, diagnostics);
}

/* What is wrong is wrong with that device of the cluster. */
static bool opencl_open(Execution *execution, Diagnostics *diagnostics)
{
    FREED_WITH(diagnostics_free) Diagnostics said = {0};
    bool ok = open_device(execution, &said);
    for (Diagnostic *d = said.first; d; d = d->next) d->place.object = execution->program->device_name;
    diagnostics_append(diagnostics, &said);
    return ok;
}

static bool opencl_fetched(const Execution *execution, bool wait)
{
    OpenCl *cl = execution->device;
    int32_t status = CL_COMPLETE;
    if (!cl->copied) return true;
    if (!wait)
        check_transfer(
            cl, cl->api->GetEventInfo(cl->copied, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    if (status > CL_COMPLETE) return false;
    check_transfer(cl, status < 0 ? status : cl->api->Finish(cl->copies));
    cl->api->ReleaseEvent(cl->copied);
    cl->copied = NULL;
    return true;
}

static void opencl_close(Execution *execution)
{
    OpenCl *cl = execution->device;
    if (!cl) return;
    const OpenClApi *api = cl->api;
    if (cl->copied) opencl_fetched(execution, true);
    for (uint32_t k = 0; cl->kernels && k < execution->program->device_kernel_count; k++)
        if (cl->kernels[k]) api->ReleaseKernel(cl->kernels[k]);
    for (uint32_t s = 0; cl->stages && s < execution->program->stage_count; s++) {
        unpin_slots(cl, &cl->stages[s], &execution->stages[s].slots);
        ClBufferId buffers[] = {cl->stages[s].constants, cl->stages[s].state, cl->stages[s].slots};
        for (int i = 0; i < 3; i++)
            if (buffers[i]) api->ReleaseMemObject(buffers[i]);
    }
    if (cl->scratch) api->ReleaseMemObject(cl->scratch);
    if (cl->blocks) api->ReleaseMemObject(cl->blocks);
    if (cl->step) api->ReleaseMemObject(cl->step);
    if (cl->program) api->ReleaseProgram(cl->program);
    if (cl->copies) api->ReleaseCommandQueue(cl->copies);
    if (cl->queue) api->ReleaseCommandQueue(cl->queue);
    if (cl->context) api->ReleaseContext(cl->context);
    free(cl->kernels);
    free(cl->stages);
    free(cl);
    execution->device = NULL;
}

/* ---- Places ---- */

typedef struct DevicePlace {
    ClBufferId buffer;
    int64_t offset; /* bytes */
} DevicePlace;

/* Blocks of a group are counted from `block` on. Each value of the space of blocks has room for as many blocks as are
 * computed at once, where one thread of a CPU has it for one. */
static DevicePlace place_of(const Execution *execution, uint32_t stage, uint32_t slot, const SkyLocation *location,
                            int64_t block)
{
    const OpenCl *cl = execution->device;
    const StageBuffers *buffers = &cl->stages[stage];
    int64_t offset = (int64_t)location->offset;
    switch (location->space) {
    case SKY_SPACE_CONSTANT: return (DevicePlace){buffers->constants, offset};
    case SKY_SPACE_STATE: return (DevicePlace){buffers->state, offset};
    case SKY_SPACE_SLOT:
        return (DevicePlace){buffers->slots, offset + (int64_t)(slot * execution->stages[stage].slot_stride)};
    case SKY_SPACE_SCRATCH: return (DevicePlace){cl->scratch, offset};
    case SKY_SPACE_STEP: return (DevicePlace){cl->step, offset};
    default: return (DevicePlace){cl->blocks, offset * cl->most_blocks - block * location->block_bytes};
    }
}

/* Read from the device: with `event` NULL at once, else it says when that is done. */
static void read_piece(const Execution *execution, DevicePiece piece, ClQueueId queue, ClEventId *event)
{
    const OpenCl *cl = execution->device;
    DevicePlace from = place_of(execution, piece.stage, piece.slot, &piece.location, 0);
    unsigned char *to = device_bases(execution, piece.stage, piece.slot).space[piece.location.space];
    if (!piece.bytes) return;
    check_transfer(cl, cl->api->EnqueueReadBuffer(queue, from.buffer, !event, (size_t)from.offset, piece.bytes,
                                                  to + piece.location.offset, 0, NULL, event));
}

static void opencl_fetch(const Execution *execution, DevicePiece piece)
{
    read_piece(execution, piece, ((const OpenCl *)execution->device)->queue, NULL);
}

static void opencl_fetch_ahead(const Execution *execution, DevicePiece piece)
{
    OpenCl *cl = execution->device;
    if (!piece.bytes) return;
    if (cl->copied) cl->api->ReleaseEvent(cl->copied); /* the queue is in order */
    cl->copied = NULL;
    read_piece(execution, piece, cl->copies, &cl->copied);
    check_transfer(cl, cl->api->Flush(cl->copies));
}

static void opencl_hand(const Execution *execution, DevicePiece piece)
{
    const OpenCl *cl = execution->device;
    DevicePlace to = place_of(execution, piece.stage, piece.slot, &piece.location, 0);
    const unsigned char *from = device_bases(execution, piece.stage, piece.slot).space[piece.location.space];
    if (!piece.bytes) return;
    /* What is in a slot stays there until the kernels that read it are done: nobody waits for the copy. */
    uint32_t waits = piece.location.space != SKY_SPACE_SLOT;
    check_transfer(cl, cl->api->EnqueueWriteBuffer(cl->queue, to.buffer, waits, (size_t)to.offset, piece.bytes,
                                                   from + piece.location.offset, 0, NULL, NULL));
}

/* ---- Running ---- */

/* A list on its way into the queue. */
typedef struct Launcher {
    DeviceWork *work;
    OpenCl *cl;
    const SkyCallList *list;
    ClEventId last; /* the last launch; NULL: none yet */
    int32_t code;   /* of the first that failed */
} Launcher;

static void set_argument(Launcher *launcher, ClKernelId kernel, uint32_t number, size_t bytes, const void *argument)
{
    if (!launcher->code) launcher->code = launcher->cl->api->SetKernelArg(kernel, number, bytes, argument);
}

static void set_operand(Launcher *launcher, const SkyCall *call, uint32_t number, int64_t block, uint32_t line)
{
    const DeviceWork *work = launcher->work;
    const OpenCl *cl = launcher->cl;
    const SkyLocation *location = &call->operands[number == 0 ? (uint32_t)work->first_operand : number];
    DevicePlace place = place_of(work->execution, work->stage, work->slot, location, block);
    place.offset += (int64_t)(line * call->operands[number].line_bytes);
    if (work->updates && location->space == SKY_SPACE_STEP)
        place.offset +=
            (int64_t)sizeof(float) * (SKY_STEP_SCALARS + (call - launcher->list->calls) * (int64_t)SKY_STEP_GROUP);
    ClKernelId kernel = cl->kernels[call->device_kernel - 1];
    set_argument(launcher, kernel, 2 * number, sizeof place.buffer, &place.buffer);
    set_argument(launcher, kernel, 2 * number + 1, sizeof place.offset, &place.offset);
}

/* Units begin ... end - 1 of a call. */
static void launch(Launcher *launcher, const SkyCall *call, int64_t begin, int64_t end, int64_t block, uint32_t line)
{
    const OpenCl *cl = launcher->cl;
    const SkyDeviceKernel *described = &launcher->work->execution->program->device_kernels[call->device_kernel - 1];
    ClKernelId kernel = cl->kernels[call->device_kernel - 1];
    size_t count = (size_t)(end - begin), group = opencl_group(described, &cl->sizes);
    size_t items = group ? count * group : memory_round_up(count, cl->group);
    int64_t limit = sky_work_limit(call, launcher->work->present);
    if (end <= begin || launcher->code) return;
    for (uint32_t i = 0; i < described->operand_count; i++) set_operand(launcher, call, i, block, line);
    set_argument(launcher, kernel, 2 * described->operand_count, sizeof begin, &begin);
    set_argument(launcher, kernel, 2 * described->operand_count + 1, sizeof end, &end);
    set_argument(launcher, kernel, 2 * described->operand_count + 2, sizeof limit, &limit);
    if (launcher->code) return;
    if (launcher->last) cl->api->ReleaseEvent(launcher->last);
    launcher->last = NULL;
    launcher->code = cl->api->EnqueueNDRangeKernel(cl->queue, kernel, 1, NULL, &items, group ? &group : &cl->group, 0,
                                                   NULL, &launcher->last);
    if (launcher->code) launcher->work->failed = call;
}

/* Takes so many blocks at once as there is room for through all calls of the group. */
static void launch_group(Launcher *launcher, const SkyCall *group, int64_t blocks)
{
    for (int64_t first = 0; first < blocks; first += launcher->cl->most_blocks) {
        int64_t end = first + launcher->cl->most_blocks < blocks ? first + launcher->cl->most_blocks : blocks;
        for (const SkyCall *call = group; call < group + group->group_count; call++) {
            int64_t units = call->units / group->block_count;
            launch(launcher, call, first * units, end * units, first, 0);
        }
    }
}

/* A call, or all of its group. */
static void launch_call(Launcher *launcher, const SkyCall *call)
{
    SkyPresent present = launcher->work->present;
    if (launcher->work->spot)
        launch(launcher, call, 0, 1, 0, 0);
    else if (call->group_count)
        launch_group(launcher, call, sky_work_pieces(call, present));
    else
        for (uint32_t line = 0; line < (call->line_loops ? present.lines : 1); line++)
            launch(launcher, call, 0, sky_work_pieces(call, present), 0, line);
}

static void launch_list(Launcher *launcher)
{
    const SkyCallList *list = launcher->list;
    const Execution *execution = launcher->work->execution;
    for (uint32_t c = 0, end; c < list->count; c = end) {
        end = c + sky_wave_size(&list->calls[c]);
        for (; c < end; c += sky_group_size(&list->calls[c])) launch_call(launcher, &list->calls[c]);
        if (!execution->timed || launcher->code) continue;
        launcher->code = launcher->cl->api->Finish(launcher->cl->queue);
        execution->between(execution->between_context, end);
    }
}

/* Waits, and lets messages go on meanwhile. The longer it lasts, the less often the host looks. */
static int32_t await(const Launcher *launcher)
{
    enum { FIRST_PAUSE = 20000, LONGEST_PAUSE = 500000 }; /* ns */
    const OpenCl *cl = launcher->cl;
    const Execution *execution = launcher->work->execution;
    int32_t status = CL_COMPLETE, code = cl->api->Flush(cl->queue);
    struct timespec pause = {.tv_nsec = FIRST_PAUSE};
    do {
        if (code || !launcher->last || !execution->between || execution->timed) break;
        code = cl->api->GetEventInfo(launcher->last, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
        if (status > CL_COMPLETE) nanosleep(&pause, NULL);
        if (pause.tv_nsec < LONGEST_PAUSE) pause.tv_nsec += pause.tv_nsec / 16;
        execution->between(execution->between_context, 0);
    } while (status > CL_COMPLETE);
    if (!code && status < 0) code = status;
    return code ? code : cl->api->Finish(cl->queue);
}

static int32_t write_scalars(const Launcher *launcher)
{
    const OpenCl *cl = launcher->cl;
    const DeviceWork *work = launcher->work;
    const float *step = work->execution->step;
    size_t bytes = sizeof work->execution->step, each = sizeof work->updates->values;
    int32_t code = cl->api->EnqueueWriteBuffer(cl->queue, cl->step, 0, 0, bytes, step, 0, NULL, NULL);
    for (uint32_t i = 0; work->updates && i < launcher->list->count && !code; i++)
        code = cl->api->EnqueueWriteBuffer(cl->queue, cl->step, 0, bytes + i * each, each, work->updates[i].values, 0,
                                           NULL, NULL);
    return code;
}

static bool opencl_run(DeviceWork *work, Diagnostics *diagnostics)
{
    const Execution *execution = work->execution;
    Launcher launcher = {
        .work = work, .cl = execution->device, .list = &execution->stages[work->stage].stage->lists[work->list]};
    launcher.code = write_scalars(&launcher);
    if (!launcher.code) launch_list(&launcher);
    int32_t code = await(&launcher);
    if (launcher.last) launcher.cl->api->ReleaseEvent(launcher.last);
    if (!launcher.code) launcher.code = code;
    const char *what = work->failed ? work->failed->name : "running kernels";
    work->failed = NULL;
    return !launcher.code || failed(launcher.cl, launcher.code, what, diagnostics);
}

const DeviceKind device_opencl = {.open = opencl_open,
                                  .close = opencl_close,
                                  .run = opencl_run,
                                  .fetch = opencl_fetch,
                                  .hand = opencl_hand,
                                  .fetch_ahead = opencl_fetch_ahead,
                                  .fetched = opencl_fetched};
