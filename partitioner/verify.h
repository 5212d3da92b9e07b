/* Checks a plan and the proof of its bound from the costs and the plan alone. Shares no code with the solver: it has
 * its own evaluation and its own dynamic program, both in exact integers, and no pruning that would have to be trusted.
 */
#ifndef PARTITIONER_VERIFY_H
#define PARTITIONER_VERIFY_H

#include "partitioner/plan.h"

typedef struct Verified {
    int64_t certified_ns; /* no plan has a smaller objective: certified; 0 if the plan carries no certificate.
                             That nothing fits, where the plan says so, is always certified. */
    int leaves;           /* of the certificate */
} Verified;

/* False after reporting (EXIT_BAD_INPUT) the first thing that is not as the plan says: a hash, a stage's time or
 * memory, a link, period, step, a schedule that does not run, a leaf of the certificate that proves nothing. */
bool plan_verify(Verified *verified, const Plan *plan, const Costs *costs, Diagnostics *diagnostics);

#endif
