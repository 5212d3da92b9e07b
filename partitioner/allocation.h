/* Allocations: which layers run on which device, and what that is worth to a problem. */
#ifndef PARTITIONER_ALLOCATION_H
#define PARTITIONER_ALLOCATION_H

#include "partitioner/problem.h"

/* Stage k covers the cuts end[k-1] (0 for k = 0) ... end[k] on device[k]. A device has one stage, or the first and the
 * last one (keeper.h). The arrays hold device_count + 1 entries. */
typedef struct Allocation {
    int stage_count;
    int *device, *end;
} Allocation;

typedef struct AllocationValue {
    bool fits;      /* every device within its memory, every pin respected */
    int64_t excess; /* bytes over the limits, summed */
    int64_t period, sum, update, step;
} AllocationValue;

Allocation allocation_create(Arena *arena, const Problem *problem);
void allocation_copy(Allocation *to, const Allocation *from);
bool allocation_equal(const Allocation *a, const Allocation *b);
/* The cut at which stage `stage` starts. */
static inline int allocation_start(const Allocation *allocation, int stage)
{
    return stage > 0 ? allocation->end[stage - 1] : 0;
}

/* Whether a stage of the allocation recomputes, as problem_stage_recomputes says; but a device with the first and the
 * last stage chooses for both at once. */
bool allocation_recomputes(const Problem *problem, const Allocation *allocation, int stage);
AllocationValue allocation_evaluate(const Problem *problem, const Allocation *allocation);
/* The same with the time that recomputation really takes: what a plan made of it will have. */
AllocationValue allocation_settle(const Problem *problem, const Allocation *allocation);
/* Whether `a` is the better value: that fits, or is less over the limits; then by the objective, then by the other of
 * step and period. */
bool allocation_better(const Problem *problem, const AllocationValue *a, const AllocationValue *b);

/* The value that is to be small: the step, or the period. */
int64_t allocation_objective(const Problem *problem, const AllocationValue *value);

/* The best allocation so far. */
typedef struct Incumbent {
    const Problem *problem;
    Allocation *allocation; /* the caller's, who gets what is found */
    AllocationValue value;
    bool found;   /* else allocation and value mean nothing yet */
    bool settled; /* values are those of allocation_settle, not of allocation_evaluate */
} Incumbent;

AllocationValue incumbent_evaluate(const Incumbent *incumbent, const Allocation *allocation);
/* Takes a copy of the allocation if it fits and is better than what was found before; says whether it did. */
bool incumbent_offer(Incumbent *incumbent, const Allocation *allocation);
/* Of the best; meaningless while none was found. */
int64_t incumbent_objective(const Incumbent *incumbent);

#endif
