/* --pin LAYERS=DEVICE: the layers that a text names. */
#ifndef DRIVER_COMPILE_PINS_H
#define DRIVER_COMPILE_PINS_H

#include "partitioner/plan.h"
#include "profiler/costs/costs.h"

/* One pin per text, in the arena; device names point into the texts. NULL after reporting all texts that are
 * malformed or name no layer (EXIT_USAGE). */
const PlanPin *pins_read(const char *const *texts, int count, const Costs *costs, Arena *arena,
                         Diagnostics *diagnostics);

#endif
