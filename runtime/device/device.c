#include "runtime/device/device.h"

DeviceBases device_bases(const Execution *execution, uint32_t stage, uint32_t slot)
{
    const StageSpaces *spaces = &execution->stages[stage];
    unsigned char *slots = spaces->slots.bytes; /* an empty space stays NULL */
    return (DeviceBases){{[SKY_SPACE_CONSTANT] = (unsigned char *)(uintptr_t)spaces->stage->constants,
                          [SKY_SPACE_STATE] = spaces->state.bytes,
                          [SKY_SPACE_SLOT] = slots ? slots + slot * spaces->slot_stride : NULL,
                          [SKY_SPACE_SCRATCH] = execution->scratch.bytes,
                          [SKY_SPACE_STEP] = (unsigned char *)(uintptr_t)execution->step}};
}
