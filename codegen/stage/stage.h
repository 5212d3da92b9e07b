/* Stages: a run of layers of the training graph becomes lists of kernel calls over laid-out memory. */
#ifndef CODEGEN_STAGE_STAGE_H
#define CODEGEN_STAGE_STAGE_H

#include "codegen/stage/stage_code.h"
#include "codegen/stage/stage_index.h"

/* Builds the stage of layers first_layer ... last_layer (inclusive). Index and slot_count are the caller's to fill.
 * Without differentiation there are only forward calls. */
void stage_build_as(StageCode *code, Graph *graph, int first_layer, int last_layer, StageForm form);
void stage_build(StageCode *code, Graph *graph, int first_layer, int last_layer); /* STAGE_PLAIN */

/* For those who build many stages of a graph: the index is found once. */
void stage_build_indexed(StageCode *code, const StageIndex *index, int first_layer, int last_layer, StageForm form);

#endif
