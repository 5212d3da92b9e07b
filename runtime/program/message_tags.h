/* Numbers of the messages between the ranks of a run. They are part of the contract: gateways count messages by what
 * they carry, and `skycc compile` tells them which tag is whose (runtime/wire/site_file.h). */
#ifndef RUNTIME_PROGRAM_MESSAGE_TAGS_H
#define RUNTIME_PROGRAM_MESSAGE_TAGS_H

#include <stdbool.h>

#include "runtime/program/program.h"

/* Between sites. The first two ask whether a rank is alive, without a receive. Then come the leaders' exchanges, three
 * of them from one rank to all. From WIRE_FIRST_TAG on the tags below, shifted. */
enum {
    WIRE_ANSWER = -2,
    WIRE_QUESTION,
    WIRE_GATHER,
    WIRE_DECISION,
    WIRE_CHECKPOINT, /* which ones there are, what is in them; none of their numbers */
    WIRE_LENGTHS,    /* of the rows of the data */
    WIRE_SUM,
    WIRE_BARRIER,
    WIRE_UNITE,
    WIRE_FIRST_TAG
};

/* Between two ranks, wherever they are. Those of tensors that cross a boundary of the pipeline follow, then two for
 * every parameter of the model, by its global_index: terms of gradients that are summed, and their sums. */
enum { TAG_WARM_UP, TAG_REPORT, TAG_TRACE, TAG_FIRST_BOUNDARY };

/* How a pipeline numbers (boundary, direction, tensor, micro-batch). */
typedef struct MessageTags {
    uint32_t stages, microbatches;
    uint32_t tensors; /* at any boundary at most, and one more: when an emulated link delivers them */
} MessageTags;

/* `most_tensors`: of all ranks. */
static inline MessageTags message_tags(const SkyProgram *program, uint32_t most_tensors)
{
    return (MessageTags){program->total_stage_count, program->microbatch_count, most_tensors + 1};
}

/* Of the first micro-batch; those of the others follow it. */
static inline int64_t message_tag_of_tensor(const MessageTags *tags, uint32_t boundary, bool backward, uint32_t tensor)
{
    int64_t channel = (2 * (int64_t)boundary + backward) * tags->tensors + tensor;
    return TAG_FIRST_BOUNDARY + channel * tags->microbatches;
}

static inline int64_t message_tag_of_parameter(const MessageTags *tags, uint32_t global_index, bool sum)
{
    return message_tag_of_tensor(tags, tags->stages, false, 0) + 2 * (int64_t)global_index + sum;
}

/* The most tensors that a stage of this rank sends at a boundary, at least 1. */
static inline uint32_t message_most_tensors(const SkyProgram *program)
{
    uint32_t most = 1;
    for (uint32_t s = 0; s < program->stage_count; s++) {
        const SkyStage *stage = &program->stages[s];
        if (stage->send_forward_count > most) most = stage->send_forward_count;
        if (stage->send_backward_count > most) most = stage->send_backward_count;
    }
    return most;
}

#endif
