/* Whether a certificate covers every plan: the second half of checking a proof; the first is its leaves. */
#ifndef PARTITIONER_VERIFY_VERIFY_COVER_H
#define PARTITIONER_VERIFY_VERIFY_COVER_H

#include "partitioner/certificate.h"
#include "partitioner/verify/verify_rules.h"

/* Whether every plan that could be better than the bound falls into one of `count` intervals from `first` on. `step`:
 * the certificate bounds steps. */
bool covers_plans(const Rules *rules, const Certificate *proof, int first, int count, bool step);

/* Where `keeper` has the first stage and the last one: whether every such plan falls into a branch, and the plan in
 * which it has all layers is not better than the bound. Reports what is not so. */
bool covers_keepers(Rules *rules, const Certificate *proof, int keeper);

/* The least memory of a first stage of the branch. */
int64_t least_held(const Rules *rules, const CertificateBranch *branch);

#endif
