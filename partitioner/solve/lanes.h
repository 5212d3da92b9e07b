/* The cheapest stages that end at a cut, of eight classes at a time: the inner loop of shortest paths where stages cost
 * their time (sums) and there are many classes. */
#ifndef PARTITIONER_SOLVE_LANES_H
#define PARTITIONER_SOLVE_LANES_H

#include "partitioner/solve/relaxation.h"

/* For relaxations with sums whose classes, low and high are settled: NULL where windows are so long on average, or
 * classes so few, that queues (shortest.c) are faster, and where memory depends on the stages that follow. */
Lanes *lanes_create(const Relaxation *relaxation, Arena *arena);
/* To be called when the relaxation's active classes are known, and before lanes_solve. */
void lanes_choose(Lanes *lanes, const Relaxation *relaxation);
/* `least` [class], for active classes: the least of potential before the stage plus its time, over the starts in the
 * class's window; infinite, or nearly so, where there is none. Returns how many groups of eight stages it looked at. */
int64_t lanes_solve(Lanes *lanes, const Relaxation *relaxation, int end, double *least);

#endif
