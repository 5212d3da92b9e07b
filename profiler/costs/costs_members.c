#include "profiler/costs/costs_members.h"

#define SECONDS(name, presence)                                                                                        \
    {                                                                                                                  \
#name, offsetof(LayerCost, name), false, presence                                                              \
    }
#define BYTES(name, presence)                                                                                          \
    {                                                                                                                  \
#name, offsetof(LayerCost, name), true, presence                                                               \
    }

const CostMember layer_members[] = {SECONDS(forward_s, COST_REQUIRED),
                                    SECONDS(backward_s, COST_REQUIRED),
                                    SECONDS(update_s, COST_WRITTEN),
                                    SECONDS(weight_gradient_s, COST_NOT_ZERO),
                                    BYTES(memory_bytes, COST_WHOLE),
                                    BYTES(state_bytes, COST_PART),
                                    BYTES(stash_bytes, COST_PART),
                                    BYTES(scratch_bytes, COST_PART),
                                    BYTES(gradient_bytes, COST_NOT_ZERO),
                                    BYTES(table_rows, COST_NOT_ZERO),
                                    BYTES(table_row_bytes, COST_NOT_ZERO),
                                    BYTES(table_reads, COST_NOT_ZERO),
                                    BYTES(shared_bytes, COST_NOT_ZERO),
                                    BYTES(kept_bytes, COST_NOT_ZERO),
                                    BYTES(split_bytes, COST_NOT_ZERO),
                                    BYTES(output_bytes, COST_WRITTEN),
                                    BYTES(output_backward_bytes, COST_NOT_ZERO),
                                    {0}};

const CostMember device_times[] = {{.key = "forward_s", .offset = offsetof(DeviceCost, forward_s)},
                                   {.key = "backward_s", .offset = offsetof(DeviceCost, backward_s)},
                                   {.key = "update_s", .offset = offsetof(DeviceCost, update_s)},
                                   {0}};
