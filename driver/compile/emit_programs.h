/* Turns the programs of a pipeline into executables: kernels compiled once per target, tables per rank, linked. */
#ifndef DRIVER_COMPILE_EMIT_PROGRAMS_H
#define DRIVER_COMPILE_EMIT_PROGRAMS_H

#include "driver/compile/stage_programs.h"

/* Executables, the text of each rank's kernels, or objects. */
typedef enum EmitForm { EMIT_PROGRAMS, EMIT_LLVM, EMIT_ASSEMBLY, EMIT_OBJECTS } EmitForm;

typedef struct EmitOptions {
    const char *directory;
    const char *cpu; /* of native targets; NULL: this machine's */
    EmitForm form;
} EmitOptions;

/* What there was to do, and how long it took. */
typedef struct EmitTimes {
    size_t kernels, cached; /* over all targets; `cached` came from the cache */
    double compile_s, link_s;
    uint64_t kept_bytes; /* the most that a rank has beyond its plan for weights in the order of their products */
} EmitTimes;

/* Writes DIRECTORY/stage-NN (or stage-NN.ll, .s; stage-NN.o and the kernels' objects). Errors: EXIT_TOOLCHAIN. */
bool stage_programs_emit(StagePrograms *pipeline, const Cluster *cluster, const EmitOptions *options, EmitTimes *times,
                         Diagnostics *diagnostics);

#endif
