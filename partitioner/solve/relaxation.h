/* Chains of stages under a period cap, with a price for every use of a device: the relaxation that every lower bound
 * comes from.
 *
 * Giving up "a device is used at most once" and charging a price for each use instead leaves a shortest-path problem
 * over cuts. Prices are not negative, and the total is what all devices of all classes cost together. Then the
 * shortest path less the total is a lower bound for any plan under the cap (Lagrange). In the feasibility form, where
 * a stage costs nothing but its price, a shortest path longer than the total proves that no plan has that period.
 * Prices and times are integers held in doubles below 2^53, so every sum is exact and every bound is a proof.
 *
 * Potentials run from the first cut to the last: what a stage may hold under 1F1B depends on the stages after it. */
#ifndef PARTITIONER_SOLVE_RELAXATION_H
#define PARTITIONER_SOLVE_RELAXATION_H

#include "partitioner/allocation.h"

#define RELAXATION_INFINITY 1e300

/* A question about a plan, and the answer that restricts it: is there a cut at `cut`; does `device` start before `cut`
 * (if it is used); is the plan in the part of the cluster that links not slower than the cap join to `region`? */
typedef enum SplitKind { SPLIT_CUT, SPLIT_DEVICE, SPLIT_REGION } SplitKind;

typedef struct Split {
    SplitKind kind;
    int device, cut, region;
    bool yes;
} Split;

/* A neighbourhood: the stages of an allocation that stay as they are. The others' layers and devices, and the devices
 * that are not used at all but for those left out, are free within the gaps between them. */
typedef struct Freeze {
    const Allocation *allocation;
    const bool *frozen;   /* [stage] */
    const bool *left_out; /* [device] */
} Freeze;

enum { CLASS_NONE = -1, CLASS_FROZEN = -2 };

/* A stage that is left where not all are (arcs.h). */
typedef struct Arc {
    int start, class_index;
    double cost;
} Arc;

typedef struct Lanes Lanes; /* partitioner/solve/lanes.h */

typedef struct StartQueue {
    int first, last, next; /* entries first ... last-1; the lowest start not looked at yet */
} StartQueue;

typedef struct Relaxation {
    const Problem *problem;
    Arena arena;
    int64_t cap, update_cap;
    bool sums; /* stages and links cost their nanoseconds; false: only the prices count (feasibility) */

    int zone_count; /* regions whose links cannot be told apart under this cap: at least 1 */
    int *zone_of;   /* [region] */

    int class_count;                           /* devices that cannot be told apart under this cap */
    int *class_of;                             /* [device] */
    int *class_size, *class_type, *class_zone; /* [class]; class_type is one of its types */

    int levels;   /* 0, or: stages-to-the-end from which on nothing changes */
    int *low;     /* [own level][class][cut]: lowest start of a stage that ends at the cut; the cut itself if none */
    int *high;    /* [class][cut]: highest start + 1; NULL without splits on devices */
    bool *closed; /* [cut]: no stage may end here; NULL without splits on cuts */
    bool maximal; /* the longest stage is always at least as good */
    int *frozen_start, *frozen_device; /* [cut]: of the frozen stage that ends here, or -1; NULL without a freeze */
    bool *inside_frozen;               /* [cut]: no stage can end here */
    double *link;                      /* [width class][zone][zone]: cost, or infinity where slower than the cap */

    double *potential; /* [level][zone][cut]: cheapest way to cover the layers before the cut, the link to a next
                          stage in that zone included, with that many stages after the cut */
    int *choice;       /* like potential: the class of the stage that ends there, CLASS_NONE or CLASS_FROZEN */
    int *low_by_cut;   /* [cut][class]; NULL unless stages are stretched and there is one zone and level */

    /* What shortest paths keep from one to the next, made at the first that needs it (`active` is NULL before).
     *
     * Sums: classes in an order in which every one is at least as slow, layer by layer, and reaches no further than the
     * one before it in its row (`order_row`, numbers below class_count). NULL where that was not looked for. */
    int *order, *order_row;
    int *active, active_count; /* scratch: classes that no faster one of their row undercuts at the last prices */
    double *row_price;         /* scratch [row] */
    Lanes *lanes;              /* or NULL */
    double *stage;             /* scratch [class]: the lanes' results */
    StartQueue *queues;        /* scratch [own level][class]; NULL in the feasibility form and where there are holes */
    int *queued;               /* scratch [own level][class][cut]: their starts */

    /* The watch's limit passed while it was made or solved: reaches and potentials mean nothing, and nothing may be
     * concluded from them. */
    bool late;
    int64_t looked_at; /* stages, by the last shortest path: what it took */

    double *least;    /* scratch [zone] */
    int *least_class; /* scratch [zone] */

    const Arc *arcs; /* all stages there are, by end; NULL: all within low and high. `choice` then holds arcs. */
    const int *first_arc, *arc_count; /* [end] */
    /* Stages cost something in addition to prices: always with sums; in the feasibility form once prices became costs
     * (arcs_rebase). `base` are those [class], NULL before; a plan under the cap costs at most `allowance`. */
    bool costed;
    const double *base;
    double allowance;
} Relaxation;

/* Classes are the problem's types when `sums`, else devices with equal reach. */
void relaxation_create(Relaxation *relaxation, const Problem *problem, int64_t cap, bool sums);
/* The same for plans whose stages take at most `update_cap` ns to update; `splits` may be NULL. */
void relaxation_create_capped(Relaxation *relaxation, const Problem *problem, int64_t cap, int64_t update_cap,
                              bool sums, const Split *splits, int split_count);
void relaxation_create_around(Relaxation *relaxation, const Problem *problem, int64_t cap, bool sums,
                              const Freeze *freeze);
void relaxation_free(Relaxation *relaxation);

/* The part of the cluster each region belongs to: the lowest region that it can reach over links not slower than the
 * cap. */
void relaxation_components(const Problem *problem, int64_t cap, int *component);

/* The number of stages after the start of a stage whose end has `following` stages after it, as far as it matters. */
static inline int relaxation_level(const Relaxation *r, int following)
{
    return following < r->levels ? following + 1 : r->levels;
}

static inline const int *relaxation_low(const Relaxation *r, int own_level, int class_index)
{
    size_t row = (size_t)(own_level > 0 ? own_level - 1 : 0) * (size_t)r->class_count + (size_t)class_index;
    return r->low + row * (size_t)(r->problem->layer_count + 1);
}

static inline const double *relaxation_potential(const Relaxation *r, int level, int zone)
{
    return r->potential +
           ((size_t)level * (size_t)r->zone_count + (size_t)zone) * (size_t)(r->problem->layer_count + 1);
}

static inline double relaxation_link(const Relaxation *r, int cut, int from, int to)
{
    size_t zones = (size_t)r->zone_count;
    return r->link[((size_t)r->problem->width_class[cut] * zones + (size_t)from) * zones + (size_t)to];
}

#endif
