/* Programs in memory: what is common to running one here and to emitting one per device. */
#ifndef DRIVER_PROGRAM_H
#define DRIVER_PROGRAM_H

#include "codegen/codegen.h"
#include "codegen/stage.h"
#include "driver/training_model.h"
#include "runtime/execute.h"
#include "runtime/program.h"

typedef struct Program {
    Arena arena;
    SkyProgram program; /* points into the arena and into the stages' */
    Target target;      /* the rest once it is compiled; NULL before */
    CompiledKernels *kernels;
    JitProgram *jit;
} Program;

/* What every program of the model says, whatever its stages: optimiser, labels, sizes. */
void program_describe(SkyProgram *program, Arena *arena, const TrainingModel *model);
/* The program of one stage with all layers, for `skycc run`. `code` must outlive it. */
void program_for_run(Program *program, const TrainingModel *model, const StageCode *code);
void program_free(Program *program);

/* Compiles the program's kernels for this machine's processor, or the one named `cpu`, and fills in its calls. */
bool program_compile(Program *program, const char *cpu, Diagnostics *diagnostics);

/* For execution_open: runs a call by the interpreter. */
bool program_interpret(const void *kernel, void *const *operands, int64_t block);

/* Inputs of the first stage for taking times, in slot 0: ids all over their tables, masks of ones. */
void program_make_up_inputs(const Execution *execution);

/* Label input number `number` as the last stage reads it; NULL if it does not. */
const SkyTensor *program_labels(const SkyProgram *program, uint32_t number);
/* Per label input: labels of the one batch, in slot 0, that are not its ignore_index. */
void program_valid_labels(const SkyProgram *program, const Execution *execution, int64_t valid[SKY_MOST_LABELS]);

#endif
