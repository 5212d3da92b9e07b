/* Refutation by branching: no plan under a period cap, or none whose sum is below a target. */
#ifndef PARTITIONER_SOLVE_PROVE_H
#define PARTITIONER_SOLVE_PROVE_H

#include "partitioner/certificate.h"
#include "partitioner/solve/relaxation.h"

typedef struct ProofNode {
    bool leaf;
    Split split;   /* `yes` is meaningless here */
    int child[2];  /* yes, no */
    double *price; /* [device] */
    double path, total;
} ProofNode;

typedef struct Proof {
    Arena arena;
    ProofNode *nodes;
    int node_count, node_capacity;
    int leaf_count;
    int root;
} Proof;

typedef struct ProofLimits {
    int nodes;
    int64_t *work;   /* what is left of an allowance of elementary steps, the same on every machine; NULL: no limit */
    double deadline; /* on the problem's watch */
    int64_t update_cap; /* plans with a longer update are not in question; 0: all are */
    bool regions_only;  /* split nothing but the parts of the cluster that links join */
    /* Where `found` is given, every open node is also searched with this width: for a plan under the cap, or (sums)
     * with a step below `best`, whose period is at least period_low. A node searched whole is then done too, so the
     * tree is no certificate. */
    Allocation *found;
    int width;
    double best;
    int64_t period_low;
} ProofLimits;

typedef enum ProofAnswer {
    PROOF_DONE,     /* refuted; the tree says why */
    PROOF_FOUND,    /* limits.found holds a plan */
    PROOF_POSSIBLE, /* the relaxation's optimum is a plan, or cannot be told from one: nothing to split */
    PROOF_GAVE_UP   /* a limit was reached */
} ProofAnswer;

/* sums false: is there no plan under the cap? sums true: does every plan under the cap have a sum > target? On any
 * answer but PROOF_DONE only what the caller may free is left. `price` [device] are the prices to start from; the
 * root's are left there. */
ProofAnswer proof_make(Proof *proof, const Problem *problem, int64_t cap, bool sums, double target, double *price,
                       ProofLimits limits);
void proof_free(Proof *proof);

/* Appends the tree to the certificate's nodes (in `arena`) and returns its root. `device_of` maps the problem's devices
 * to those of the certificate's costs. */
int proof_append(const Proof *proof, Certificate *certificate, int *node_capacity, const Problem *problem,
                 const int *device_of, Arena *arena);

/* Roughly how many elementary steps that many price iterations take. */
int64_t relaxation_work(const Relaxation *relaxation, int iterations);

#endif
