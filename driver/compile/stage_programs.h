/* Programs of a plan: stages built, weights referenced, one program per rank. */
#ifndef DRIVER_COMPILE_STAGE_PROGRAMS_H
#define DRIVER_COMPILE_STAGE_PROGRAMS_H

#include "codegen/stage/stage.h"
#include "driver/compile/training_model.h"
#include "driver/compile/weights.h"
#include "partitioner/plan.h"
#include "profiler/costs/cluster.h"
#include "runtime/program/program.h"

typedef struct StagePrograms {
    Arena arena;
    StageCode *stages; /* of the whole pipeline */
    size_t stage_count;
    SkyProgram *programs; /* per rank */
    size_t rank_count;
} StagePrograms;

/* Builds every stage of the plan and a program per rank. `weights` NULL leaves initial values out. Fails where the
 * laid-out memory exceeds what the plan promised, which would be a bug, or a weight is missing. Free with
 * stage_programs_free. */
bool stage_programs_build(StagePrograms *pipeline, TrainingModel *model, const Plan *plan, const Cluster *cluster,
                          const WeightOptions *weights, uint64_t seed, double clip, Diagnostics *diagnostics);
/* The device that runs a rank. */
const ClusterDevice *stage_programs_device(const StagePrograms *pipeline, const Cluster *cluster, size_t rank);
void stage_programs_free(StagePrograms *pipeline);

#endif
