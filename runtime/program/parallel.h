/* Threads of one process, by GCC's OpenMP run-time library, which emitted programs link. It needs no support from the
 * compiler and never shares a process with LLVM's. */
#ifndef RUNTIME_PROGRAM_PARALLEL_H
#define RUNTIME_PROGRAM_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/codec_rows.h"

/* `body` runs on each of `threads` threads (fewer if the system has no more) with its number and their count. */
typedef void ParallelBody(void *context, int thread, int threads);
void parallel_run(int threads, ParallelBody *body, void *context);

/* How many threads to use when `wanted` is what the device was described with (0: not at all): OMP_NUM_THREADS if that
 * is set, else `wanted`, else the processors this process may run on. */
int parallel_threads(uint32_t wanted);
/* Processors this process may run on. */
int parallel_processors(void);
/* OMP_WAIT_POLICY=passive: whoever waits leaves the processor to others. */
bool parallel_waits_passively(void);

/* The piece of 0 ... count - 1 that is `thread`'s: contiguous, equal but for one element. */
static inline int64_t parallel_begin(int64_t count, int thread, int threads)
{
    return count / threads * thread + (count % threads < thread ? count % threads : thread);
}

void parallel_copy(int threads, void *to, const void *from, size_t size);
void parallel_zero(int threads, void *bytes, size_t size);
/* The sum of terms, in their order; subnormal numbers count as 0. `to` may be one of them. */
void parallel_add(int threads, float *to, float *const *terms, int count, size_t elements);
/* codec_feed_back, and with residual NULL codec_decode_row. */
void parallel_code(int threads, Codec codec, float *values, float *residual, size_t elements, uint8_t *bytes);

#endif
