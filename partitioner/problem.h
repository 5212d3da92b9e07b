/* The partitioning problem in exact integers: nanoseconds and bytes, prefix sums over layers, devices merged into
 * types.
 *
 * Cuts are numbered 0 ... layer_count: cut c lies before layer c. A stage is a pair of cuts (start, end) and covers the
 * layers start ... end-1. Devices that agree in every respect (times, memory limit, region, pins) are one type. */
#ifndef PARTITIONER_PROBLEM_H
#define PARTITIONER_PROBLEM_H

#include <math.h>

#include "partitioner/plan.h"
#include "partitioner/watch.h"
#include "profiler/costs/costs.h"

/* These layers may be on this device only. */
typedef struct ProblemPin {
    int first_layer, last_layer, device;
} ProblemPin;

/* What the link between consecutive stages costs, from a region to another: of the codecs that it may use, in both
 * directions, the ones whose coding and transfers add least to what is minimised, and of these those that lose least.
 * Index 0 is forward, 1 backward. Coding is charged as on the slowest device of a region. */
typedef struct LinkCharge {
    int64_t period; /* how long it is busy with a micro-batch: the longest of transfers and codings, ns; where both
                       directions share it, the transfers count together */
    int64_t sum;    /* both directions' latency, transfer and coding, ns */
    int64_t transfer_ns[2], coding_ns[2][2]; /* of coding: encoding, decoding */
    unsigned char codecs[2];                 /* Codec */
} LinkCharge;

typedef struct Problem {
    Arena arena;
    const Costs *costs;
    Watch *watch; /* that searches for plans go by; whoever sets it keeps it. NULL: the monotonic clock */
    int layer_count, device_count, type_count, region_count; /* region_count is at least 1 */
    int microbatches;                                        /* of a step, at most: what memory is for */
    double rounds; /* how often the period counts in a step, exact: micro-batches - 1, or the samples' mean of that */
    PlanSchedule schedule;
    PlanObjective objective;
    bool free_links; /* no link costs or delays anything */
    /* AUTO without a list of devices is a relaxation: times are those without recomputation, and a stage fits if it
     * fits with or without, so bounds hold for every plan. allocation_settle gives what an allocation really takes. */
    PlanRecompute recompute;
    const bool
        *recomputing; /* [device], with AUTO, or NULL: these recompute where a stage does not fit without, and pay
                                for it always; the others never do */

    int *type_of;                     /* [device] */
    int *first_device, *type_size;    /* [type]: its lowest device, how many there are */
    int *type_region;                 /* [type] */
    int64_t *type_limit;              /* [type] bytes */
    int64_t *forward, *work, *update; /* [type][cut]: prefix sums of forward, forward + backward, sums of
                                         gradients + update; ns */
    double *work_f;                   /* `work` as doubles, which hold it exactly */
    ProblemPin *pins;
    int pin_count;
    int *pinned_before; /* [type][cut]: how many layers before the cut are pinned to other devices */
    bool has_update;

    /* Memory. Resident bytes do not depend on the schedule; levels is how many different in-flight counts matter. */
    int64_t *fixed_bytes, *stash_bytes;  /* [cut], prefix sums of resident + state, and of stash that is not shared */
    int64_t *kept_bytes;                 /* [cut], prefix sums of what recomputation keeps */
    int64_t *scratch_bytes;              /* [power][layer]: sparse table of range maxima; NULL if all are 0 */
    int64_t *boundary_in, *boundary_out; /* [cut]: buffers of a stage that starts, or ends, there */
    int64_t *coded_in,
        *coded_out;  /* [cut]: coded tensors there, kept by each micro-batch; NULL: no link may use codecs */
    bool has_limits; /* some device has a limit that a stage could exceed */
    int level_limit; /* other schedules than GPipe, with stash: stages-to-the-end from which on the in-flight count is
                        constant; else 0 */
    int in_flight_limit; /* 0: none; else no stage needs more micro-batches in flight than so many (searched orders) */
    bool holes;          /* a longer stage may fit where a shorter one does not (narrower cut) */

    /* Links. */
    int *width_class;    /* [cut]: index into the tables below; cuts of equal bytes share one */
    int width_count;     /* of these classes; at least 1 */
    int64_t *latency;    /* [region][region] ns */
    LinkCharge *charges; /* [width class][region][region] */
} Problem;

/* What a period adds to a step, ns: rounded up, as steps are whole. */
static inline double problem_rounds(const Problem *problem, double period) { return ceil(problem->rounds * period); }

/* `microbatches` 0: those of the costs, which is the only choice if these have samples of steps. Fails (reporting) when
 * times are too large to be added in 64 bits, or there are too many different links. */
bool problem_create(Problem *problem, const Costs *costs, PlanObjective objective, PlanSchedule schedule,
                    int microbatches, Diagnostics *diagnostics);
/* The same with recomputation; `devices` (kept) with PLAN_RECOMPUTE_AUTO, or NULL. */
bool problem_create_recomputing(Problem *problem, const Costs *costs, PlanObjective objective, PlanSchedule schedule,
                                int microbatches, PlanRecompute recompute, const bool *devices,
                                Diagnostics *diagnostics);
/* The same question, pins and limits included, about other costs (whose devices begin like the problem's), another
 * number of micro-batches or another way to recompute, by the same watch. Errors are not reported. */
bool problem_derive(Problem *derived, const Problem *problem, const Costs *costs, int microbatches,
                    PlanRecompute recompute, const bool *devices);
void problem_free(Problem *problem);
/* Part of problem_create: the links (problem_links.c). Fails (reporting) when their table would be too large. */
bool problem_fill_links(Problem *problem, Diagnostics *diagnostics);
/* From now on memory is what an order with at most `limit` micro-batches in flight per stage takes; 0: as it is. Not
 * under GPipe. */
void problem_limit_in_flight(Problem *problem, int limit);
/* Layers first ... last may run on `device` only. */
void problem_pin(Problem *problem, int first_layer, int last_layer, int device);
/* Layers first ... last may not run on `device`; problem_derive does not know of it. */
void problem_forbid(Problem *problem, int first_layer, int last_layer, int device);

/* Micro-batches in flight at least in a stage that has `to_end` stages from itself to the end, itself included: all of
 * them under GPipe, else as many as 1F1B needs, within the limit. Searched orders take more where there is room. */
int problem_in_flight(const Problem *problem, int to_end);
/* Whether recomputation is free to choose and its time is left out. */
static inline bool problem_is_relaxed(const Problem *problem)
{
    return problem->recompute == PLAN_RECOMPUTE_AUTO && !problem->recomputing;
}
/* Bytes a stage needs with that many micro-batches in flight: with every stash, or with boundaries for all of them and
 * one stash, which is made again. */
int64_t problem_stage_bytes(const Problem *problem, int start, int end, int in_flight);
int64_t problem_recompute_bytes(const Problem *problem, int start, int end, int in_flight);
/* The least of those that the problem allows (on a device that may recompute, where it says which). */
int64_t problem_least_bytes(const Problem *problem, int start, int end, int in_flight);
/* Whether the stage has to recompute: it always does, or it does not fit otherwise and may. */
bool problem_stage_recomputes(const Problem *problem, int type, int start, int end, int to_end);
/* Memory and pins only. */
bool problem_stage_fits(const Problem *problem, int type, int start, int end, int to_end);

static inline int64_t problem_work(const Problem *p, int type, int start, int end)
{
    const int64_t *work = p->work + (size_t)type * (size_t)(p->layer_count + 1);
    return work[end] - work[start];
}

static inline int64_t problem_forward(const Problem *p, int type, int start, int end)
{
    const int64_t *forward = p->forward + (size_t)type * (size_t)(p->layer_count + 1);
    return forward[end] - forward[start];
}

static inline int64_t problem_update(const Problem *p, int type, int start, int end)
{
    const int64_t *update = p->update + (size_t)type * (size_t)(p->layer_count + 1);
    return update[end] - update[start];
}

static inline const LinkCharge *problem_width_link(const Problem *p, int width, int from, int to)
{
    size_t regions = (size_t)p->region_count;
    return &p->charges[((size_t)width * regions + (size_t)from) * regions + (size_t)to];
}

static inline const LinkCharge *problem_link(const Problem *p, int cut, int from, int to)
{
    return problem_width_link(p, p->width_class[cut], from, to);
}

static inline int64_t problem_latency(const Problem *p, int from, int to)
{
    return p->latency[(size_t)from * (size_t)p->region_count + (size_t)to];
}

/* How long the link between consecutive stages is busy per micro-batch. */
static inline int64_t problem_link_period(const Problem *p, int cut, int from, int to)
{
    return problem_link(p, cut, from, to)->period;
}

/* What the link adds to a step. */
static inline int64_t problem_link_sum(const Problem *p, int cut, int from, int to)
{
    return problem_link(p, cut, from, to)->sum;
}

#endif
