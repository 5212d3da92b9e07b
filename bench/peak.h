/* What the machine can do: the yardstick of the other benchmarks. */
#ifndef BENCH_PEAK_H
#define BENCH_PEAK_H

#include "codegen/kernels/target.h"

/* What work on so many threads is timed by: of one its processor time, which other programs disturb less; of more the
 * clock. */
double bench_seconds(int threads);

/* Float32 fused multiply-adds on independent registers by so many threads, GFLOP/s: the best of some tries. */
double bench_peak_gflops(const Target *target, int threads);

/* The same of VDPBF16PS, which takes pairs of bf16; 0 where there is none. */
double bench_bf16_peak_gflops(const Target *target, int threads);

/* The same of TDPBF16PS on AMX tiles; 0 where there are none. */
double bench_amx_peak_gflops(const Target *target, int threads);

/* An array larger than the caches, on huge pages, updated in place (x = a x + b): bytes read and bytes written, GB/s,
 * the best of some tries; 0 after reporting that there is no memory for it. */
double bench_update_gigabytes(const Target *target, int threads, Diagnostics *diagnostics);

#endif
