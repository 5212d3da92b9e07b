/* Plan: which layers run on which device, in which order, how long a step takes, and the proof of how good that is
 * (plan.json, format "skycc.plan/1").
 *
 * A stage is a run of consecutive layers; stages follow each other in layer order. A rank is one process on one device
 * and may own several stages, so instructions carry (stage, micro-batch) and nothing may assume rank = stage = device.
 * Times are integer nanoseconds: per layer and direction ceil(slowdown * seconds * 1e9), per link
 * ceil(bytes / bandwidth * 1e9), in IEEE doubles.
 *
 * The objective is one of two times, for N micro-batches a step:
 *
 *   period = the largest of
 *              - forward + backward of a device, all its stages together
 *              - how long a link between consecutive stages is busy with a micro-batch, in the slower of its
 *                directions: bytes / bandwidth, without latency; in both together where they share it; or encoding or
 *                decoding what crosses, where that takes longer
 *   step   = the sum over stages of forward + backward
 *          + the sum over links and their two directions of latency + bytes / bandwidth + encoding + decoding
 *          + (N - 1) * period
 *          + the longest update of a device, all its stages together, with the sums of gradients before it where there
 *            are replicas
 *
 * Where rows of several lengths share lines of tokens (profiler/costs/row_samples.h), N differs from step to step. Then
 * the step is the one to expect: (N - 1) * period is the mean over the sampled steps, rounded up, and so is the
 * simulated step. Memory and instructions are for the most micro-batches that a step may have; a step leaves out what
 * is about micro-batches that it does not have.
 *
 * Several pipelines may share the micro-batches of a step (replicas): each has devices, cuts and a schedule of its own.
 * Stages and ranks are numbered through all of them, replica by replica. Gradients are summed over the replicas before
 * the update. */
#ifndef PARTITIONER_PLAN_H
#define PARTITIONER_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/codec.h"
#include "base/diagnostics.h"
#include "base/dtype.h"
#include "base/json_writer.h"
#include "profiler/costs/costs.h"
#include "runtime/program/norm_round.h"
#include "runtime/program/program.h"

typedef enum PlanObjective { PLAN_OBJECTIVE_STEP, PLAN_OBJECTIVE_PERIOD, PLAN_OBJECTIVE_COUNT } PlanObjective;
typedef enum PlanAllocator { PLAN_EVEN, PLAN_SKY, PLAN_HEURISTIC, PLAN_OPTIMAL, PLAN_ALLOCATOR_COUNT } PlanAllocator;
/* SEARCHED: the order that order_search finds; ZB: the same with backward split. */
typedef enum PlanSchedule {
    PLAN_GPIPE,
    PLAN_1F1B,
    PLAN_ZB,
    PLAN_SEARCHED,
    PLAN_SCHEDULE_COUNT,
    PLAN_AUTO = PLAN_SCHEDULE_COUNT /* a request, no plan's schedule: the quickest of 1F1B, SEARCHED and ZB */
} PlanSchedule;

/* What holds of a schedule, or of all that a request allows. */
typedef struct ScheduleTraits {
    bool holds_all;   /* all micro-batches of a step are in flight; else as many as 1F1B needs, or more */
    bool is_searched; /* its order is looked for by simulation, and more micro-batches may be in flight than needed */
    bool splits_backward; /* stages may put WEIGHT_GRADIENT off */
    const char *told;     /* what reports call it */
} ScheduleTraits;

/* Which stages drop the stash of a micro-batch and run forward again before backward: those that do not fit otherwise
 * (and where that makes a better plan), none, or all. LAYERS: as AUTO, of a model in which layers do the same one by
 * one (graph/passes/recompute.c), so that the costs include it. */
typedef enum PlanRecompute {
    PLAN_RECOMPUTE_AUTO,
    PLAN_RECOMPUTE_NEVER,
    PLAN_RECOMPUTE_ALWAYS,
    PLAN_RECOMPUTE_LAYERS,
    PLAN_RECOMPUTE_COUNT
} PlanRecompute;

/* One instruction of a rank (SKY_... of runtime/program/program.h). Receives and sends name the stage that does them:
 *   RECEIVE_FORWARD   stage s gets micro-batch m's activations from stage s-1
 *   FORWARD           stage s runs forward of m; what backward needs stays in stash slot `slot`
 *   SEND_FORWARD      stage s sends m's activations to stage s+1
 *   RECEIVE_BACKWARD  stage s gets m's gradient from stage s+1
 *   BACKWARD          stage s runs backward of m from `slot`, which is then free; parameter gradients accumulate
 *   SEND_BACKWARD     stage s sends m's gradient to stage s-1
 *   WEIGHT_GRADIENT   the half of a split backward that only this stage needs (where weight_gradient_ns is not 0):
 *                     then it accumulates the parameter gradients, in micro-batch order, and frees the slot
 *   REDUCE            gradients of parameters that several stages share are summed, and all ranks agree on the norm of
 *                     the gradient where the plan has a round for that; once per stage and step
 *   UPDATE            the optimiser; once per stage and step
 * Micro-batch and slot are -1 for REDUCE and UPDATE. Receives and sends between stages of one rank are left out: the
 * data is there already. Backwards of a stage run in micro-batch order 0 ... N-1 in every schedule, so that gradients
 * are summed in the same order and training gives the same bits. */
typedef struct PlanInstruction {
    SkyInstructionOp op;
    int stage;
    int microbatch; /* 0 ... microbatches-1, or -1 */
    int slot;       /* 0 ... in_flight-1 of the stage, or -1 */
} PlanInstruction;

typedef struct PlanStage {
    const char *device; /* name */
    int rank;
    int first_layer, last_layer; /* inclusive, from 0 */
    int64_t forward_ns, backward_ns, update_ns;
    int64_t sum_ns;             /* of its gradients with those of other replicas, at least; REDUCE takes it */
    bool recompute;             /* backward_ns includes running forward again */
    int64_t weight_gradient_ns; /* the part of backward_ns that can be put off; 0: backward is not split */
    int64_t memory_bytes;
    int64_t memory_limit_bytes; /* the device's; COSTS_NO_LIMIT if none (left out of the file) */
    int in_flight;              /* micro-batches whose stash is kept at once: the number of slots */
} PlanStage;

/* From the last backward on: sums of gradients and the update. */
static inline int64_t plan_stage_update(const PlanStage *stage) { return stage->sum_ns + stage->update_ns; }
/* BACKWARD and WEIGHT_GRADIENT of a micro-batch. Each half of a split backward reads again what the whole finds in the
 * caches: traces show the halves a sixteenth slower than the whole, which costs do not say. */
static inline int64_t plan_stage_backward(const PlanStage *stage)
{
    int64_t half = stage->backward_ns - stage->weight_gradient_ns;
    return stage->weight_gradient_ns > 0 ? half + half / 16 : half;
}
static inline int64_t plan_stage_weight_gradient(const PlanStage *stage)
{
    return stage->weight_gradient_ns + stage->weight_gradient_ns / 16;
}

typedef struct PlanRank {
    const char *device;
    int replica;            /* index into Plan.replicas */
    int64_t process_bytes;  /* of memory, in addition to what its stages take; 0: not known */
    int host;               /* number of the machine that it shares with others; where Plan.processors is 0: nothing */
    double cores;           /* of it that are busy while the rank works */
    int64_t sum_ns;         /* summing its gradients with other replicas: occupies its links, */
    int64_t sum_latency_ns; /* and the last message is there so much later; 0 without replicas */
    int64_t summed_bytes;   /* replica_sums_bytes of all its layers; no file holds it */
    int *stages;            /* ascending */
    int stage_count;
    PlanInstruction *instructions; /* of one step */
    int instruction_count;
} PlanRank;

/* Between stages `from` and `to` = from + 1 of a replica, also where both are on one rank (all times 0 then). */
typedef struct PlanLink {
    int from, to;
    DType dtype;
    /* Forward, then backward; of one micro-batch. */
    Codec codecs[2];
    int64_t logical_bytes[2];
    int64_t wire_bytes[2]; /* after the codec */
    int64_t latency_ns[2], transfer_ns[2];
    int64_t coding_ns[2][2]; /* encoding, by the device that sends, and decoding, by the one that receives */
    bool half_duplex;        /* both directions share the link */
} PlanLink;

/* A tensor that crosses from a region into another, once per micro-batch. */
typedef struct PlanCrossing {
    const char *tensor;
    int64_t bytes;
    bool raw;                 /* an input or label of the model that `keep` gives a home: it is read, not sent */
    int from_stage, to_stage; /* from_stage is -1 where it is raw */
    const char *from_region, *to_region;
} PlanCrossing;

typedef enum PlanCrossingKind {
    PLAN_CROSSING_ACTIVATION,
    PLAN_CROSSING_GRADIENT,
    PLAN_CROSSING_SHARED, /* of a parameter that several ranks use: its gradient there */
    PLAN_CROSSING_INPUT,  /* a raw input or label whose home `keep` names: read from a copy of the data, never sent */
    PLAN_CROSSING_KINDS
} PlanCrossingKind;

/* A tensor that crosses from a site into another. */
typedef struct PlanSiteCrossing {
    CostTensor tensor;
    PlanCrossingKind kind;
    Codec codec;
    int64_t wire_bytes;       /* of one message, coded */
    int64_t per_step;         /* messages; where rows share lines, at most */
    int from_stage, to_stage; /* -1: not between two stages */
    const char *from_site, *to_site;
} PlanSiteCrossing;

/* Prices of devices over a range of period caps, or over one side of a split: see partitioner/certificate.h. NULL where
 * no proof beyond the trivial bound is offered. */
typedef struct Certificate Certificate;

/* Layers first ... last must be on `device`. */
typedef struct PlanPin {
    int first_layer, last_layer;
    const char *device;
} PlanPin;

typedef struct PlanComparison {
    bool known; /* this allocator produced an allocation */
    bool fits;  /* and it respects the memory limits */
    int64_t period_ns, step_ns;
    /* Of `optimal`, where the plan is another allocation: which layers are on which device. */
    PlanPin *stages;
    int stage_count;
} PlanComparison;

/* One of the pipelines that share a step. Its ranks and stages follow each other. */
typedef struct PlanReplica {
    int first_rank, rank_count, first_stage, stage_count;
    int64_t rows;     /* of a whole step; -1: the costs do not say. Where rows share lines: about so many */
    int microbatches; /* instructions number them from 0 in each replica; plan_deal says which of the step's they are */
    /* The pipeline as a plan of its own, made for so many micro-batches without the devices of the others: its ranks
     * and stages are numbered from 0, and it has its own bound and certificate. NULL where the plan has one replica. */
    struct Plan *pipeline;
} PlanReplica;

/* Devices in groups, one for each replica, as the planner compared them. */
typedef struct PlanGrouping {
    int count;           /* groups */
    int64_t step_ns;     /* estimated, by pipelines that are found quickly */
    int64_t bound_ns;    /* no plan with these groups has a shorter step (partitioner/replicas.h) */
    const char **device; /* names */
    int *group;          /* [device]: 0 ... count-1 */
    int device_count;
} PlanGrouping;

typedef struct Plan {
    Arena arena;
    const char *name;
    const char *model_hash, *costs_hash; /* 32 hexadecimal digits; model_hash may be "" */
    PlanAllocator allocator;
    PlanObjective objective;
    PlanSchedule schedule;
    bool schedule_forced; /* it was asked for, not chosen */
    PlanRecompute recompute;
    int microbatches;  /* of a step, at most, in all replicas together */
    RowSamples rows;   /* how many steps have; no samples: all as many */
    BatchChoice batch; /* how the rows of a step were cut; that of the costs */
    /* Where the number, or that of the rows to pack, was chosen: the fraction by which twice as many would raise the
     * rows trained per second; -1: no plan was found for twice as many. 0 where the number was given. */
    double microbatches_gain;
    /* 0, or: orders that keep so many micro-batches in flight at most were looked for, since nothing fits with as
     * many as 1F1B keeps, or nothing that is as fast; memory and bound are about those. */
    int in_flight_limit;
    int layer_count;
    PlanStage *stages;
    int stage_count;
    PlanRank *ranks;
    int rank_count;
    int processors;        /* of every host: where the ranks at work need more, all work takes longer; 0: enough */
    PlanReplica *replicas; /* at least one; none where nothing fits */
    int replica_count;
    PlanLink *links; /* stage_count - replica_count */
    int link_count;
    PlanGrouping *groupings; /* where their number was chosen: the best for each number of replicas that was tried */
    int grouping_count;
    int groupings_tried;  /* in all */
    bool groupings_all;   /* these are all that there are, each with the optimum of the objective */
    int64_t sum_ns;       /* of the gradients over several replicas, once all have ended their last backward; else 0 */
    const int *sum_order; /* layers, in the order of these sums on all ranks; NULL: the last layer first */
    PlanCrossing *crossings; /* where the costs know regions */
    int crossing_count;
    bool has_sites;                   /* the costs know sites */
    PlanSiteCrossing *site_crossings; /* what crosses between them */
    int site_crossing_count;
    const SkyNormRound *norm; /* before every update; NULL: there is none. Only the simulated step counts it */
    int64_t norm_bytes;       /* of each message */
    int64_t norm_ns;          /* if all ranks begin it together */
    int64_t period_ns, step_ns;
    int64_t worst_step_ns, padded_step_ns; /* of `rows`: the worst sampled step, and with every row padded; else 0 */
    int64_t simulated_step_ns;             /* of this schedule on these links */
    double bubble;                         /* idle share of the used devices during the simulated step */
    int64_t lower_bound_ns;                /* of the objective, for any plan */
    double gap;                            /* (value - bound) / value; exactly 0 if proven_optimal */
    bool proven_optimal;                   /* the certificate says so; else a gap of 0 rests on the solver's search */
    bool
        infeasible; /* nothing fits, and the certificate proves it: there are no stages, and no numbers mean anything */
    Certificate *certificate;
    bool timed_out; /* the time limit ended the search: another run may give another plan */
    PlanComparison compared[PLAN_ALLOCATOR_COUNT];
    /* What was asked beyond the costs; the bound holds under it. */
    const char **without; /* devices left out */
    int without_count;
    PlanPin *pins;
    int pin_count;
    unsigned codecs; /* that links may use (base/codec.h) */
} Plan;

/* What plan.json and options call these; PLAN_AUTO is called "auto". */
extern const char *const plan_op_words[SKY_OP_COUNT], *const plan_allocator_words[PLAN_ALLOCATOR_COUNT],
                                                          *const plan_objective_words[PLAN_OBJECTIVE_COUNT],
                                                              *const plan_schedule_words[PLAN_SCHEDULE_COUNT + 1],
                                                                  *const plan_recompute_words[PLAN_RECOMPUTE_COUNT];
const char *plan_op_name(SkyInstructionOp op);
const char *plan_allocator_name(PlanAllocator allocator);
const char *plan_objective_name(PlanObjective objective);
const char *plan_schedule_name(PlanSchedule schedule);
const char *plan_recompute_name(PlanRecompute recompute);
/* What stages do on their own account. */
static inline PlanRecompute plan_recompute_of_stages(PlanRecompute recompute)
{
    return recompute == PLAN_RECOMPUTE_LAYERS ? PLAN_RECOMPUTE_AUTO : recompute;
}
ScheduleTraits plan_schedule_traits(PlanSchedule schedule);
int64_t plan_value_ns(const Plan *plan); /* period or step, whichever is the objective */
/* What plans are chosen by: the simulated step, or the period where that is the objective. */
int64_t plan_chosen_ns(const Plan *plan);
/* The objective of the allocation with the least objective that was found: the plan's own, or one that the plan is
 * close to by the objective and faster than in simulation. */
int64_t plan_optimum_ns(const Plan *plan);

/* The deterministic text of plan.json. */
void plan_print(const Plan *plan, Buffer *buffer);
/* Members that reports have in common with plans. */
void plan_add_seconds(JsonWriter *json, const char *key, int64_t nanoseconds);
void plan_add_times(JsonWriter *json, const Plan *plan); /* period_s ... timed_out */
/* Reads and checks the structure of a plan.json: ranges of every index, stages that cover the layers in order, ranks
 * that own what their instructions use. Whether its numbers are right is for verify.h. On failure *plan is freed. */
bool plan_read(Plan *plan, const char *path, Diagnostics *diagnostics);
/* The same for those who can also do with a file that says (and proves) that nothing fits; plan_read refuses it. */
bool plan_read_verdict(Plan *plan, const char *path, Diagnostics *diagnostics);
void plan_free(Plan *plan);

int64_t plan_rank_work(const Plan *plan, int rank);    /* ns: forward + backward of one micro-batch, all its stages */
int64_t plan_rank_memory(const Plan *plan, int rank);  /* bytes, all its stages */
int64_t plan_rank_process(const Plan *plan, int rank); /* bytes, all that its process takes */
int plan_link_busy(const PlanLink *link);              /* the direction that takes longer: index into transfer_ns */
/* How long the link occupies itself and its ends with a micro-batch, as the period counts it. */
int64_t plan_link_period(const PlanLink *link);
bool plan_link_is_coded(const PlanLink *link);              /* in any direction */
int plan_rank_of(const Plan *plan, const char *device);     /* -1: not used */
bool plan_leaves_out(const Plan *plan, const char *device); /* as it was asked to */

#endif
