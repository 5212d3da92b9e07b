/* Members of costs.json that are numbers alone, for whatever goes over all of them. */
#ifndef PROFILER_COSTS_COSTS_MEMBERS_H
#define PROFILER_COSTS_COSTS_MEMBERS_H

#include <stddef.h>

#include "profiler/costs/costs.h"

typedef enum CostPresence {
    COST_REQUIRED,
    COST_WRITTEN,  /* always, but need not be there */
    COST_NOT_ZERO, /* written where it is not 0 */
    COST_WHOLE,    /* of a layer whose memory is one number; */
    COST_PART      /* of any other layer */
} CostPresence;

typedef struct CostMember {
    const char *key;
    size_t offset; /* of a double or an int64_t */
    bool is_bytes;
    CostPresence presence;
} CostMember;

/* Of LayerCost, in the order of the file; and the double arrays of DeviceCost. Both end with a key that is NULL. */
extern const CostMember layer_members[], device_times[];

static inline double *layer_seconds(const CostMember *member, const LayerCost *layer)
{
    return (double *)((char *)layer + member->offset);
}

static inline int64_t *layer_bytes(const CostMember *member, const LayerCost *layer)
{
    return (int64_t *)((char *)layer + member->offset);
}

static inline double **own_times(const CostMember *member, const DeviceCost *device)
{
    return (double **)((char *)device + member->offset);
}

#endif
