#include "graph/passes/passes.h"

#include <string.h>

#include "base/buffer.h"
#include "graph/passes/fusion.h"
#include "graph/passes/insert_dropout.h"
#include "graph/passes/layers.h"
#include "graph/passes/loss.h"
#include "graph/passes/pack_rows.h"
#include "graph/passes/prune.h"
#include "graph/passes/recompute_attention.h"

static bool attach_loss(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    return !options->want_loss || loss_attach(graph, options->loss, diagnostics);
}

static bool remove_dead(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    (void)options, (void)diagnostics;
    graph_remove_dead(graph);
    return true;
}

static bool fuse(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    (void)options;
    fuse_composites(graph, diagnostics);
    return true;
}

static bool insert_dropout(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    return options->dropout <= 0 || dropout_insert(graph, options->dropout, diagnostics);
}

static bool insert_low_rank(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    return !options->low_rank || low_rank_insert(graph, options->low_rank, diagnostics);
}

static bool prune(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    if (!options->no_pruning) prune_unread(graph, diagnostics);
    return true;
}

static bool pack_rows(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    return !options->packing.slots || rows_pack(graph, &options->packing, diagnostics);
}

static bool assign_layers(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    (void)options;
    layers_assign(graph, diagnostics);
    return true;
}

static bool add_gradients(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    return !options->differentiate || differentiate(graph, diagnostics);
}

static bool recompute_attention(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    return !options->differentiate || attention_recompute(graph, diagnostics);
}

static bool append_updates(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    return !options->optimizer || optimizer_attach(graph, options->optimizer, diagnostics);
}

const Pass passes[] = {
    {"fold", NULL}, /* what follows every pass; the importer leaves nothing for it */
    {"loss", attach_loss},
    {"unread", remove_dead}, /* a loss reads less than all outputs need, and fusion asks who reads what */
    {"fusion", fuse},
    {"dropout", insert_dropout},
    {"low-rank", insert_low_rank},
    {"prune", prune},
    {"pack", pack_rows},
    {"layers", assign_layers},
    {"autodiff", add_gradients},
    {"recompute-attention", recompute_attention},
    {"updates", append_updates},
    {"unread-gradients", remove_dead},
    {NULL, NULL},
};

const Pass *pass_find(const char *name, Diagnostics *diagnostics)
{
    Buffer names = {0};
    for (const Pass *pass = passes; pass->name; pass++) {
        if (strcmp(pass->name, name) == 0) return buffer_free(&names), pass;
        buffer_print(&names, "%s%s", names.size ? ", " : "the passes are ", pass->name);
    }
    diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, buffer_text(&names), "there is no pass '%s'", name);
    buffer_free(&names);
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
