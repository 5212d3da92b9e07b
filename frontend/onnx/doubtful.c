/* TorchScript's exporter says neither which tensors are buffers, which no optimiser updates, nor what it folded. Uses
 * say most of it, and names the rest. What neither of them says is trained, and a warning names it. */
#include <string.h>

#include "base/buffer.h"
#include "base/parts.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/initializer_uses.h"

bool named_by_module(const Importer *importer, const char *name)
{
    bool made = strchr(name, '/') || strchr(name, ':') || strstr(name, "onstant") || !name[strspn(name, "0123456789")];
    return !made && (strchr(name, '.') || importer->model->torchscript);
}

bool computed_by_torchscript(const Importer *importer, const char *name)
{
    return importer->model->torchscript && strncmp(name, "onnx::", 6) == 0;
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

/* Whether the initializer enters the product of a layer, whose module contains no others. TorchScript's exporter keeps
 * the names of weights for other operators than MatMul, unless it computes them. */
static bool is_in_layer(Importer *importer, const ImportedParameter *parameter)
{
    const char *name = importer->proto->initializer[parameter->initializer]->name;
    const InitializerUse *reader = &importer->readers[*string_map_find(&importer->names, name)];
    if (reader->input == OUTPUT_USE) return false;
    const char *node = importer->nodes[reader->node].name, *end = strrchr(node, '/');
    bool computed = strncmp(name, "onnx::", 6) == 0 && strncmp(name, "onnx::MatMul_", 13) != 0;
    return !computed && end && end > node && !has_submodules(importer, node, (size_t)(end - node));
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
    bool weight = matches_any(weights, last);
    if (choice->mask && named && weight)
        *choice = (TrainedChoice){.trained = true, .unsure = true, .why = "is called as weights are, but holds a mask"};
    if (choice->mask && !named && choice->matrix && is_in_layer(importer, parameter))
        *choice = (TrainedChoice){.trained = true, .unsure = true, .why = "is the matrix of a layer, but holds a mask"};
    if (!choice->trained) {
        choice->unsure |= named && !matches_any(buffers, last);
        choice->by_numbers &= !named;
        return false;
    }
    return !choice->unsure && (named ? !weight : !choice->matrix || !is_in_layer(importer, parameter));
}

/* Writes the first names of doubtful parameters; returns how many there are. */
static size_t name_doubtful(const Importer *importer, bool trained, Buffer *names)
{
    enum { MOST_NAMED = 8 };
    size_t count = 0;
    for (size_t i = 0; i < importer->model->parameter_count; i++) {
        const ImportedParameter *parameter = &importer->model->parameters[i];
        if (!parameter->doubtful || parameter->trained != trained || ++count > MOST_NAMED) continue;
        buffer_print(names, "%s'%s'", count > 1 ? ", " : "", parameter->name);
        if (!trained) buffer_print(names, " (%s)", parameter->why);
    }
    if (count > MOST_NAMED) buffer_print(names, " and %zu more", count - MOST_NAMED);
    return count;
}

void tell_doubtful(const Importer *importer)
{
    FREED_WITH(buffer_free) Buffer trained = {0}, fixed = {0};
    if (name_doubtful(importer, true, &trained))
        diagnostics_warning(
            importer->diagnostics, PLACE_FILE(importer->graph->file),
            "give --freeze NAME for a buffer, or export the model with dynamo=True, which says what it is",
            "skycc trains what may be a buffer, or computed of other weights: the TorchScript exporter "
            "does not say of %s",
            buffer_text(&trained));
    if (name_doubtful(importer, false, &fixed))
        diagnostics_warning(importer->diagnostics, PLACE_FILE(importer->graph->file),
                            "give --train NAME for a parameter that only starts with such numbers",
                            "skycc does not train tensors whose numbers are those of a buffer: %s",
                            buffer_text(&fixed));
}
