/* Programs in memory: what is common to running one here and to emitting one per device. */
#ifndef DRIVER_COMPILE_LOCAL_PROGRAM_H
#define DRIVER_COMPILE_LOCAL_PROGRAM_H

#include "codegen/kernels/kernel_compiler.h"
#include "codegen/stage/stage.h"
#include "driver/compile/training_model.h"
#include "runtime/program/execute.h"
#include "runtime/program/labels.h"
#include "runtime/program/program.h"

typedef struct LocalProgram {
    Arena arena;
    SkyProgram program; /* points into the arena and into the stages' */
    Target target;      /* the rest once it is compiled; NULL before */
    CompiledKernels *kernels;
    JitProgram *jit;
} LocalProgram;

/* What a rank sends where all agree on the norm of the gradient: a sum of squares per parameter. */
int64_t program_norm_bytes(const Graph *graph);
/* What every program of the model says, whatever its stages: optimiser, labels, sizes. */
void program_describe(SkyProgram *program, Arena *arena, const TrainingModel *model);
/* The program of one stage with all layers, for `skycc run`. `code` must outlive it. */
void local_program_create(LocalProgram *program, const TrainingModel *model, const StageCode *code);
void local_program_free(LocalProgram *program);

/* Compiles the program's kernels for this machine's processor, or the one named `cpu`, and fills in its calls. */
bool local_program_compile(LocalProgram *program, const char *cpu, Diagnostics *diagnostics);

/* For execution_open: runs a call by the interpreter. */
bool local_program_interpret(const void *kernel, void *const *operands, int64_t block);

/* Inputs of the first stage for taking times, in slot 0: ids all over their tables, masks of ones. */
void program_make_up_inputs(const Execution *execution);

/* Label input number `number` as the last stage reads it; NULL if it does not. */
const SkyTensor *program_labels(const SkyProgram *program, uint32_t number);
/* Of each of the program's labels what the one batch, in slot 0, has. */
void program_count_labels(const SkyProgram *program, const Execution *execution, LabelCount counts[SKY_MOST_LABELS]);

#endif
