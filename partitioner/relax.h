/* When nothing fits: what is the least that would? */
#ifndef PARTITIONER_RELAX_H
#define PARTITIONER_RELAX_H

#include "partitioner/problem.h"

/* Reports (EXIT_NO_PLAN) that nothing fits, with the smallest additional memory on one device and the smallest number
 * of additional equal devices that would make a plan possible. Always returns false. */
bool relax_report(const Problem *problem, Diagnostics *diagnostics);

/* What messages that nothing fits end in: "" unless fewer micro-batches in flight were tried, too. */
const char *relax_limit_text(const Problem *problem);

#endif
