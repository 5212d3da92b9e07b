/* Probes that mpiexec started together, one per device of the cluster, in its order: they take turns on every host, and
 * measure the links between hosts. */
#ifndef PROFILER_PROBE_PROBE_WORLD_H
#define PROFILER_PROBE_PROBE_WORLD_H

#include "base/hash.h"
#include "cluster/cluster.h"
#include "profiler/costs/profile.h"

typedef struct ProbeWorld {
    int rank, size; /* 0 of 1 where this process was started alone */
    bool distributed;
} ProbeWorld;

/* Joins the others if a launcher (mpiexec, srun --mpi=pmi2) started this process. */
void probe_world_open(ProbeWorld *world);
void probe_world_close(ProbeWorld *world);
/* The greatest exit code of all processes: all go on, or all stop. */
int probe_world_agree(const ProbeWorld *world, int code);
/* Whether no process of a lower rank says what has the same hash: it is said once. Collective. */
bool probe_world_speaks(const ProbeWorld *world, Hash said);

/* Between the two no other process with a device on the same host measures. */
void probe_world_begin_turn(const ProbeWorld *world, const Cluster *cluster);
void probe_world_end_turn(const ProbeWorld *world, const Cluster *cluster);

/* Rank 0's profile receives what the other ranks measured of their machines, as its `devices`. All have probed the same
 * model. */
void probe_world_gather(const ProbeWorld *world, const Cluster *cluster, const MachineProfile *own, Profile *profile);
/* Rank 0's profile receives a link for every two zones of the cluster with devices on different hosts (and for a zone
 * with itself), measured between the first such devices. */
void probe_world_measure_links(const ProbeWorld *world, const Cluster *cluster, Profile *profile);

#endif
