/* Costs of a model's layers on the devices of a cluster: memory as it is laid out, times measured or estimated.
 *
 * Times come from a profile (kernel times measured by `skycc probe` on the reference machine, multiplied by a device's
 * slowdown) where there is one, and else from the device's specification: a kernel takes the longer of its
 * floating-point operations at the device's speed and its bytes at the device's memory bandwidth (the roofline model,
 * Williams et al. 2009), plus the time it takes to start one. */
#ifndef PROFILER_MODEL_COSTS_H
#define PROFILER_MODEL_COSTS_H

#include "codegen/stage.h"
#include "profiler/cluster.h"
#include "profiler/costs.h"

/* Measured kernel times on one thread of the reference machine. */
typedef struct KernelTime {
    Hash kernel;
    double seconds;
} KernelTime;

typedef struct Profile {
    Arena arena;
    const char *target;  /* what the kernels were compiled for */
    KernelTime *kernels; /* sorted by hash */
    size_t kernel_count;
} Profile;

bool profile_read(Profile *profile, const char *path, Diagnostics *diagnostics);
bool profile_write(const Profile *profile, const char *path, Diagnostics *diagnostics);
void profile_sort(Profile *profile);
void profile_free(Profile *profile);

/* Fills `costs`, called `name` (free with costs_free), for a graph whose layers are assigned. `profile` may be NULL.
 * Warns when the profile lacks kernels of this model. */
bool model_costs(Costs *costs, Graph *graph, const Cluster *cluster, const Profile *profile, const char *name,
                 const char *model_hash, int microbatches, Diagnostics *diagnostics);

#endif
