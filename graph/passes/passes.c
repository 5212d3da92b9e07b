#include "graph/passes/passes.h"

#include <string.h>

#include "base/buffer.h"

static bool remove_dead(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    (void)options, (void)diagnostics;
    graph_remove_dead(graph);
    return true;
}

static bool add_gradients(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    return !options->differentiate || differentiate(graph, diagnostics);
}

const Pass passes[] = {
    {"fold", NULL}, /* what follows every pass; the importer leaves nothing for it */
    {"loss", attach_loss},
    {"unread", remove_dead}, /* a loss reads less than all outputs need, and fusion asks who reads what */
    {"fusion", fuse_composites},
    {"dropout", insert_dropout},
    {"low-rank", insert_low_rank},
    {"prune", prune_unread},
    {"pack", pack_rows},
    {"slice-loss", slice_loss},
    {"layers", assign_layers},
    {"skip-masked", skip_masked},
    {"frozen", store_frozen},
    {"bf16-cuts", round_cuts},
    {"autodiff", add_gradients},
    {"recompute-attention", recompute_attention},
    {"recompute-maps", recompute_maps},
    {"bf16-stash", store_bf16},
    {"recompute-layers", recompute_layers}, /* what was rounded to be stored is rounded again */
    {"updates", append_updates},
    {"unread-gradients", remove_dead},
    {NULL, NULL},
};

const Pass *pass_find(const char *name, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer names = {0};
    for (const Pass *pass = passes; pass->name; pass++) {
        if (strcmp(pass->name, name) == 0) return pass;
        buffer_print(&names, "%s%s", names.size ? ", " : "the passes are ", pass->name);
    }
    usage_error(diagnostics, buffer_text(&names), "there is no pass '%s'", name);
    return NULL;
}

bool pass_run(const Pass *pass, Graph *graph, const PassOptions *options, Folding *folding, Diagnostics *diagnostics)
{
    if (pass->run && !pass->run(graph, options, diagnostics)) return false;
    if (!fold_constants(graph, folding, diagnostics)) return false;
    graph_verify(graph);
    return true;
}

bool passes_run(Graph *graph, const PassOptions *options, const char *last, Folding *folding, Diagnostics *diagnostics)
{
    for (const Pass *pass = passes; pass->name; pass++) {
        if (!pass_run(pass, graph, options, folding, diagnostics)) return false;
        if (last && strcmp(pass->name, last) == 0) break;
    }
    return true;
}
