#include <stdlib.h>
#include <string.h>

#include "frontend/normalize.h"
#include "frontend/ties.h"

/* How one initializer is used. */
typedef struct Initializer {
    const char *name;
    uint32_t symbol;
    OnnxTensor tensor;
    bool trained;
    bool used_directly;   /* by a node that is no Identity, or as an output */
    uint32_t *identities; /* Identity nodes that pass it on, in the order of the file */
    size_t identity_count, identity_capacity;
} Initializer;

static Place initializer_place(const Importer *importer, const char *name, char text[static 512])
{
    snprintf(text, 512, "initializer '%.400s'", name);
    return (Place){.file = importer->graph->file, .object = text};
}

static bool read_initializer(Importer *importer, size_t index, Initializer *initializer)
{
    const Onnx__TensorProto *proto = importer->proto->initializer[index];
    initializer->name = proto->name;
    initializer->symbol = *string_map_find(&importer->names, proto->name);
    char place[512];
    initializer_place(importer, proto->name, place);
    OnnxModel *model = &importer->model->onnx;
    if (!onnx_tensor_elements(model, proto, &model->weights[index], place, &initializer->tensor, importer->diagnostics))
        return false;
    const Symbol *symbol = &importer->symbols[initializer->symbol];
    const OnnxTensor *tensor = &initializer->tensor;
    initializer->trained = symbol->trained && dtype_is_float(tensor->dtype) && tensor->shape.rank >= 1;
    if (initializer->trained || tensor->data || !tensor->bytes || !symbol->needed) return true;
    return diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT, initializer_place(importer, proto->name, place),
                             NULL, "is not a parameter, so its external data cannot be missing");
}

static void find_uses(Importer *importer, Initializer *initializers)
{
    for (size_t n = 0; n < importer->node_count; n++) {
        const SourceNode *node = &importer->nodes[n];
        if (!node->needed) continue;
        for (size_t i = 0; i < node->proto->n_input; i++) {
            const Symbol *symbol = &importer->symbols[node->inputs[i]];
            if (symbol->kind != SYMBOL_INITIALIZER) continue;
            Initializer *initializer = &initializers[symbol->index];
            if (node->rule->apply == normalize_alias && node->proto->n_output == 1 && node->number)
                array_push(initializer->identities, initializer->identity_count, initializer->identity_capacity,
                           (uint32_t)n);
            else
                initializer->used_directly = true;
        }
    }
    for (size_t i = 0; i < importer->proto->n_output; i++) {
        const Symbol *symbol = &importer->symbols[*string_map_find(&importer->names, importer->proto->output[i]->name)];
        if (symbol->kind == SYMBOL_INITIALIZER) initializers[symbol->index].used_directly = true;
    }
}

static ValueId add_parameter(Importer *importer, const Initializer *initializer, ImportedParameter parameter)
{
    ImportedModel *model = importer->model;
    const OnnxTensor *tensor = &initializer->tensor;
    parameter.name = arena_string(&model->arena, parameter.name);
    parameter.initializer = importer->symbols[initializer->symbol].index;
    parameter.file = tensor->file;
    parameter.offset = tensor->offset;
    parameter.bytes = tensor->bytes;
    if (!parameter.value)
        parameter.value =
            graph_add_parameter(importer->graph, parameter.name, tensor->dtype, &tensor->shape, tensor->data);
    array_push(model->parameters, model->parameter_count, model->parameter_capacity, parameter);
    return parameter.value;
}

/* Exporters merge initializers that hold the same bytes and pass them on through Identity nodes. Of freshly initialised
 * models that ties together what is not tied: all biases are zero, all gains one. */
static void split_initializer(Importer *importer, const Initializer *initializer)
{
    int number = 0;
    size_t first_identity = 0;
    Symbol *symbol = &importer->symbols[initializer->symbol];
    if (initializer->used_directly)
        symbol->value = add_parameter(importer, initializer, (ImportedParameter){.name = initializer->name});
    for (size_t i = first_identity; i < initializer->identity_count; i++) {
        uint32_t node = initializer->identities[i];
        ImportedParameter parameter = {.name = initializer->name};
        if (i > 0 || initializer->used_directly) {
            do parameter.name = arena_format(&importer->arena, "%s#%d", initializer->name, ++number);
            while (string_map_find(&importer->names, parameter.name));
            parameter.split = number;
            parameter.identity = importer->nodes[node].number;
        }
        ValueId value = add_parameter(importer, initializer, parameter);
        Symbol *passed_on = &importer->symbols[importer->nodes[node].outputs[0]];
        passed_on->value = value;
        graph_value(importer->graph, value)->use = arena_string(&importer->graph->arena, passed_on->name);
        if (!symbol->value) symbol->value = value;
    }
    char place[512];
    diagnostics_warning(importer->diagnostics, initializer_place(importer, initializer->name, place),
                        "give --keep-ties to train them as one",
                        "was merged by the exporter: its %zu uses are separate parameters, '%s' to '%s#%d'",
                        initializer->identity_count + initializer->used_directly, initializer->name, initializer->name,
                        number);
}

static bool is_split(const Importer *importer, const Initializer *initializer)
{
    if (!initializer->trained || initializer->identity_count + initializer->used_directly < 2) return false;
    if (importer->options->untie) return true;
    return !importer->options->keep_ties && initializer->tensor.data && tensor_is_constant(&initializer->tensor);
}

static bool add_tied(Importer *importer, const Initializer *initializer, const Initializer *with, TieKind kind)
{
    ValueId value = importer->symbols[with->symbol].value;
    Symbol *symbol = &importer->symbols[initializer->symbol];
    bool transposed = kind == TIE_TRANSPOSED;
    add_parameter(
        importer, initializer,
        (ImportedParameter){.name = initializer->name, .value = value, .tied = true, .transposed = transposed});
    char place[512];
    diagnostics_warning(importer->diagnostics, initializer_place(importer, initializer->name, place),
                        "give --untie to train them apart", "holds the same numbers as '%s'%s: both are one parameter",
                        with->name, transposed ? ", transposed" : "");
    symbol->value = value;
    if (!transposed) return true;
    Attribute perm = attribute_integers("perm", (int64_t[]){1, 0}, 2);
    NodeOrigin origin = {.name = initializer->name, .phase = PHASE_FORWARD, .layer = LAYER_NONE};
    return graph_add_node(importer->graph, OP_Transpose, origin, &value, 1, &perm, 1, &symbol->value, 1,
                          importer->diagnostics) != 0;
}

static bool add_values(Importer *importer, const Initializer *initializers, const Tie *ties, size_t count)
{
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        const Initializer *initializer = &initializers[i];
        const OnnxTensor *tensor = &initializer->tensor;
        Symbol *symbol = &importer->symbols[initializer->symbol];
        if (!symbol->needed) continue;
        if (ties[i].kind != TIE_NONE)
            ok = add_tied(importer, initializer, &initializers[ties[i].with], ties[i].kind) && ok;
        else if (is_split(importer, initializer))
            split_initializer(importer, initializer);
        else if (initializer->trained)
            symbol->value = add_parameter(importer, initializer, (ImportedParameter){.name = initializer->name});
        else
            symbol->value =
                graph_add_constant(importer->graph, initializer->name, tensor->dtype, &tensor->shape, tensor->data);
    }
    return ok;
}

bool import_initializers(Importer *importer)
{
    size_t count = importer->proto->n_initializer;
    Initializer *initializers = arena_new_array(&importer->arena, Initializer, count);
    const OnnxTensor **comparable = arena_new_array(&importer->arena, const OnnxTensor *, count);
    Tie *ties = arena_new_array(&importer->arena, Tie, count);
    bool ok = true;
    for (size_t i = 0; i < count; i++) ok = read_initializer(importer, i, &initializers[i]) && ok;
    if (ok) {
        find_uses(importer, initializers);
        for (size_t i = 0; i < count && !importer->options->untie; i++) {
            const OnnxTensor *tensor = &initializers[i].tensor;
            if (initializers[i].trained && tensor->data && !tensor_is_constant(tensor)) comparable[i] = tensor;
        }
        find_ties(comparable, count, ties);
        ok = add_values(importer, initializers, ties, count);
    }
    for (size_t i = 0; i < count; i++) free(initializers[i].identities);
    return ok;
}
