/* How good predictions for labelled rows are, in the metrics of training (runtime/train/metrics.h). */
#ifndef DRIVER_PREDICT_SCORES_H
#define DRIVER_PREDICT_SCORES_H

#include "base/buffer.h"
#include "driver/predict/predictions.h"

/* Runs the model over all rows, which come from a data set with labels, and appends what was measured: lines for a
 * person to `text`, the same as an object with precision and recall per class to `json`. */
bool scores_measure(Predictions *predictions, Buffer *text, Buffer *json, Diagnostics *diagnostics);

#endif
