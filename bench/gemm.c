/* Matrix products as BERT's linear layers use them, compared with oneDNN, OpenBLAS and BLIS:
 *
 *   bench_gemm [--bf16 | --pairs] [--target-cpu=NAME] [THREADS [K N M]]
 *
 * By default float32, for this processor, 1 thread, all shapes. NN is Y = X W, NT is dX = dY W', TN is dW += X' dY,
 * for weights of K x N and M rows. Libraries take turns. For each form a row has skycc's GFLOP/s, its fraction of the
 * measured peak, and how many times as fast as each library it is (medians of the turns' ratios). Exits 0 only if
 * skycc's geometric mean is at least oneDNN's, and no shape is under 0.9 of oneDNN's.
 *
 * Where there are AMX tiles, float32 is split for them; the last line then also has the fraction of a sixth of their
 * peak.
 *
 * --bf16 multiplies factors rounded to bf16, on AMX tiles or by VDPBF16PS; --pairs by VDPBF16PS even where there are
 * tiles. The peak is that of the instruction, reordering and rounding count, and no library is compared: exits 0 if the
 * means of NN, NT and TN are at least 0.85 of the peak of VDPBF16PS, or 0.30 of that of AMX. With --target-cpu, a
 * processor that this one can stand in for, the peak is that of its vectors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/order.h"
#include "bench/gemm_peers.h"
#include "bench/peak.h"
#include "codegen/kernels/kernel_compiler.h"
#include "runtime/program/memory.h"
#include "runtime/program/parallel.h"

enum { NN, NT, TN, FORMS, LEAST_ROUNDS = 5, MOST_ROUNDS = 25 };
static const double least_ratio = 0.9, least_pairs = 0.85, least_tiles = 0.30,
                    seconds_per_product = 0.4; /* for all libraries together */
static const char *const form_names[] = {"NN", "NT", "TN"};

static Target target;
static Diagnostics diagnostics;
static int threads;
static bool bf16;
static double peak, tile_peak; /* the latter 0: no AMX, or it is not used */

/* What is summed over all products. */
typedef struct Summary {
    double logarithms[FORMS], peer_logarithms[PEER_COUNT], least[PEER_COUNT];
    int count[FORMS];
} Summary;

static void build(Kernel *kernel, int form, int64_t k, int64_t n, int64_t m)
{
    int64_t extent[3] = {form == TN ? k : m, form == NT ? k : n, form == NN ? k : form == NT ? n : m};
    /* rows, columns, depth */
    int64_t a[] = {form == NN ? k : form == NT ? n : 1, 0, form == TN ? k : 1};
    int64_t b[] = {0, form == NT ? n : 1, form == NT ? 1 : n};
    int64_t c[] = {extent[1], 1, 0};
    kernel_begin(kernel, "product", 3, extent);
    Register x = kernel_load(kernel, kernel_operand(kernel, DTYPE_F32, a));
    Register y = kernel_load(kernel, kernel_operand(kernel, DTYPE_F32, b));
    Register sum = kernel_reduce(kernel, KERNEL_SUM, kernel_binary(kernel, KERNEL_MULTIPLY, x, y));
    kernel_begin_phase(kernel, false);
    int out = kernel_operand(kernel, DTYPE_F32, c);
    if (form == TN)
        kernel_store_add(kernel, out, sum);
    else
        kernel_store(kernel, out, sum);
    kernel_canonicalize(kernel);
    if (bf16) kernel_set_precision(kernel, PRODUCTS_BF16);
}

/* Memory as the runtime allocates it. */
static MemoryRegion allocate(size_t bytes)
{
    MemoryRegion region;
    if (!memory_map(&region, bytes, threads, "benchmark", &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        exit(diagnostics.exit_code);
    }
    return region;
}

static MemoryRegion matrix(int64_t elements)
{
    MemoryRegion region = allocate((size_t)elements * sizeof(float));
    float *data = (float *)(void *)region.bytes;
    for (int64_t i = 0; i < elements; i++) data[i] = (float)((i * 37 % 101) - 50) / 64;
    return region;
}

/* One kernel as the runtime calls it. */
typedef struct Call {
    SkyKernel *function;
    const CompiledKernel *code;
    void *operands[3];
    unsigned char *scratch;
} Call;

static void run_share(void *context, int thread, int thread_count)
{
    const Call *call = context;
    int64_t begin = parallel_begin(call->code->units, thread, thread_count);
    int64_t end = parallel_begin(call->code->units, thread + 1, thread_count);
    size_t stride = memory_round_up(call->code->scratch_bytes, MEMORY_ALIGNMENT);
    if (begin < end) call->function(call->operands, begin, end, call->scratch + (size_t)thread * stride, SKY_NO_LIMIT);
}

/* Turns of all libraries; seconds[0] is skycc, peers follow. Returns the number of turns; the first is not counted. */
static int take_turns(Call *call, const PeerProduct *product, double seconds[1 + PEER_COUNT][MOST_ROUNDS])
{
    int rounds = -1;
    for (double start = 0;
         rounds < LEAST_ROUNDS || (rounds < MOST_ROUNDS && monotonic_seconds() - start < seconds_per_product);
         rounds++) {
        if (rounds == 0) start = monotonic_seconds();
        int slot = rounds < 0 ? 0 : rounds;
        for (int who = 0; who <= PEER_COUNT; who++) {
            if (who > 0 && !peer_is_loaded(who - 1)) continue;
            double begin = bench_seconds(threads);
            if (who == 0)
                parallel_run(threads, run_share, call);
            else
                peer_multiply(who - 1, product);
            seconds[who][slot] = bench_seconds(threads) - begin;
        }
    }
    return rounds;
}

static void print_product(const Kernel *kernel, int form, double seconds[1 + PEER_COUNT][MOST_ROUNDS], int rounds,
                          Summary *summary)
{
    double own[MOST_ROUNDS];
    memcpy(own, seconds[0], sizeof own);
    double rate = kernel_flops(kernel) / median(own, (size_t)rounds) * 1e-9;
    summary->logarithms[form] += log(rate / peak);
    summary->count[form]++;
    printf("  %6.1f %.2f", rate, rate / peak);
    for (int peer = 0; peer < PEER_COUNT; peer++) {
        if (!peer_is_loaded(peer)) continue;
        double ratio[MOST_ROUNDS];
        for (int i = 0; i < rounds; i++) ratio[i] = seconds[1 + peer][i] / seconds[0][i];
        double middle = median(ratio, (size_t)rounds);
        summary->peer_logarithms[peer] += log(middle);
        if (!summary->least[peer] || middle < summary->least[peer]) summary->least[peer] = middle;
        printf(" %5.2f", middle);
    }
}

static void measure(int form, int64_t k, int64_t n, int64_t m, Summary *summary)
{
    static Kernel kernel;
    build(&kernel, form, k, n, m);
    const Kernel *list[] = {&kernel};
    CompiledKernels *compiled = kernels_compile(list, 1, &target, (KernelCacheOptions){0}, &diagnostics);
    JitProgram *jit = compiled ? jit_load(compiled, &diagnostics) : NULL;
    if (!jit) {
        diagnostics_print(&diagnostics, stderr);
        exit(diagnostics.exit_code);
    }
    int64_t rows = kernel.extent[0], columns = kernel.extent[1], depth = kernel.extent[2];
    MemoryRegion a = matrix(rows * depth), b = matrix(depth * columns), c = matrix(rows * columns);
    Call call = {.code = kernels_find(compiled, &kernel), .operands = {a.bytes, b.bytes, c.bytes}};
    MemoryRegion scratch =
        allocate((memory_round_up(call.code->scratch_bytes, MEMORY_ALIGNMENT) + MEMORY_ALIGNMENT) * (size_t)threads);
    call.function = jit_find(jit, call.code);
    call.scratch = scratch.bytes;
    PeerProduct product = {.rows = rows,
                           .columns = columns,
                           .depth = depth,
                           .transposed_a = form == TN,
                           .transposed_b = form == NT,
                           .accumulates = form == TN,
                           .a = (const float *)(const void *)a.bytes,
                           .b = (const float *)(const void *)b.bytes,
                           .c = (float *)(void *)c.bytes};
    static double seconds[1 + PEER_COUNT][MOST_ROUNDS];
    int rounds = take_turns(&call, &product, seconds);
    print_product(&kernel, form, seconds, rounds, summary);
    memory_unmap(&a);
    memory_unmap(&b);
    memory_unmap(&c);
    memory_unmap(&scratch);
    jit_free(jit);
    kernels_free(compiled);
}

static void print_row(int64_t k, int64_t n, int64_t m, Summary *summary)
{
    printf("%5lld %5lld %5lld ", (long long)k, (long long)n, (long long)m);
    for (int form = 0; form < FORMS; form++) measure(form, k, n, m, summary);
    printf("\n");
    fflush(stdout);
}

static void print_header(void)
{
    printf("%s, vectors of %d bytes, %d thread(s), peak %.1f GFLOP/s\n", target.cpu, target.vector_bytes, threads,
           peak);
    printf("    K     N     M ");
    for (int form = 0; form < FORMS; form++) {
        printf("  %s GF/s peak", form_names[form]);
        for (int peer = 0; peer < PEER_COUNT; peer++)
            if (peer_is_loaded(peer)) printf(" %-5.5s", peer_name(peer));
    }
    printf("\n");
}

/* False if a target is missed. */
static bool print_summary(const Summary *summary)
{
    int all = 0;
    printf("geometric means: of the peak");
    for (int form = 0; form < FORMS; form++) {
        printf(" %s %.3f", form_names[form], exp(summary->logarithms[form] / summary->count[form]));
        all += summary->count[form];
    }
    bool ok = true;
    for (int form = 0; bf16 && form < FORMS; form++)
        ok &= exp(summary->logarithms[form] / summary->count[form]) >= (tile_peak > 0 ? least_tiles : least_pairs);
    for (int peer = 0; peer < PEER_COUNT; peer++) {
        if (!peer_is_loaded(peer)) continue;
        double mean = exp(summary->peer_logarithms[peer] / all);
        printf("; over %s %.3f, least %.2f", peer_name(peer), mean, summary->least[peer]);
        if (peer == 0) ok = mean >= 1 && summary->least[peer] >= least_ratio;
    }
    if (!bf16 && tile_peak > 0)
        for (int form = 0; form < FORMS; form++)
            printf("%s %s %.3f", form ? "" : "; of a sixth of AMX", form_names[form],
                   exp(summary->logarithms[form] / summary->count[form]) * peak / (tile_peak / 6));
    printf("\n");
    return ok;
}

int main(int argc, char **argv)
{
    TargetOptions options = {0};
    bool pairs = false;
    for (; argc > 1 && strncmp(argv[1], "--", 2) == 0; argc--, argv++) {
        static const char cpu[] = "--target-cpu=";
        if (strncmp(argv[1], cpu, strlen(cpu)) == 0) options.cpu = argv[1] + strlen(cpu);
        pairs |= strcmp(argv[1], "--pairs") == 0;
        bf16 |= pairs || strcmp(argv[1], "--bf16") == 0;
    }
    if (pairs) options.features = "-amx-bf16";
    threads = argc > 1 ? atoi(argv[1]) : 1;
    if (threads < 1 || (argc > 2 && argc != 5))
        return fputs("usage: bench_gemm [--bf16 | --pairs] [--target-cpu=NAME] [THREADS [K N M]]\n", stderr),
               EXIT_USAGE;
    if (!target_init(&target, options, &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        return diagnostics.exit_code;
    }
    if (bf16 && !target.bf16) return fputs("this processor does not multiply bf16\n", stderr), EXIT_USAGE;
    if (!bf16) peers_load(threads);
    tile_peak = bench_amx_peak_gflops(&target, threads);
    peak = bf16 && tile_peak > 0 ? tile_peak : (bf16 ? bench_bf16_peak_gflops : bench_peak_gflops)(&target, threads);
    print_header();
    Summary summary = {0};
    static const int64_t weights[][2] = {{768, 768},   {768, 3072},  {3072, 768}, {1024, 1024},
                                         {1024, 4096}, {4096, 1024}, {256, 1024}, {128, 512}};
    if (argc == 5) {
        print_row(atoll(argv[2]), atoll(argv[3]), atoll(argv[4]), &summary);
    } else {
        for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
            for (int64_t m = 512; m <= 4096; m *= 2) print_row(weights[i][0], weights[i][1], m, &summary);
    }
    bool ok = print_summary(&summary);
    target_free(&target);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
