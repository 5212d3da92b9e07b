/* The part of a model's costs that is about sites, filled layer by layer. */
#ifndef PROFILER_COSTS_MODEL_SITES_H
#define PROFILER_COSTS_MODEL_SITES_H

#include "base/string_map.h"
#include "cluster/cluster.h"
#include "profiler/costs/costs.h"
#include "runtime/program/program.h"

typedef struct ModelSites {
    Costs *costs;
    StringMap shared; /* names in costs->sites.shared */
} ModelSites;

/* Fills in the names of the sites and what they keep; the costs have their layers' number, and devices with sites. */
ModelSites model_sites_open(Costs *costs, const Cluster *cluster);
/* Adds what crosses the cut after the layer, and what the layer shares with others; `stage` holds this layer alone. */
void model_sites_add(ModelSites *filling, int layer, const SkyStage *stage);
void model_sites_close(ModelSites *filling);

#endif
