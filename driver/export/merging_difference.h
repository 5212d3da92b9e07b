/* How far a model with merged branches is from the one that was trained, whose frozen weights were rounded. */
#ifndef DRIVER_EXPORT_MERGING_DIFFERENCE_H
#define DRIVER_EXPORT_MERGING_DIFFERENCE_H

#include "driver/export/merged_weights.h"

/* If the checkpoint's frozen weights were stored in another form than the model's (--frozen-weights), runs the model at
 * `path` once with the merged weights and once with these rounded to that form, over one row of made-up tokens, and
 * prints by how much the outputs differ. Of a model that cannot be run here it prints why not. */
void merging_difference_print(MergedWeights *merged, const char *path, FILE *stream);

#endif
