/* What a plan lists: instructions, tensors that cross between regions, what other allocators reach. The checker's own
 * reading of what must be there; nothing may be missing, and nothing there twice. */
#ifndef PARTITIONER_VERIFY_VERIFY_LISTS_H
#define PARTITIONER_VERIFY_VERIFY_LISTS_H

#include "partitioner/verify/verify_rules.h"

/* Each returns false after reporting. The devices of the plan's stages are known to the costs by then. */
bool verify_instructions(Rules *rules);
bool verify_norm(Rules *rules); /* verify_norm.c */
bool verify_crossings(Rules *rules);
bool verify_site_crossings(Rules *rules); /* verify_sites.c */
/* verify_compared.c: the plan's own row is the plan, no row is below the certified bound, and the baselines, run again,
 * find what the plan says of them. */
bool verify_compared(Rules *rules, int64_t certified_ns);

#endif
