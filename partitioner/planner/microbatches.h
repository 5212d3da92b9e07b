/* How many micro-batches a step should have, where the user leaves that open.
 *
 * More of them fill the pipeline better and make the batch larger. A step of N takes about a + N p: with N doubled, a
 * second trains 2 T(N) / T(2N) times the rows. The rule: the smallest power of two after which doubling brings less
 * than MICROBATCHES_GAIN, at most MICROBATCHES_MOST. With S equal stages that is about 4.5 S, in the spirit of GPipe's
 * advice to take four times the stages (arXiv 1811.06965, section 3.2). */
#ifndef PARTITIONER_PLANNER_MICROBATCHES_H
#define PARTITIONER_PLANNER_MICROBATCHES_H

#include "partitioner/problem.h"

#define MICROBATCHES_GAIN 0.1
enum { MICROBATCHES_MOST = 256 };

/* What doubling them would bring goes to *gain: -1 where twice as many do not fit. Steps are those of the heuristic
 * allocation, which answers in milliseconds; where that fits nothing, of one that the exact search finds. */
int microbatches_choose(const Problem *problem, double *gain);

/* By the same rule where the form of micro-batches, and so the costs, change with the rows of a step. `rate`: the rows
 * that a nanosecond trains with so many micro-batches; 0: no plan was found. */
typedef double MicrobatchRate(void *context, int microbatches);
int microbatches_choose_by_rate(MicrobatchRate *rate, void *context, double *gain);

#endif
