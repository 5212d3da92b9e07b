/* The limits of this machine that the other benchmarks compare with:
 *
 *   bench_limits [THREADS ...]     default: 1 and 2 threads
 *
 * One row is a number of threads: GFLOP/s of float32 fused multiply-adds; GB/s of an update in place of an array on
 * huge pages, reads and writes together; GFLOP/s of VDPBF16PS, 0 if the processor lacks it; GFLOP/s of
 * TDPBF16PS on AMX tiles, or "no AMX". (With AMX, skycc multiplies bf16 by VDPBF16PS only with
 * --target-features=-amx-bf16.) */
#include <stdio.h>
#include <stdlib.h>

#include "bench/peak.h"
#include "runtime/program/parallel.h"

static bool print_row(const Target *target, int threads, Diagnostics *diagnostics)
{
    double rate = bench_update_gigabytes(target, threads, diagnostics);
    if (rate == 0) return false;
    printf("%7d  %11.1f  %11.1f  %12.1f  ", threads, bench_peak_gflops(target, threads), rate,
           bench_bf16_peak_gflops(target, threads));
    double tiles = bench_amx_peak_gflops(target, threads);
    if (tiles > 0)
        printf("%11.1f\n", tiles);
    else
        printf("%11s\n", "no AMX");
    fflush(stdout);
    return true;
}

static bool print_limits(int count, char **threads, Diagnostics *diagnostics)
{
    FREED_WITH(target_free) Target target = {0};
    if (!target_init(&target, (TargetOptions){0}, diagnostics)) return false;
    printf("%s, vectors of %d bytes, %d processors\n", target.cpu, target.vector_bytes, parallel_processors());
    printf("threads  FMA GFLOP/s  update GB/s  bf16 GFLOP/s  AMX GFLOP/s\n");
    bool ok = true;
    if (count == 0) ok = print_row(&target, 1, diagnostics) && print_row(&target, 2, diagnostics);
    for (int i = 0; i < count && ok; i++) ok = print_row(&target, atoi(threads[i]), diagnostics);
    return ok;
}

int main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    for (int i = 1; i < argc; i++)
        if (atoi(argv[i]) < 1) return fputs("usage: bench_limits [THREADS ...]\n", stderr), EXIT_USAGE;
    print_limits(argc - 1, argv + 1, &diagnostics);
    diagnostics_print(&diagnostics, stderr);
    return diagnostics.exit_code;
}
