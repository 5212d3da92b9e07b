/* Certificates of bounds that the solver reached. */
#ifndef PARTITIONER_PROOF_CERTIFY_H
#define PARTITIONER_PROOF_CERTIFY_H

#include "partitioner/certificate.h"
#include "partitioner/problem.h"
#include "partitioner/solve/evidence.h"

typedef struct CertifyRequest {
    int64_t bound;        /* of the problem's objective: what should be proven */
    const int *device_of; /* [device of the problem]: device of the costs that the certificate speaks about */
    int price_count;      /* devices of those costs */
    Evidence *evidence;   /* what the solver's prices proved, which is certified in any case; NULL if infeasible */
    int64_t work;         /* elementary steps (relaxation_work) to spend on certifying more than that */
    bool infeasible;      /* that no plan fits, instead: `bound` is then more than any period */
    double deadline;      /* on the problem's watch: for more than the evidence */
} CertifyRequest;

/* A certificate (in `arena`) of the bound, or of the best smaller one that could be certified in time; NULL if none.
 * Sets *timed_out if the deadline decided. */
Certificate *certify(const Problem *problem, const CertifyRequest *request, Arena *arena, bool *timed_out);

#endif
