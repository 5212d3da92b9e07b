/* If: both branches become nodes of the graph that are imported only where the condition, a constant by then, chooses
 * them. Internal to the importer. */
#ifndef FRONTEND_ONNX_BRANCHES_H
#define FRONTEND_ONNX_BRANCHES_H

#include "frontend/onnx/importer.h"

/* Replaces every If among the importer's nodes: the nodes of its branches stand before it, under names of their own and
 * with the condition that they need, and the If reads its condition, then the results of both branches. False after
 * reporting branches that are none, or too many. */
bool expand_branches(Importer *importer);

#endif
