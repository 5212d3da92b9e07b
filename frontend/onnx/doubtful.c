/* TorchScript's exporter says neither which tensors are buffers, which no optimiser updates, nor what it folded. Uses
 * say most of it, and names the rest. What neither of them says is trained, and a warning names it. */
#include <string.h>

#include "base/buffer.h"
#include "base/parts.h"
#include "frontend/onnx/importer.h"

bool named_by_module(const Importer *importer, const char *name)
{
    bool made = strchr(name, '/') || strchr(name, ':') || strstr(name, "onstant") || !name[strspn(name, "0123456789")];
    return !made && (strchr(name, '.') || importer->model->torchscript);
}

/* The name's last component, without the number of a split. */
static const char *last_component(Arena *arena, const char *name)
{
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    return arena_string_n(arena, last, strcspn(last, "#"));
}

static bool matches_any(const char *const *patterns, const char *name)
{
    while (*patterns && !pattern_matches(*patterns, name)) patterns++;
    return *patterns != NULL;
}

/* Whether the initializer enters the product of a layer, whose module contains no others. */
static bool is_of_layer(Importer *importer, const char *name)
{
    for (size_t n = 0; n < importer->node_count; n++) {
        const SourceNode *node = &importer->nodes[n];
        bool reads = false;
        for (size_t i = 0; i < node->proto->n_input; i++) reads |= strcmp(node->proto->input[i], name) == 0;
        const char *end = reads ? strrchr(node->name, '/') : NULL;
        if (!reads) continue;
        if (!end || end == node->name) return false;
        size_t length = (size_t)(end - node->name) + 1;
        for (size_t k = 0; k < importer->node_count; k++)
            if (strncmp(importer->nodes[k].name, node->name, length) == 0 &&
                strchr(importer->nodes[k].name + length, '/'))
                return false;
        return true;
    }
    return false;
}

bool judge_by_name(Importer *importer, const ImportedParameter *parameter, TrainedChoice *choice)
{
    static const char *const weights[] = {"*weight", "*bias", "gamma", "beta", "*embeddings", "*token", NULL},
                             *const buffers[] = {"*mask",      "*freq*",      "freqs*",
                                                 "*alibi*",    "slopes",      "running_*",
                                                 "cos",        "sin",         "cos_*",
                                                 "sin_*",      "*_cos",       "*_sin",
                                                 "*buffer*",   "*cache*",     "class_weight*",
                                                 "pos_weight", "masked_bias", "final_logits_bias",
                                                 NULL};
    if (!importer->model->torchscript || choice->unsure || parameter->tied || parameter->one_plus) return false;
    const char *last = last_component(&importer->arena, parameter->name);
    bool named = named_by_module(importer, parameter->name);
    if (choice->trained && named && matches_any(buffers, last))
        *choice = (TrainedChoice){.unsure = true, .why = "is called as buffers are"};
    if (!choice->trained) {
        choice->unsure |= named && !matches_any(buffers, last);
        return false;
    }
    return named
               ? !matches_any(weights, last)
               : !choice->matrix || !is_of_layer(importer, importer->proto->initializer[parameter->initializer]->name);
}

void tell_doubtful(const Importer *importer, const ImportedParameter *const *doubtful, size_t count)
{
    enum { MOST_NAMED = 8 };
    Buffer names = {0};
    for (size_t i = 0; i < count && i < MOST_NAMED; i++)
        buffer_print(&names, "%s'%s'", i ? ", " : "", doubtful[i]->name);
    if (count > MOST_NAMED) buffer_print(&names, " and %zu more", count - MOST_NAMED);
    if (count)
        diagnostics_warning(
            importer->diagnostics, PLACE_FILE(importer->graph->file),
            "give --freeze NAME for a buffer, or export the model with dynamo=True, which says what it is",
            "skycc trains what may be a buffer, or computed of other weights: the TorchScript exporter "
            "does not say of %s",
            buffer_text(&names));
    buffer_free(&names);
}
