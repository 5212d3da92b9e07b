/* The part of a model's costs that is about weights which products keep for a whole step (codegen/stage/stage_kept.h).
 *
 * Compiling decides about them after the plan, by the memory that the plan leaves. Costs count them where the answer
 * is certain before: on devices that have room for all layers. Other devices may take less time than planned. */
#ifndef PROFILER_COSTS_KEPT_COSTS_H
#define PROFILER_COSTS_KEPT_COSTS_H

#include "cluster/cluster.h"
#include "profiler/costs/costs.h"

/* What a micro-batch of a layer takes less where weights are kept: seconds. */
typedef struct KeptGain {
    double forward, backward;
} KeptGain;

typedef struct KeptCosts {
    Arena arena;
    int64_t bytes;       /* that all layers keep */
    KeptGain *reference; /* [layer]; NULL: no layer keeps anything */
    KeptGain **devices;  /* [device][layer]; NULL where it is a slower reference machine */
} KeptCosts;

KeptCosts kept_costs_open(const Costs *costs);
/* Where the gain of a layer belongs: on a device with times of its own, or on the reference (device: -1). */
KeptGain *kept_costs_gain(KeptCosts *kept, const Costs *costs, int device, int layer);
/* Subtracts the gains from the times of devices that keep weights. The first micro-batch of a step gains nothing: what
 * the others gain is added to the update, which is once a step, too. `in_flight`: micro-batches that a stage has in
 * flight at most. */
void kept_costs_count(const KeptCosts *kept, Costs *costs, const Cluster *cluster, int in_flight);
void kept_costs_close(KeptCosts *kept);

#endif
