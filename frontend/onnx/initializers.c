#include <stdlib.h>
#include <string.h>

#include "base/parts.h"
#include "frontend/onnx/copies.h"
#include "frontend/onnx/initializer_uses.h"
#include "frontend/onnx/model.h"
#include "frontend/onnx/normalize.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/ties.h"

typedef struct Initializer {
    const char *name;
    uint32_t symbol;
    OnnxTensor tensor;
    bool trained; /* may be trained, by its type and its uses; trained.c decides */
    InitializerUses uses;
    const ParameterCopies *copies; /* the tensor has one of each; NULL: none */
    bool one_plus;                 /* the tensor has what the file's exceeds 1 by */
    ValueId parameter;             /* 0: not made yet */
} Initializer;

static Place initializer_place(const Importer *importer, const char *name, char text[static 512])
{
    snprintf(text, 512, "initializer '%.400s'", name);
    return (Place){.file = importer->graph->file, .object = text};
}

/* Whether an option asks to train a single number, which is not a parameter otherwise. */
static bool wanted(const ImportOptions *options, const char *name)
{
    for (size_t r = options->rule_count; r-- > 0;)
        if (pattern_matches(options->rules[r].glob, name)) return options->rules[r].train;
    return false;
}

/* A single number that the exporter computed of parameters, which the file no longer has. */
static bool is_computed(Importer *importer, const char *name, const char *sources)
{
    const char *parameter;
    return sources && fold_kind(importer, name, sources, &parameter) == FOLD_COMPUTES;
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
    widen_tensor(importer, &initializer->tensor);
    const Symbol *symbol = &importer->symbols[initializer->symbol];
    const OnnxTensor *tensor = &initializer->tensor;
    bool named = (importer->model->torchscript && named_by_module(importer, initializer->name)) ||
                 computed_by_torchscript(importer, initializer->name);
    bool own = (tensor->shape.rank > 0 || symbol->parameter || named ||
                is_computed(importer, initializer->name, symbol->folded_from)) &&
               !symbol->buffer;
    initializer->trained =
        symbol->trained && dtype_is_float(tensor->dtype) && (own || wanted(importer->options, proto->name));
    if (initializer->trained || tensor->data || !tensor->bytes || !symbol->needed) return true;
    return diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT, initializer_place(importer, proto->name, place),
                             NULL, "is not a parameter, so its external data cannot be missing");
}

/* A name for the value by its use, if that says more than its own name. */
static void set_use_name(Importer *importer, ImportedParameter *parameter, const InitializerUse *use)
{
    const char *name = initializer_use_name(importer, use);
    if (!name || strcmp(name, parameter->name) == 0) return;
    parameter->alias = arena_string(&importer->model->arena, name);
    graph_value(importer->graph, parameter->value)->use = arena_string(&importer->graph->arena, name);
}

/* What the initializer holds, of the parameter that has one of each of its vectors. */
static ValueId add_copies(Importer *importer, const char *name, const ParameterCopies *copies, ValueId parameter)
{
    Graph *graph = importer->graph;
    Shape shape = copies->shape, others = {.rank = shape.rank - 1};
    NodeOrigin origin = {.name = arena_string(&graph->arena, name), .phase = PHASE_FORWARD, .layer = LAYER_NONE};
    ValueId inputs[2] = {parameter}, value = 0;
    Attribute attribute = attribute_integers("shape", shape.dim, shape.rank);
    if (copies->expands) {
        graph_add_node(graph, OP_Expand, origin, inputs, 1, &attribute, 1, &value, 1, importer->diagnostics);
        return value;
    }
    int64_t perm[MAX_RANK];
    for (int i = 0, k = 0; i < shape.rank; i++) {
        perm[i] = i == copies->axis ? shape.rank - 1 : k;
        if (i != copies->axis) others.dim[k++] = shape.dim[i];
    }
    inputs[1] =
        graph_add_constant(graph, arena_format(&graph->arena, "%s.rows", name), DTYPE_I64, &others, copies->index);
    attribute = attribute_integer("axis", 0);
    if (!graph_add_node(graph, OP_Gather, origin, inputs, 2, &attribute, 1, &value, 1, importer->diagnostics) ||
        copies->axis == shape.rank - 1)
        return value;
    attribute = attribute_integers("perm", perm, shape.rank);
    ValueId turned = 0;
    graph_add_node(graph, OP_Transpose, origin, &value, 1, &attribute, 1, &turned, 1, importer->diagnostics);
    return turned;
}

static ValueId add_one(Importer *importer, const char *name, ValueId parameter)
{
    Graph *graph = importer->graph;
    DType dtype = graph_value(graph, parameter)->dtype;
    void *one = arena_allocate(&graph->arena, dtype_size(dtype));
    element_store_double(dtype, one, 0, 1);
    Shape shape = {0};
    NodeOrigin origin = {.name = arena_string(&graph->arena, name), .phase = PHASE_FORWARD, .layer = LAYER_NONE};
    ValueId value = 0,
            number = graph_add_constant(graph, arena_format(&graph->arena, "%s.one", name), dtype, &shape, one);
    graph_add_node(graph, OP_Add, origin, (ValueId[]){parameter, number}, 2, NULL, 0, &value, 1, importer->diagnostics);
    return value;
}

/* Returns what nodes read of it. */
static ValueId add_parameter(Importer *importer, const Initializer *initializer, ImportedParameter parameter,
                             const InitializerUse *use)
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
    if (use) set_use_name(importer, &parameter, use);
    parameter.copies = initializer->copies;
    parameter.one_plus = initializer->one_plus;
    array_push(model->parameters, model->parameter_count, model->parameter_capacity, parameter);
    if (parameter.one_plus) return add_one(importer, parameter.name, parameter.value);
    return parameter.copies ? add_copies(importer, parameter.name, parameter.copies, parameter.value) : parameter.value;
}

/* Gives a use other than the first its own name and symbol, which the node reads from now on. */
static uint32_t split_symbol(Importer *importer, const Initializer *initializer, size_t number)
{
    const char *name = arena_format(&importer->arena, "%s#%zu", initializer->name, number);
    while (string_map_find(&importer->names, name)) name = arena_format(&importer->arena, "%s'", name);
    Symbol symbol = importer->symbols[initializer->symbol];
    symbol.name = name;
    array_push(importer->symbols, importer->symbol_count, importer->symbol_capacity, symbol);
    return (uint32_t)importer->symbol_count - 1;
}

/* Whether its uses, but for those of constants, are parameters of their own. */
static bool is_apart(Importer *importer, const Initializer *initializer)
{
    const InitializerUse *other;
    return tensor_is_constant(&initializer->tensor) ||
           uses_sharing(importer, initializer->name, &initializer->uses, &other) == USES_APART;
}

/* Exporters merge initializers that hold the same bytes. In a freshly initialised model this merges separate
 * parameters: all biases are 0, all gains 1. Uses are numbered in order, direct uses of one parameter
 * (initializer_uses.h) as one, so that names do not depend on options. */
static void split_initializer(Importer *importer, const Initializer *initializer)
{
    const InitializerUses *uses = &initializer->uses;
    bool apart = importer->options->untie || (!importer->options->keep_ties && is_apart(importer, initializer));
    uint32_t *symbols = arena_new_array(&importer->arena, uint32_t, uses->count);
    for (size_t i = 0; i < uses->count; i++) {
        const InitializerUse *use = &uses->items[i];
        size_t leader = importer->options->untie && use->input != OUTPUT_USE ? i : use->leader;
        if (!apart && !use->constant) leader = 0;
        ImportedParameter parameter = {
            .name = initializer->name, .split = (int)i, .merged = true, .constant = use->constant};
        symbols[i] = leader < i ? symbols[leader]
                     : i == 0   ? initializer->symbol
                                : split_symbol(importer, initializer, i);
        if (use->input != OUTPUT_USE) {
            const SourceNode *node = &importer->nodes[use->node];
            node->inputs[use->input] = symbols[i];
            parameter.node = node->number;
            parameter.input = (size_t)use->input;
        }
        Symbol *symbol = &importer->symbols[symbols[i]];
        if (leader < i) continue;
        parameter.name = symbol->name;
        parameter.leader = arena_string(&importer->model->arena, importer->symbols[symbols[use->leader]].name);
        symbol->value = add_parameter(importer, initializer, parameter, use);
    }
}

static bool is_split(Importer *importer, const Initializer *initializer)
{
    const InitializerUses *uses = &initializer->uses;
    bool several = uses->count > 1 && importer->options->untie;
    for (size_t i = 1; i < uses->count; i++) several |= uses->items[i].leader == i;
    if (!initializer->trained || !several) return false;
    if (importer->options->untie) return true;
    if (importer->distinct || !initializer->tensor.data) return false;
    return uses->items[uses->count - 1].constant || (!importer->options->keep_ties && is_apart(importer, initializer));
}

static void find_clones(Importer *importer, const Initializer *initializers, size_t count)
{
    for (size_t i = 0; i < count && !importer->clones; i++)
        importer->clones = initializers[i].trained && initializers[i].tensor.data &&
                           uses_show_clones(&initializers[i].uses) && !tensor_is_constant(&initializers[i].tensor);
}

/* Once: a model has many layers. */
static void warn_of_sharing(Importer *importer, const Initializer *initializers, size_t count)
{
    const ImportOptions *options = importer->options;
    if (options->untie || options->keep_ties || importer->distinct) return;
    for (size_t i = 0; i < count; i++) {
        const Initializer *initializer = &initializers[i];
        const InitializerUse *other;
        if (!initializer->trained || !initializer->tensor.data || tensor_is_constant(&initializer->tensor) ||
            uses_sharing(importer, initializer->name, &initializer->uses, &other) != USES_OPEN)
            continue;
        char place[512];
        diagnostics_warning(importer->diagnostics, initializer_place(importer, initializer->name, place),
                            "give --untie if they only start equal, as copies of a module do",
                            "is read by '%s' and '%s': skycc trains one parameter for both",
                            initializer->uses.items[0].owner, other->owner);
        return;
    }
}

static bool add_tied(Importer *importer, const Initializer *initializer, const Initializer *with, TieKind kind)
{
    ValueId value = with->parameter;
    Symbol *symbol = &importer->symbols[initializer->symbol];
    bool transposed = kind == TIE_TRANSPOSED;
    symbol->value = add_parameter(
        importer, initializer,
        (ImportedParameter){.name = initializer->name, .value = value, .tied = true, .transposed = transposed}, NULL);
    if (!transposed) return symbol->value;
    Attribute perm = attribute_integers("perm", (int64_t[]){1, 0}, 2);
    NodeOrigin origin = {.name = initializer->name, .phase = PHASE_FORWARD, .layer = LAYER_NONE};
    return graph_add_node(importer->graph, OP_Transpose, origin, &value, 1, &perm, 1, &symbol->value, 1,
                          importer->diagnostics) != 0;
}

/* The use that names a parameter whose own name is generated; NULL if its own name is good. */
static const InitializerUse *own_use(const Initializer *initializer)
{
    bool generated = !strchr(initializer->name, '.') || strpbrk(initializer->name, ":#");
    return generated && initializer->uses.count ? initializer->uses.items : NULL;
}

/* 8-bit integers are quantised weights or zero points. */
static bool is_quantized(const Importer *importer, const Initializer *initializer)
{
    DType dtype = initializer->tensor.dtype;
    return (dtype == DTYPE_I8 || dtype == DTYPE_U8) && !importer->symbols[initializer->symbol].scales;
}

/* What the exporter says of them, before they are read. */
static void mark_buffers(Importer *importer)
{
    const char *producer = importer->model->onnx.proto->producer_name;
    importer->model->torchscript = producer && strcmp(producer, "pytorch") == 0;
    for (size_t n = 0; n < importer->proto->n_node && importer->model->torchscript; n++)
        importer->model->torchscript = !pytorch_call(&importer->arena, importer->proto->node[n]);
    importer->signature = graph_signature(&importer->arena, importer->proto);
    for (size_t i = 0; i < importer->proto->n_value_info; i++) {
        const Onnx__ValueInfoProto *value = importer->proto->value_info[i];
        const uint32_t *symbol = value->name ? string_map_find(&importer->names, value->name) : NULL;
        if (!symbol) continue;
        Symbol *own = &importer->symbols[*symbol];
        const char *parameter, *kind = value_kind(&importer->arena, value);
        FoldKind folded = FOLD_UNKNOWN;
        importer->model->torchscript &= !*kind;
        own->parameter = strcmp(kind, "PARAMETER") == 0;
        own->folded_from = folded_from(&importer->arena, value);
        if (own->folded_from) folded = fold_kind(importer, own->name, own->folded_from, &parameter);
        own->parameter |= importer->signature && folded == FOLD_MOVES;
        own->buffer = strcmp(kind, "BUFFER") == 0 || folded == FOLD_OF_CONSTANTS;
    }
}

static void mark_scales(Importer *importer)
{
    for (size_t n = 0; n < importer->node_count; n++) {
        const SourceNode *node = &importer->nodes[n];
        if (!node->rule || node->rule->apply != normalize_dequantize) continue;
        for (size_t i = 1; i < node->proto->n_input; i++) importer->symbols[node->inputs[i]].scales = true;
    }
}

static void warn_of_quantized(Importer *importer, const Initializer *initializers, size_t count)
{
    size_t quantized = 0;
    for (size_t i = 0; i < count; i++) {
        if (!importer->symbols[initializers[i].symbol].needed || !is_quantized(importer, &initializers[i])) continue;
        importer->narrow_bytes += initializers[i].tensor.bytes;
        quantized++;
    }
    if (quantized)
        diagnostics_warning(importer->diagnostics, PLACE_FILE(importer->graph->file),
                            "to train them, export the model before it is quantised",
                            "holds %zu weights of 8 bits: they are quantised, so they are not trained", quantized);
}

static const char *why_constant(const Importer *importer, const Initializer *initializer)
{
    const Symbol *symbol = &importer->symbols[initializer->symbol];
    if (is_quantized(importer, initializer)) return "is quantised";
    if (!dtype_is_float(initializer->tensor.dtype)) return NULL;
    if (symbol->scales) return "is a scale of what is quantised";
    if (symbol->buffer && symbol->folded_from) return "was computed of constants by the exporter";
    if (symbol->buffer) return "is a buffer, which PyTorch's optimisers do not update";
    return symbol->trained ? "is one number" : "reaches no output by operators with a gradient";
}

static void add_constant(Importer *importer, const Initializer *initializer)
{
    ImportedModel *model = importer->model;
    const OnnxTensor *tensor = &initializer->tensor;
    Symbol *symbol = &importer->symbols[initializer->symbol];
    symbol->value = graph_add_constant(importer->graph, initializer->name, tensor->dtype, &tensor->shape, tensor->data);
    graph_value(importer->graph, symbol->value)->frozen = is_quantized(importer, initializer);
    const char *why = why_constant(importer, initializer);
    if (!why) return;
    UntrainedTensor untrained = {arena_string(&model->arena, initializer->name), why};
    array_push(model->untrained, model->untrained_count, model->untrained_capacity, untrained);
}

/* Those that hold rows of another initializer come last. */
static bool add_values(Importer *importer, Initializer *initializers, const Tie *ties, size_t count)
{
    bool ok = true;
    for (size_t n = 0; n < 2 * count; n++) {
        size_t i = n % count;
        Initializer *initializer = &initializers[i];
        Symbol *symbol = &importer->symbols[initializer->symbol];
        if (!symbol->needed || (ties[i].kind == TIE_ROWS) != (n >= count)) continue;
        if (ties[i].kind != TIE_NONE)
            ok = add_tied(importer, initializer, &initializers[ties[i].with], ties[i].kind) && ok;
        else if (is_split(importer, initializer))
            split_initializer(importer, initializer);
        else if (initializer->trained) {
            symbol->value = add_parameter(importer, initializer, (ImportedParameter){.name = initializer->name},
                                          own_use(initializer));
            initializer->parameter = importer->model->parameters[importer->model->parameter_count - 1].value;
        } else
            add_constant(importer, initializer);
    }
    return ok;
}

/* Whether an exporter may have computed it: what a module holds has the module's name. */
static bool may_be_folded(const Importer *importer, const Initializer *initializer)
{
    return initializer->trained && initializer->tensor.data && initializer->tensor.shape.rank > 0 &&
           !importer->distinct && !named_by_module(importer, initializer->name);
}

static bool is_used_by(const Importer *importer, const Initializer *initializer, const char *op)
{
    for (size_t i = 0; i < initializer->uses.count; i++) {
        const InitializerUse *use = &initializer->uses.items[i];
        if (use->input != OUTPUT_USE && strcmp(importer->nodes[use->node].proto->op_type, op) == 0) return true;
    }
    return false;
}

/* Whether the use multiplies by it, as a norm by its gain; of some operators the optimiser of ONNX Runtime makes. */
static bool is_gain(const Importer *importer, const InitializerUse *use)
{
    static const struct {
        const char *op;
        int input;
    } norms[] = {{"LayerNormalization", 1},
                 {"RMSNormalization", 1},
                 {"SimplifiedLayerNormalization", 1},
                 {"SkipSimplifiedLayerNormalization", 2}};
    const char *op = importer->nodes[use->node].proto->op_type;
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        if (strcmp(op, norms[i].op) == 0 && use->input == norms[i].input) return true;
    return strcmp(op, "Mul") == 0;
}

/* Whether it is 1 + a weight, as in Gemma's norms: decay must be of the weight. The two exporters of PyTorch name what
 * they fold by its operator, or by the one that reads it. */
static bool is_one_plus(Importer *importer, const Initializer *initializer)
{
    const char *name = initializer->name, *sources = importer->symbols[initializer->symbol].folded_from, *weight;
    /* What it is the sum of has to be the weight itself. */
    if (sources && fold_kind(importer, "", sources, &weight) != FOLD_MOVES) return false;
    bool sum = strcmp(name, "add") == 0 || strncmp(name, "add_", 4) == 0 || strncmp(name, "onnx::Mul_", 10) == 0;
    size_t gains = 0;
    for (size_t i = 0; i < initializer->uses.count; i++) {
        const InitializerUse *use = &initializer->uses.items[i];
        if (use->input == OUTPUT_USE) return false;
        gains += is_gain(importer, use);
    }
    return sum && may_be_folded(importer, initializer) && initializer->tensor.shape.rank == 1 &&
           shape_elements(&initializer->tensor.shape) > 1 && gains && gains == initializer->uses.count;
}

static void subtract_one(Importer *importer, Initializer *initializer)
{
    OnnxTensor *tensor = &initializer->tensor;
    char *data = arena_allocate(&importer->model->arena, tensor->bytes);
    for (int64_t i = 0; i < shape_elements(&tensor->shape); i++)
        element_store_double(tensor->dtype, data, i, element_as_double(tensor->dtype, tensor->data, i) - 1);
    tensor->data = data;
    tensor->file = NULL;
    initializer->one_plus = true;
}

/* Once: a model has many norms. */
static void warn_of_sums(const Importer *importer, const Initializer *initializers, size_t count)
{
    size_t found = 0, first = 0;
    for (size_t i = count; i-- > 0;)
        if (initializers[i].one_plus) first = i, found++;
    char place[512];
    if (found)
        diagnostics_warning(importer->diagnostics, initializer_place(importer, initializers[first].name, place), NULL,
                            "was folded by the exporter (the first of %zu), as norms that multiply by 1 + weight have "
                            "it: skycc trains the weight, which is 1 less",
                            found);
}

/* Once. */
static void warn_of_copies(const Importer *importer, const Initializer *initializers, const Tie *ties, size_t count)
{
    size_t found = 0, first = 0;
    for (size_t i = count; i-- > 0;)
        if (initializers[i].copies && ties[i].kind != TIE_ROWS) first = i, found++;
    char place[512];
    if (found)
        diagnostics_warning(importer->diagnostics, initializer_place(importer, initializers[first].name, place),
                            "export with dynamic shapes if the model has a parameter for every row or position",
                            "holds copies of vectors (the first of %zu), as exports with fixed shapes do: skycc trains "
                            "one of each",
                            found);
}

static void unfold(Importer *importer, Initializer *initializer)
{
    OnnxTensor distinct;
    if (is_one_plus(importer, initializer)) {
        subtract_one(importer, initializer);
        return;
    }
    int rank = initializer->tensor.shape.rank;
    bool matrix =
        rank == 2 && (is_used_by(importer, initializer, "MatMul") || is_used_by(importer, initializer, "Gemm"));
    if (!may_be_folded(importer, initializer) || rank < 2 || matrix) return;
    initializer->copies = find_copies(&initializer->tensor, &importer->model->arena, &distinct);
    if (initializer->copies) initializer->tensor = distinct;
}

/* Whether it holds rows of a table in which the model looks up others. */
static void find_table(Importer *importer, Initializer *initializers, size_t count, size_t number, Tie *tie)
{
    Initializer *initializer = &initializers[number];
    const OnnxTensor *tensor = &initializer->tensor;
    bool folded = may_be_folded(importer, initializer) && (initializer->copies || tensor->shape.rank > 2);
    for (size_t i = 0; folded && tie->kind == TIE_NONE && i < count; i++) {
        const Initializer *table = &initializers[i];
        if (i == number || !table->trained || !table->tensor.data || table->copies ||
            !is_used_by(importer, table, "Gather") || is_split(importer, table))
            continue;
        const ParameterCopies *rows = find_rows(tensor, initializer->copies, &table->tensor, &importer->model->arena);
        if (!rows) continue;
        initializer->copies = rows;
        *tie = (Tie){TIE_ROWS, i};
    }
}

bool import_initializers(Importer *importer)
{
    size_t count = importer->proto->n_initializer;
    Initializer *initializers = arena_new_array(&importer->arena, Initializer, count);
    const OnnxTensor **comparable = arena_new_array(&importer->arena, const OnnxTensor *, count);
    Tie *ties = arena_new_array(&importer->arena, Tie, count);
    bool ok = true;
    mark_buffers(importer);
    InitializerUses *uses = arena_new_array(&importer->arena, InitializerUses, count);
    find_initializer_uses(importer, uses);
    for (size_t i = 0; i < count; i++) {
        initializers[i].uses = uses[i];
        ok = read_initializer(importer, i, &initializers[i]) && ok;
    }
    mark_scales(importer);
    if (ok) {
        warn_of_quantized(importer, initializers, count);
        for (size_t i = 0; i < count; i++) unfold(importer, &initializers[i]);
        find_clones(importer, initializers, count);
        for (size_t i = 0; i < count && !importer->options->untie && !importer->distinct; i++) {
            const OnnxTensor *tensor = &initializers[i].tensor;
            if (initializers[i].trained && tensor->data && !tensor_is_constant(tensor) &&
                !is_split(importer, &initializers[i]))
                comparable[i] = tensor;
        }
        warn_of_sums(importer, initializers, count);
        warn_of_sharing(importer, initializers, count);
        warn_of_merged_calls(importer);
        find_ties(importer, comparable, count, ties);
        for (size_t i = 0; i < count; i++) {
            if (initializers[i].copies && ties[i].kind == TIE_TRANSPOSED) ties[i].kind = TIE_NONE;
            find_table(importer, initializers, count, i, &ties[i]);
        }
        warn_of_copies(importer, initializers, ties, count);
        ok = add_values(importer, initializers, ties, count);
    }
    for (size_t i = 0; i < count; i++) free(initializers[i].uses.items);
    return ok;
}
