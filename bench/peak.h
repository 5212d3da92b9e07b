/* What the machine can do: the yardstick of the other benchmarks. */
#ifndef BENCH_PEAK_H
#define BENCH_PEAK_H

#include "codegen/target.h"

double bench_seconds(void); /* processor time of this thread: other programs disturb it less */

/* Float32 fused multiply-adds on independent registers, one thread, GFLOP/s: the best of some tries. */
double bench_peak_gflops(const Target *target);

#endif
