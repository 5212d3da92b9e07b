#include "codegen/stage/stage_kept.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/stage/memory_layout.h"
#include "graph/kernel/kernel.h"

/* A call whose weight is kept. */
typedef struct KeptCall {
    int list;
    SkyCall *call;
    const Kernel *kernel; /* as it was, and keeping */
    const Kernel *keeping;
    SkyLocation weight, kept;
} KeptCall;

typedef struct Keeping {
    Arena *arena;
    const SkyStage *stage;
    KeptCall *calls;
    size_t count, capacity;
    uint64_t bytes; /* of what is kept so far */
} Keeping;

static bool is_parameter(const SkyStage *stage, SkyLocation location)
{
    for (uint32_t p = 0; p < stage->parameter_count; p++) {
        const SkyTensor *value = &stage->parameters[p].value;
        if (location.space == value->location.space && location.offset >= value->location.offset &&
            location.offset < value->location.offset + value->bytes)
            return true;
    }
    return false;
}

static const Kernel *keeping_kernel(Keeping *keeping, const Kernel *kernel, uint64_t *bytes)
{
    FREED Kernel *changed = memory_allocate(sizeof *changed);
    *changed = *kernel;
    *bytes = (uint64_t)kernel_keep_b(changed);
    for (size_t i = 0; i < keeping->count; i++)
        if (keeping->calls[i].kernel == kernel) return keeping->calls[i].keeping;
    return *bytes ? arena_copy(keeping->arena, changed, sizeof *changed) : NULL;
}

/* Calls of different lists never run at the same time, so what one list has kept the other may overwrite. */
static SkyLocation kept_place(Keeping *keeping, const KeptCall *kept, uint64_t bytes)
{
    for (size_t i = 0; i < keeping->count; i++) {
        const KeptCall *other = &keeping->calls[i];
        if (other->list != kept->list && other->kernel == kept->kernel && other->weight.offset == kept->weight.offset)
            return other->kept;
    }
    uint64_t offset = keeping->stage->space_bytes[SKY_SPACE_STATE] + keeping->bytes;
    keeping->bytes += align_bytes(bytes);
    return (SkyLocation){.space = SKY_SPACE_STATE, .offset = offset};
}

static void find_call(Keeping *keeping, int list, SkyCall *call)
{
    const Kernel *kernel = call->interpreted;
    KernelGemm gemm;
    if (call->group_count || call->block_count || call->line_loops || !kernel_match_gemm(kernel, &gemm)) return;
    KeptCall kept = {.list = list, .call = call, .kernel = kernel, .weight = call->operands[gemm.b]};
    uint64_t bytes;
    if (!is_parameter(keeping->stage, kept.weight)) return;
    kept.keeping = keeping_kernel(keeping, kernel, &bytes);
    if (!kept.keeping) return;
    kept.kept = kept_place(keeping, &kept, bytes);
    array_push(keeping->calls, keeping->count, keeping->capacity, kept);
}

static void keep(Keeping *keeping, const KeptCall *kept)
{
    SkyCall *call = kept->call;
    uint32_t count = call->operand_count;
    SkyLocation *operands = arena_new_array(keeping->arena, SkyLocation, count + 2);
    memcpy(operands, call->operands, count * sizeof *operands);
    operands[count] = kept->kept;
    operands[count + 1] = (SkyLocation){.space = SKY_SPACE_STEP, .offset = SKY_STEP_WEIGHTS_KEPT * sizeof(float)};
    call->operands = operands;
    call->operand_count = count + 2;
    call->interpreted = kept->keeping;
}

uint64_t stage_keep_weights(SkyStage *stage, Arena *arena, uint64_t most)
{
    Keeping keeping = {.arena = arena, .stage = stage};
    for (int list = SKY_LIST_FORWARD; list < SKY_LIST_UPDATE; list++) {
        SkyCallList *of = &stage->lists[list];
        of->calls = arena_copy(arena, of->calls, of->count * sizeof *of->calls);
        for (uint32_t c = 0; c < of->count; c++) find_call(&keeping, list, (SkyCall *)&of->calls[c]);
    }
    bool fits = keeping.bytes <= most;
    for (size_t i = 0; fits && i < keeping.count; i++) keep(&keeping, &keeping.calls[i]);
    if (fits) stage->space_bytes[SKY_SPACE_STATE] += keeping.bytes;
    free(keeping.calls);
    return fits ? keeping.bytes : 0;
}
