/* Whether packed rows give what padded ones do: that padding has no influence on the result cannot be seen from the
 * graph. A few short rows of drawn tokens go through the model both ways, with drawn weights, forward only; the loss and
 * every output that has a value per row or token are compared. */
#ifndef DRIVER_COMPILE_PACKED_CHECK_H
#define DRIVER_COMPILE_PACKED_CHECK_H

#include "driver/compile/packed_model.h"

/* `load` as packed_model_prepare leaves it. Small models are interpreted, larger ones compiled for this machine; of
 * those whose parameters would take more than CHECK_MOST_PARAMETERS a warning says that they were not checked. False,
 * after reporting (EXIT_BAD_INPUT), if results differ. */
enum { CHECK_MOST_PARAMETERS = 400000000 };
bool packed_model_check(const ModelOptions *load, const char *path, Diagnostics *diagnostics);

#endif
