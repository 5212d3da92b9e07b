#include "bench/gemm_peers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of libgomp, which is loaded before this program can set OMP_NUM_THREADS. */
extern void omp_set_num_threads(int threads);

typedef int DnnlSgemm(char transposed_a, char transposed_b, int64_t rows, int64_t columns, int64_t depth, float alpha,
                      const float *a, int64_t a_pitch, const float *b, int64_t b_pitch, float beta, float *c,
                      int64_t c_pitch);
typedef void CblasSgemm(int order, int transposed_a, int transposed_b, int rows, int columns, int depth, float alpha,
                        const float *a, int a_pitch, const float *b, int b_pitch, float beta, float *c, int c_pitch);
enum { CBLAS_BY_ROWS = 101, CBLAS_AS_IS = 111, CBLAS_TRANSPOSED = 112 };

typedef struct Peer {
    const char *name, *library, *package, *symbol;
    void *function;
} Peer;

static Peer peers[PEER_COUNT] = {{"oneDNN", "libdnnl.so.2", "libdnnl2", "dnnl_sgemm", NULL},
                                 {"OpenBLAS", "libopenblas.so.0", "libopenblas0-pthread", "cblas_sgemm", NULL},
                                 {"BLIS", "libblis.so.4", "libblis4-openmp", "cblas_sgemm", NULL}};

void peers_load(int threads)
{
    char number[16];
    snprintf(number, sizeof number, "%d", threads);
    const char *variables[] = {"OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS"};
    omp_set_num_threads(threads);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) setenv(variables[i], number, 1);
    for (int i = 0; i < PEER_COUNT; i++) {
        void *library = dlopen(peers[i].library, RTLD_NOW | RTLD_LOCAL);
        if (library) peers[i].function = dlsym(library, peers[i].symbol);
        if (!peers[i].function) printf("%s is not installed (%s)\n", peers[i].name, peers[i].package);
    }
}

const char *peer_name(int peer) { return peers[peer].name; }
bool peer_is_loaded(int peer) { return peers[peer].function != NULL; }

void peer_multiply(int peer, const PeerProduct *p)
{
    int64_t a_pitch = p->transposed_a ? p->rows : p->depth, b_pitch = p->transposed_b ? p->depth : p->columns;
    float beta = p->accumulates ? 1 : 0;
    if (strcmp(peers[peer].symbol, "dnnl_sgemm") == 0) {
        DnnlSgemm *sgemm = (DnnlSgemm *)(uintptr_t)peers[peer].function;
        sgemm(p->transposed_a ? 'T' : 'N', p->transposed_b ? 'T' : 'N', p->rows, p->columns, p->depth, 1, p->a, a_pitch,
              p->b, b_pitch, beta, p->c, p->columns);
        return;
    }
    CblasSgemm *sgemm = (CblasSgemm *)(uintptr_t)peers[peer].function;
    sgemm(CBLAS_BY_ROWS, p->transposed_a ? CBLAS_TRANSPOSED : CBLAS_AS_IS,
          p->transposed_b ? CBLAS_TRANSPOSED : CBLAS_AS_IS, (int)p->rows, (int)p->columns, (int)p->depth, 1, p->a,
          (int)a_pitch, p->b, (int)b_pitch, beta, p->c, (int)p->columns);
}
