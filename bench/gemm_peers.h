/* The libraries that bench_gemm compares with, loaded where they are installed. */
#ifndef BENCH_GEMM_PEERS_H
#define BENCH_GEMM_PEERS_H

#include <stdbool.h>
#include <stdint.h>

enum { PEER_COUNT = 3 }; /* oneDNN, OpenBLAS, BLIS */

/* C[rows][columns] = A B, or C += A B, all stored by rows; a transposed operand is stored as its transpose is. */
typedef struct PeerProduct {
    int64_t rows, columns, depth;
    bool transposed_a, transposed_b, accumulates;
    const float *a, *b;
    float *c;
} PeerProduct;

/* Loads them, told to use so many threads. Those that are missing are named on standard output, with their package. */
void peers_load(int threads);
const char *peer_name(int peer);
bool peer_is_loaded(int peer);
void peer_multiply(int peer, const PeerProduct *product);

#endif
