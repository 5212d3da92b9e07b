/* Checks a plan and the proof of its bound from the costs and the plan alone. With the rest of the planner it shares
 * the data (costs, plan, certificate) and the simulator, which needs only a plan. It has its own evaluation, its own
 * list of what crosses regions and its own dynamic program, all in exact integers, and no pruning that would have to be
 * trusted. Only the comparison with the baselines, which proves nothing, runs their code again. */
#ifndef PARTITIONER_VERIFY_VERIFY_H
#define PARTITIONER_VERIFY_VERIFY_H

#include "partitioner/plan.h"

typedef struct Verified {
    int64_t certified_ns; /* no plan has a smaller objective: certified; 0 if the plan carries no certificate.
                             That nothing fits, where the plan says so, is always certified. */
    int leaves;           /* of the certificate */
} Verified;

/* False after reporting (EXIT_BAD_INPUT) the first thing that is not as the plan says: a hash, a stage's time or
 * memory, a link, period, step, a schedule that does not run or does something twice or never, what crosses between
 * regions, what was compared, a leaf of the certificate that proves nothing. Nor may a plan call itself proven optimal
 * whose certificate does not go as far, unless `allow_unproven`. A bound above the certified one may rest on the
 * solver's search: that is no claim of a proof. */
bool plan_verify(Verified *verified, const Plan *plan, const Costs *costs, bool allow_unproven,
                 Diagnostics *diagnostics);

#endif
