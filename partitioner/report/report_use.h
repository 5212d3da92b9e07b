/* What a plan makes of the devices: how much of their speed it uses, why the others are idle, and a time that no way to
 * divide the work of a step beats. */
#ifndef PARTITIONER_REPORT_REPORT_USE_H
#define PARTITIONER_REPORT_REPORT_USE_H

#include "partitioner/plan.h"

typedef struct ReportUse {
    Arena arena;
    double speed;         /* of the devices in use, as a share of all that the plan may use */
    int64_t bound_ns;     /* 0: not known */
    int64_t computing_ns; /* the bound if layers could be divided, and pipelines were full at once */
    const char **reason;  /* [device of the costs] why it is idle; NULL: it is in use */
} ReportUse;

/* The plan must have stages. Free it. */
void report_use_create(ReportUse *result, const Plan *plan, const Costs *asked);
void report_use_free(ReportUse *use);

#endif
