#include "runtime/train/step_cause.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static const double worth_saying = 0.05, worth_naming = 0.25; /* of the step; of the difference */

/* What a rank tells of an average step. */
typedef struct RankCard {
    double seconds[PART_COUNT], planned[PART_COUNT];
    uint32_t stage, stage_count; /* the first one, and how many */
    char device[64];
} RankCard;

void step_parts_add(StepParts *parts, const StepClock *clock, int64_t microbatches)
{
    if (parts->seen++ == 1) *parts = (StepParts){.seen = 2};
    parts->steps++;
    parts->microbatches += microbatches;
    for (int p = 0; p < PART_COUNT; p++) parts->seconds[p] += clock->seconds[p];
}

/* `more`: how many times as many micro-batches as planned the steps had. */
static RankCard make_card(const World *world, const SkyProgram *program, const StepParts *mine, double more)
{
    RankCard card = {.stage = program->stages[0].index, .stage_count = program->stage_count};
    double planned = 0;
    for (int p = 0; p < PART_COUNT && mine->steps; p++) card.seconds[p] = mine->seconds[p] / (double)mine->steps;
    for (uint32_t s = 0; s < program->stage_count; s++) {
        const double *each = program->stages[s].planned_s;
        card.planned[PART_FORWARD] += more * each[SKY_LIST_FORWARD];
        card.planned[PART_BACKWARD] += more * (each[SKY_LIST_BACKWARD] + each[SKY_LIST_WEIGHT_GRADIENT]);
        card.planned[PART_UPDATE] += each[SKY_LIST_UPDATE];
    }
    for (int p = 0; p < PART_COUNT; p++) planned += card.planned[p];
    card.planned[PART_WAITING] = fmax(0, more * *program->predicted_step_s - planned);
    strncpy(card.device, world->device, sizeof card.device - 1);
    return card;
}

/* A rank waits longer because another one works longer: waiting is a cause only where no work is. */
static bool find_largest(const RankCard *cards, int ranks, double difference, bool waiting, int *rank, StepPart *part)
{
    double largest = worth_naming;
    for (int r = 0; r < ranks; r++)
        for (StepPart p = 0; p < PART_EVALUATION; p++) {
            double share = (cards[r].seconds[p] - cards[r].planned[p]) / difference;
            if (p == PART_CHECKPOINT || (p == PART_WAITING) != waiting || share <= largest) continue;
            largest = share;
            *rank = r;
            *part = p;
        }
    return largest > worth_naming;
}

static void say(const RankCard *card, StepPart part, Progress *progress)
{
    static const char *const names[PART_COUNT] = {[PART_REST] = "work without a name",
                                                  [PART_DATA] = "reading data",
                                                  [PART_PACKING] = "packing",
                                                  [PART_FORWARD] = "forward",
                                                  [PART_BACKWARD] = "backward",
                                                  [PART_NORM] = "sums and norm of gradients",
                                                  [PART_MESSAGES] = "messages",
                                                  [PART_WAITING] = "waiting for messages",
                                                  [PART_UPDATE] = "update",
                                                  [PART_LOG] = "the log"};
    char stage[32] = "";
    if (card->stage_count == 1) snprintf(stage, sizeof stage, " of stage %u", card->stage);
    char took[32], planned[32];
    seconds_format(card->seconds[part], took);
    seconds_format(card->planned[part], planned);
    if (card->planned[part] > 0)
        progress_say(
            progress, "Largest cause: %s%s on %s took %s a step instead of %s%s", names[part], stage, card->device,
            took, planned,
            part == PART_WAITING && card->seconds[part] > card->planned[part] ? ": its links are not as planned" : "");
    else
        progress_say(progress, "Largest cause: %s on %s took %s a step, which the plan does not count", names[part],
                     card->device, took);
}

/* Whether other micro-batches than planned are the cause, which is said. */
static bool say_microbatches(const SkyProgram *program, const StepParts *mine, double more, double difference,
                             Progress *progress)
{
    double share = (more - 1) * *program->predicted_step_s / difference;
    if (share <= 0.5) return false;
    progress_say(progress, "Largest cause: a step had %.1f micro-batches on average instead of %.1f",
                 (double)mine->microbatches / (double)mine->steps, program->planned_microbatches);
    return true;
}

void step_cause_say(World *world, const SkyProgram *program, const StepParts *mine, Progress *progress)
{
    if (!program->predicted_step_s || *program->predicted_step_s <= 0) return;
    double more = mine->steps && program->planned_microbatches > 0
                      ? (double)mine->microbatches / ((double)mine->steps * program->planned_microbatches)
                      : 1;
    const RankCard card = make_card(world, program, mine, more);
    FREED RankCard *all = memory_allocate((size_t)world->size * sizeof *all);
    world_allgather(world, &card, sizeof card, all, "where the time went");
    double difference = -*program->predicted_step_s;
    for (int p = 0; p < PART_EVALUATION; p++) difference += p == PART_CHECKPOINT ? 0 : card.seconds[p];
    int rank;
    StepPart part;
    /* The step time that was printed counts the first step too, these parts do not: they may lie on two sides. */
    bool slower = progress->trained > (double)progress->steps_done * *program->predicted_step_s;
    bool matters = world->rank == 0 && mine->steps && slower == (difference > 0) &&
                   fabs(difference) > worth_saying * *program->predicted_step_s;
    if (matters && !say_microbatches(program, mine, more, difference, progress) &&
        (find_largest(all, world->size, difference, false, &rank, &part) ||
         find_largest(all, world->size, difference, true, &rank, &part)))
        say(&all[rank], part, progress);
}
