/* Programs in memory, shared by running one here and emitting one per device. */
#ifndef DRIVER_COMPILE_LOCAL_PROGRAM_H
#define DRIVER_COMPILE_LOCAL_PROGRAM_H

#include "cluster/cluster.h"
#include "codegen/kernels/kernel_compiler.h"
#include "codegen/stage/stage.h"
#include "driver/compile/training_model.h"
#include "runtime/device/execute.h"
#include "runtime/program/labels.h"
#include "runtime/program/program.h"

typedef struct LocalProgram {
    Arena arena;
    SkyProgram program; /* points into the arena and into the stages */
    Target target;      /* the rest is NULL until it is compiled */
    CompiledKernels *kernels;
    JitProgram *jit;
} LocalProgram;

/* The bytes that a rank sends to agree on the gradient norm: a sum of squares per parameter. */
int64_t program_norm_bytes(const Graph *graph);
/* Fills in what all programs of a model share: optimiser, labels, sizes. */
void program_describe(SkyProgram *program, Arena *arena, const TrainingModel *model);
/* The program of one stage with all layers. */
void local_program_build(LocalProgram *program, StageCode *code, TrainingModel *model);
/* The program of a stage that is built already. `code` must outlive it. */
void local_program_create(LocalProgram *program, const TrainingModel *model, const StageCode *code);
void local_program_free(LocalProgram *program);

/* Compiles the kernels for this machine's processor, or the one named `cpu`, and fills in the calls. */
bool local_program_compile(LocalProgram *program, const char *cpu, Diagnostics *diagnostics);

/* The same for the device that OpenCL reaches. */
void local_program_bind_opencl(LocalProgram *program, const ClusterDevice *device);

/* For execution_open: runs a call by the interpreter. */
bool local_program_interpret(const void *kernel, void *const *operands, int64_t block, int64_t limit);

/* Fills slot 0 of the first stage's inputs for timing: ids spread over their tables, masks of ones. */
void program_make_up_inputs(const Execution *execution);

/* Label input `number` as the last stage reads it; NULL if it does not. */
const SkyTensor *program_labels(const SkyProgram *program, uint32_t number);
/* Counts the labels of the batch in slot 0, for each label input. */
void program_count_labels(const SkyProgram *program, const Execution *execution, LabelCount counts[SKY_MOST_LABELS]);

#endif
