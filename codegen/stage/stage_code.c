#include "codegen/stage/stage_code.h"

void stage_free(StageCode *code)
{
    arena_free(&code->arena);
    *code = (StageCode){0};
}

uint64_t stage_bytes(const SkyStage *stage, uint32_t slot_count, uint32_t threads)
{
    return stage->space_bytes[SKY_SPACE_CONSTANT] + stage->space_bytes[SKY_SPACE_STATE] +
           stage->space_bytes[SKY_SPACE_SLOT] * slot_count + stage->space_bytes[SKY_SPACE_SCRATCH] +
           (stage->space_bytes[SKY_SPACE_BLOCK] + stage->thread_scratch_bytes) * threads;
}
