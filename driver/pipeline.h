/* Programs of a plan: stages built, weights referenced, one program per rank. */
#ifndef DRIVER_PIPELINE_H
#define DRIVER_PIPELINE_H

#include "codegen/stage.h"
#include "driver/training_model.h"
#include "driver/weights.h"
#include "partitioner/plan.h"
#include "profiler/cluster.h"
#include "runtime/program.h"

typedef struct Pipeline {
    Arena arena;
    StageCode *stages; /* of the whole pipeline */
    size_t stage_count;
    SkyProgram *programs; /* per rank */
    size_t rank_count;
} Pipeline;

/* Builds every stage of the plan and a program per rank. `weights` NULL leaves initial values out. Fails where the
 * laid-out memory exceeds what the plan promised, which would be a bug, or a weight is missing. Free with
 * pipeline_free. */
bool pipeline_build(Pipeline *pipeline, TrainingModel *model, const Plan *plan, const Cluster *cluster,
                    const WeightOptions *weights, uint64_t seed, Diagnostics *diagnostics);
/* The device that runs a rank. */
const ClusterDevice *pipeline_device(const Pipeline *pipeline, const Cluster *cluster, size_t rank);
void pipeline_free(Pipeline *pipeline);

#endif
