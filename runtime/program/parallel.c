#include "runtime/program/parallel.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/program/runtime_sizes.h"
#include "runtime/program/subnormals.h"

/* libgomp's entry points: what `#pragma omp parallel` becomes. */
extern void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);
extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);
extern int omp_get_num_procs(void);

typedef struct Region {
    ParallelBody *body;
    void *context;
} Region;

static void enter(void *data)
{
    const Region *region = data;
    region->body(region->context, omp_get_thread_num(), omp_get_num_threads());
}

void parallel_run(int threads, ParallelBody *body, void *context)
{
    if (threads <= 1) {
        body(context, 0, 1);
        return;
    }
    Region region = {body, context};
    GOMP_parallel(enter, &region, (unsigned)threads, 0);
}

/* The processors of the process and not of the calling thread: under OMP_PROC_BIND libgomp binds the first thread to
 * one processor before main begins. */
int parallel_processors(void) { return omp_get_num_procs(); }

bool parallel_waits_passively(void)
{
    const char *policy = getenv("OMP_WAIT_POLICY");
    return policy && strcmp(policy, "passive") == 0;
}

int parallel_threads(uint32_t wanted)
{
    const char *environment = getenv("OMP_NUM_THREADS");
    int threads = environment ? atoi(environment) : 0;
    if (threads <= 0) threads = wanted ? (int)wanted : parallel_processors();
    return threads > 1024 ? 1024 : threads;
}

typedef struct Bytes {
    char *to;
    const char *from; /* NULL: zeros */
    size_t size;
} Bytes;

static void set_share(void *context, int thread, int threads)
{
    const Bytes *bytes = context;
    enum { BLOCK = 4096 };
    int64_t blocks = (int64_t)((bytes->size + BLOCK - 1) / BLOCK);
    size_t begin = (size_t)parallel_begin(blocks, thread, threads) * BLOCK;
    size_t end = (size_t)parallel_begin(blocks, thread + 1, threads) * BLOCK;
    if (end > bytes->size) end = bytes->size;
    if (begin >= end) return;
    if (bytes->from)
        memcpy(bytes->to + begin, bytes->from + begin, end - begin);
    else
        memset(bytes->to + begin, 0, end - begin);
}

void parallel_copy(int threads, void *to, const void *from, size_t size)
{
    Bytes bytes = {to, from, size};
    parallel_run(size < SIZE_ZEROED_TOGETHER ? 1 : threads, set_share, &bytes);
}

void parallel_zero(int threads, void *bytes, size_t size) { parallel_copy(threads, bytes, NULL, size); }

typedef struct Addition {
    float *to, *const *terms;
    int count;
    size_t elements;
} Addition;

static void add_share(void *context, int thread, int threads)
{
    enum { AT_ONCE = 1024 }; /* so that a sum stays in the nearest cache while all terms are added */
    const Addition *a = context;
    float sum[AT_ONCE];
    uint64_t before = subnormals_flush();
    int64_t end = parallel_begin((int64_t)a->elements, thread + 1, threads);
    for (int64_t at = parallel_begin((int64_t)a->elements, thread, threads); at < end; at += AT_ONCE) {
        size_t some = (size_t)(end - at < AT_ONCE ? end - at : AT_ONCE);
        memcpy(sum, a->terms[0] + at, some * sizeof *sum);
        for (int t = 1; t < a->count; t++)
            for (size_t i = 0; i < some; i++) sum[i] += a->terms[t][at + (int64_t)i];
        memcpy(a->to + at, sum, some * sizeof *sum);
    }
    subnormals_restore(before);
}

void parallel_add(int threads, float *to, float *const *terms, int count, size_t elements)
{
    enum { WORTH_A_THREAD = 1 << 14 };
    size_t shares = elements / WORTH_A_THREAD + 1;
    parallel_run(shares < (size_t)threads ? (int)shares : threads, add_share, &(Addition){to, terms, count, elements});
}

typedef struct Coding {
    Codec codec;
    float *values, *residual;
    uint8_t *bytes;
    size_t elements;
} Coding;

static void code_share(void *context, int thread, int threads)
{
    const Coding *c = context;
    int64_t tiles = (int64_t)(c->elements + CODEC_TILE - 1) / CODEC_TILE;
    size_t begin = (size_t)parallel_begin(tiles, thread, threads) * CODEC_TILE;
    size_t end = (size_t)parallel_begin(tiles, thread + 1, threads) * CODEC_TILE;
    if (end > c->elements) end = c->elements;
    if (begin >= end) return;
    uint64_t before = subnormals_flush();
    uint8_t *bytes = c->bytes + codec_row_bytes(c->codec, (int64_t)begin);
    if (c->residual)
        codec_feed_back(c->codec, c->values + begin, c->residual + begin, c->residual + begin, (int64_t)(end - begin),
                        0, bytes);
    else
        codec_decode_row(c->codec, bytes, (int64_t)(end - begin), c->values + begin);
    subnormals_restore(before);
}

void parallel_code(int threads, Codec codec, float *values, float *residual, size_t elements, uint8_t *bytes)
{
    enum { WORTH_A_THREAD = 1 << 12 };
    size_t shares = elements / WORTH_A_THREAD + 1;
    Coding coding = {codec, values, residual, bytes, elements};
    parallel_run(shares < (size_t)threads ? (int)shares : threads, code_share, &coding);
}
