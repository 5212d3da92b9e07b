/* What `skycc check` does to a model, for tests of what it refuses. */
#ifndef TESTS_FRONTEND_ONNX_IMPORT_CHECK_H
#define TESTS_FRONTEND_ONNX_IMPORT_CHECK_H

#include "frontend/onnx/import.h"
#include "graph/passes/passes.h"
#include "tests/common/scratch.h"

/* The exit code; *report, if wanted, is what would be printed: free it. */
static inline int check_model(const char *path, char **report)
{
    Graph graph;
    ImportedModel model;
    Diagnostics diagnostics = {0};
    graph_init(&graph, path);
    ImportOptions options = {.default_dimension = 8};
    if (import_onnx(&graph, &model, path, &options, &diagnostics)) {
        graph_verify(&graph);
        graph_remove_dead(&graph);
        fuse_composites(&graph, &(PassOptions){0}, &diagnostics);
        assign_layers(&graph, &(PassOptions){0}, &diagnostics);
        graph_verify(&graph);
    }
    int code = diagnostics.exit_code;
    if (report) *report = diagnostics_text(&diagnostics);
    graph_free(&graph);
    imported_model_free(&model);
    diagnostics_free(&diagnostics);
    return code;
}

#endif
