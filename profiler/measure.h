/* Times kernels on this machine. */
#ifndef PROFILER_MEASURE_H
#define PROFILER_MEASURE_H

#include "codegen/codegen.h"
#include "profiler/profile.h"

/* Measures every compiled kernel with machine->threads threads, over buffers of its own that stay warm, and appends its
 * time: the median of several runs, of processor time with one thread and of the clock with more. Kernels that the
 * machine's profile holds already are skipped. */
void measure_kernels(MachineProfile *machine, Arena *arena, const CompiledKernels *compiled, const JitProgram *jit);

/* Fills in gflops and bandwidth_Bps: a large matrix product and a large sum of two arrays, compiled for `target`, which
 * must be this machine. */
bool measure_machine(MachineProfile *machine, const Target *target, Diagnostics *diagnostics);

#endif
