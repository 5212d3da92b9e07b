#include "driver/training_model.h"

#include "graph/attention.h"
#include "graph/dropout.h"
#include "graph/fusion.h"
#include "graph/layers.h"
#include "graph/loss.h"
#include "graph/prune.h"
#include "graph/sharing.h"

bool training_model_load(TrainingModel *model, const char *path, const ModelOptions *options, Diagnostics *diagnostics)
{
    *model = (TrainingModel){0};
    Graph *graph = &model->graph;
    graph_init(graph, path);
    if (!optimizer_parse(&model->optimizer, options->optimizer ? options->optimizer : "adamw", diagnostics))
        return false;
    if (!import_onnx(graph, &model->imported, path, &options->import, diagnostics)) return false;
    graph_verify(graph);
    if (!options->import.untie) warn_of_untied_decoders(graph, diagnostics);

    graph->bf16_products = options->bf16;
    bool differentiates = options->differentiate || options->train;
    if ((options->want_loss || differentiates) && !loss_attach(graph, options->loss, diagnostics)) return false;
    graph_remove_dead(graph);
    fuse_composites(graph, diagnostics);
    if (options->import.dropout_given && options->import.dropout > 0 &&
        !dropout_insert(graph, options->import.dropout, diagnostics))
        return false;
    if (!options->no_pruning) prune_unread(graph, diagnostics);
    layers_assign(graph, diagnostics);
    graph_verify(graph);
    if (differentiates) {
        if (!differentiate(graph, diagnostics) || !attention_recompute(graph, diagnostics)) return false;
        if (options->train && !optimizer_attach(graph, &model->optimizer, diagnostics)) return false;
        graph_remove_dead(graph);
        graph_verify(graph);
    }
    return true;
}

void training_model_free(TrainingModel *model)
{
    graph_free(&model->graph);
    imported_model_free(&model->imported);
}
