/* Checks that packed rows give the same results as padded ones, because a graph does not show whether padding matters.
 * A few short rows of random tokens go forward through the model both ways, with random weights. The loss and every
 * output with a value per row or token are compared. */
#ifndef DRIVER_COMPILE_PACKED_CHECK_H
#define DRIVER_COMPILE_PACKED_CHECK_H

#include "driver/compile/packed_model.h"

/* Interprets small models and compiles larger ones for this machine. Warns of models with more than
 * CHECK_MOST_PARAMETERS, which are not checked. False, after reporting (EXIT_BAD_INPUT), if results differ. */
enum { CHECK_MOST_PARAMETERS = 400000000 };
bool packed_model_check(const ModelOptions *load, const char *path, Diagnostics *diagnostics);

#endif
