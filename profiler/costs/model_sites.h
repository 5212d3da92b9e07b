/* The part of a model's costs that is about sites, filled layer by layer. */
#ifndef PROFILER_COSTS_MODEL_SITES_H
#define PROFILER_COSTS_MODEL_SITES_H

#include "cluster/cluster.h"
#include "profiler/costs/costs.h"
#include "runtime/program/program.h"

/* Names and what they keep; the costs have their layers' number, and devices with sites. */
void model_sites_open(Costs *costs, const Cluster *cluster);
/* Adds what crosses the cut after the layer, and what the layer shares with others; `stage` holds this layer alone. */
void model_sites_add(Costs *costs, int layer, const SkyStage *stage);

/* The name of a boundary tensor as plans have it: its own, or what it is where that is only a number. */
const char *model_sites_name(Arena *arena, const SkyStage *stage, const char *layer, bool forward, uint32_t number);

#endif
