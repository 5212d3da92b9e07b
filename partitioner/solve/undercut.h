/* Classes that others undercut. Devices that are slow at everything are often free of charge and yet never used: a
 * class whose price is not below that of one at least as fast, which can take all its stages, is on no shortest path
 * that needs it, and shortest paths (shortest.c, lanes.c) need not look at it. */
#ifndef PARTITIONER_SOLVE_UNDERCUT_H
#define PARTITIONER_SOLVE_UNDERCUT_H

#include "partitioner/solve/relaxation.h"

/* Fills `order` and `order_row`, in the relaxation's arena. For relaxations with sums, without holes and without splits
 * on devices, whose classes and `low` are settled. */
void undercut_order(Relaxation *relaxation);
/* Fills `active`, which has room for every class: those that none undercuts at these prices (one per class); all where
 * there is no order. */
void undercut_choose(Relaxation *relaxation, const double *price);

#endif
