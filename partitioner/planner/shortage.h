/* When nothing fits: what is the least that would? */
#ifndef PARTITIONER_PLANNER_SHORTAGE_H
#define PARTITIONER_PLANNER_SHORTAGE_H

#include "partitioner/problem.h"

/* Reports (EXIT_NO_PLAN) that nothing fits, with the smallest additional memory on one device and the smallest number
 * of additional equal devices that would make a plan possible, whichever devices those are. What is named is enough; is
 * it not proven to be the least by the deadline (on the problem's watch; 0: none), the message says so. `keeper`: the
 * device that has the first stage and the last; -1: none. Always returns false. */
bool shortage_report(const Problem *problem, int keeper, double deadline, Diagnostics *diagnostics);

#endif
