/* If: both branches become nodes of the graph; only those that the constant condition chooses are imported. Internal to
 * the importer. */
#ifndef FRONTEND_ONNX_BRANCHES_H
#define FRONTEND_ONNX_BRANCHES_H

#include "frontend/onnx/importer.h"

/* Puts the nodes of both branches before every If, with unique names and the condition that they need. The If then
 * reads its condition and the results of both branches. False after reporting malformed branches or too many nodes. */
bool expand_branches(Importer *importer);

#endif
