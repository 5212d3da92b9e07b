#include "driver/compile/plan_codecs.h"

#include <stdlib.h>
#include <string.h>

#include "graph/passes/code_cuts.h"

bool plan_codecs_apply(TrainingModel *model, const Plan *plan, const char *path, Diagnostics *diagnostics)
{
    char hash[33];
    hash_format(model->imported.onnx.hash, hash);
    if (plan->layer_count != model->graph.layer_count || (plan->model_hash[0] && strcmp(plan->model_hash, hash) != 0))
        return input_error(diagnostics, path, "make a plan of this model with the same options",
                           "the plan is for another model than '%s', or for %d layers instead of %d", model->graph.file,
                           plan->layer_count, model->graph.layer_count);
    FREED CutCodec *cuts = memory_allocate((size_t)(plan->link_count + 1) * sizeof *cuts);
    int count = 0;
    for (int k = 0; k < plan->link_count; k++) {
        const PlanLink *link = &plan->links[k];
        if (plan_link_is_coded(link))
            cuts[count++] = (CutCodec){plan->stages[link->to].first_layer, {link->codecs[0], link->codecs[1]}};
    }
    if (count) cuts_code(&model->graph, cuts, count);
    return true;
}
