/* Programs of a plan: stages built, weights referenced, one program per rank. */
#ifndef DRIVER_COMPILE_STAGE_PROGRAMS_H
#define DRIVER_COMPILE_STAGE_PROGRAMS_H

#include "cluster/cluster.h"
#include "codegen/stage/stage.h"
#include "driver/compile/training_model.h"
#include "driver/compile/weights.h"
#include "partitioner/plan.h"
#include "runtime/program/program.h"

/* What programs of a target of the cluster were compiled for: target_flags.h. NULL where none were. */
typedef struct StageTarget {
    const char *architecture, *cpu, *flags;
} StageTarget;

typedef struct StagePrograms {
    Arena arena;
    StageCode *stages; /* of the whole pipeline */
    size_t stage_count;
    SkyProgram *programs; /* per rank */
    size_t rank_count;
    bool in_folders; /* every site's files are in a folder of its name, to be copied to that site */
    const ClusterSite *
        *sites; /* that have ranks, in the order of the cluster file; none where it names fewer than two */
    size_t site_count;
    uint32_t *rank_sites; /* per rank: index into sites */
    StageTarget *targets; /* per target of the cluster, filled as they are emitted */
} StagePrograms;

/* Builds every stage of the plan and a program per rank. `weights` NULL leaves initial values out. Fails where the
 * laid-out memory exceeds what the plan promised, which would be a bug, or a weight is missing. Free with
 * stage_programs_free. */
bool stage_programs_build(StagePrograms *pipeline, TrainingModel *model, const Plan *plan, const Cluster *cluster,
                          const WeightOptions *weights, uint64_t seed, double clip, Diagnostics *diagnostics);
/* Where a rank's files go: `directory`, or its site's folder there. */
const char *stage_programs_folder(const StagePrograms *pipeline, Arena *arena, const char *directory, size_t rank);
/* The device that runs a rank. */
const ClusterDevice *stage_programs_device(const StagePrograms *pipeline, const Cluster *cluster, size_t rank);
void stage_programs_free(StagePrograms *pipeline);

#endif
