/* The programs of a plan: stages, references to weights, one program per rank. */
#ifndef DRIVER_COMPILE_STAGE_PROGRAMS_H
#define DRIVER_COMPILE_STAGE_PROGRAMS_H

#include "cluster/cluster.h"
#include "driver/compile/training_model.h"
#include "driver/compile/weights.h"
#include "partitioner/plan.h"
#include "runtime/program/program.h"

/* What the programs of a cluster target were compiled for (target_flags.h); NULL: no programs. */
typedef struct StageTarget {
    const char *architecture, *cpu, *flags;
} StageTarget;

typedef struct StagePrograms {
    Arena arena;
    StageCode *stages; /* of the whole pipeline */
    size_t stage_count;
    SkyProgram *programs; /* per rank */
    size_t rank_count;
    bool in_folders;           /* each site has a folder of its own, to be copied to the site */
    const ClusterSite **sites; /* that have ranks, in the cluster file's order; empty if it names fewer than two */
    size_t site_count;
    uint32_t *rank_sites; /* per rank: index into sites */
    StageTarget *targets; /* per target of the cluster, filled as they are emitted */
} StagePrograms;

/* Builds every stage of the plan and a program per rank. `weights` NULL leaves initial values out. Fails if a weight
 * is missing; a stage that needs more memory than planned is a bug. Free with stage_programs_free. */
bool stage_programs_build(StagePrograms *pipeline, TrainingModel *model, const Plan *plan, const Cluster *cluster,
                          const WeightOptions *weights, uint64_t seed, double clip, Diagnostics *diagnostics);
/* The folder of a rank's files: `directory`, or its site's folder there. */
const char *stage_programs_folder(const StagePrograms *pipeline, Arena *arena, const char *directory, size_t rank);
/* The device that runs a rank. */
const ClusterDevice *stage_programs_device(const StagePrograms *pipeline, const Cluster *cluster, size_t rank);
void stage_programs_free(StagePrograms *pipeline);

#endif
