/* The question that a plan answers, made from the plan: verify and advice ask it again. */
#ifndef PARTITIONER_QUESTION_H
#define PARTITIONER_QUESTION_H

#include "partitioner/problem.h"

/* The costs without the devices that the plan leaves out, with the codecs that its links may use. They share everything
 * else with `asked`; the list of devices is allocated in `arena`. */
Costs question_costs(const Plan *plan, const Costs *asked, Arena *arena);
/* The plan's problem with such costs, or with changed ones: its objective, schedule, micro-batches, recomputation, pins
 * and limit in flight. Pins on devices that the costs lack are left out. False: times are too large to be added. */
bool question_problem(const Plan *plan, const Costs *costs, Watch *watch, Problem *problem);

#endif
