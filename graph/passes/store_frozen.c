/* How frozen matrices are stored (--frozen-weights): float32, bf16, or integers in blocks (base/weight_blocks.h). What
 * reads one reads a Cast of it, which is a view: elements are decoded on the way into products.
 *
 * Without the option, --precision bf16 stores as bf16 what nothing but products reads: they round their factors anyway.
 *
 * Blocks go along the axis over which products sum. A matrix that is [in, out] is stored the other way round, and read
 * through a Transpose, unless something else than products reads it. */
#include <stdlib.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/passes/passes.h"

enum { LEAST_ELEMENTS = 1024 /* of a matrix that is worth it */ };

typedef struct FrozenForm {
    Graph *graph;
    DType form;
    Diagnostics *diagnostics;
    bool *left;    /* [value]: a parameter that stays as it is; NULL: none */
    bool *turned;  /* [shared parameter]: stored the other way round */
    ValueId *read; /* [value]: what its readers read instead; 0: not made yet */
} FrozenForm;

static bool is_chosen(const FrozenForm *form, ValueId id)
{
    const Value *value = graph_value(form->graph, id);
    return !(form->left && form->left[shared_parameter(form->graph, id)]) && value->role == ROLE_PARAMETER &&
           value->frozen && dtype_is_float(value->dtype) && value->dtype != DTYPE_F64 && value->shape.rank == 2 &&
           shape_elements(&value->shape) >= LEAST_ELEMENTS;
}

/* Whether input `i` of the node is a matrix [in, out] that it multiplies with. */
static bool multiplies(const Node *node, int i)
{
    return i == 1 && (node->op == OP_MatMul || (node->op == OP_SlicedCrossEntropy && node_integer(node, "columns", 0)));
}

/* `form->turned` of what nothing but products reads, as [in, out]. */
static void find_turned(FrozenForm *form)
{
    const Graph *graph = form->graph;
    FREED bool *other = memory_allocate(graph->value_count);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; node->op != OP_NONE && i < node->input_count; i++) {
            ValueId parameter = shared_parameter(graph, node->inputs[i]);
            *(multiplies(node, i) ? &form->turned[parameter] : &other[parameter]) = true;
        }
    }
    for (ValueId v = 0; v < graph->value_count; v++) form->turned[v] &= dtype_in_blocks(form->form) && !other[v];
}

/* The parameter that the value is a view of; 0: it is none. */
static ValueId viewed_parameter(const Graph *graph, ValueId value)
{
    const Node *maker = graph_producer(graph, value);
    while (operator_has(maker->op, REORDERS | REGROUPS)) {
        value = maker->inputs[0];
        maker = graph_producer(graph, value);
    }
    return graph_value(graph, value)->role == ROLE_PARAMETER ? shared_parameter(graph, value) : 0;
}

/* `form->left`: all that something else than a product reads. */
static void find_left(FrozenForm *form)
{
    const Graph *graph = form->graph;
    form->left = memory_allocate(graph->value_count);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE || node->op == OP_MatMul || operator_has(node->op, REORDERS | REGROUPS)) continue;
        for (int i = 0; i < node->input_count; i++) form->left[viewed_parameter(graph, node->inputs[i])] = true;
    }
    for (size_t i = 0; i < graph->output_count; i++)
        form->left[viewed_parameter(graph, graph->outputs[i].value)] = true;
}

static DType form_of(const FrozenForm *form, const Shape *stored)
{
    return dtype_in_blocks(form->form) && stored->dim[1] % DTYPE_BLOCK ? DTYPE_BF16 : form->form;
}

/* Whether a node casts what it reads to float32 itself. */
static bool casts(const Node *node) { return node->op == OP_Cast && node_integer(node, "to", 0) == DTYPE_F32; }

static void change_form(FrozenForm *form, ValueId id, bool turned)
{
    Value *value = graph_value(form->graph, id);
    Shape stored = value->shape;
    if (turned) stored = (Shape){2, {value->shape.dim[1], value->shape.dim[0]}};
    DType dtype = form_of(form, &stored);
    if (dtype == value->dtype && !turned) return;
    value->stored_from = value->data;
    value->stored_type = value->dtype;
    value->stored_turned = turned;
    value->data = NULL;
    value->dtype = dtype;
    value->shape = stored;
}

/* What the node reads in place of the parameter. */
static ValueId form_read_by(FrozenForm *form, ValueId id, const Node *node)
{
    Graph *graph = form->graph;
    if (form->read[id]) return form->read[id];
    bool turned = form->turned[shared_parameter(graph, id)];
    change_form(form, id, turned);
    form->read[id] = id;
    if (casts(node) || graph_value(graph, id)->dtype == DTYPE_F32) return id;
    NodeOrigin origin = {.name = graph_value(graph, id)->name, .phase = PHASE_FORWARD, .layer = node->layer};
    Builder b = {.graph = graph, .origin = origin};
    form->read[id] = build_cast(&b, id, DTYPE_F32);
    if (turned) form->read[id] = build_transpose(&b, form->read[id], (int64_t[]){1, 0});
    return form->read[id];
}

static void replace_reads(FrozenForm *form, size_t values)
{
    Graph *graph = form->graph;
    size_t node_count;
    FREED Node *nodes = graph_take_nodes(graph, &node_count);
    for (NodeId n = 1; n < node_count; n++) {
        for (int i = 0; nodes[n].op != OP_NONE && i < nodes[n].input_count; i++)
            if (nodes[n].inputs[i] < values && is_chosen(form, nodes[n].inputs[i]))
                nodes[n].inputs[i] = form_read_by(form, nodes[n].inputs[i], &nodes[n]);
        graph_push_node(graph, nodes[n]);
    }
}

/* Reports if nothing is frozen, and says what is not stored as asked. */
static bool check_forms(const FrozenForm *form)
{
    const Graph *graph = form->graph;
    const char *trained = NULL, *odd = NULL, *small = NULL;
    int chosen = 0, other = 0;
    for (ValueId v = 1; v < graph->value_count; v++) {
        const Value *value = graph_value(graph, v);
        if (value->role == ROLE_PARAMETER && !value->frozen && !value->parameter && value->shape.rank == 2)
            trained = value->name;
        if (value->role == ROLE_PARAMETER && value->frozen && !value->parameter && value->shape.rank == 2)
            small = value->name;
        if (!is_chosen(form, v) || value->parameter) continue;
        Shape stored = value->shape;
        if (form->turned[v]) stored = (Shape){2, {value->shape.dim[1], value->shape.dim[0]}};
        chosen++;
        if (form_of(form, &stored) != form->form) odd = value->name, other++;
    }
    if (!chosen && small)
        diagnostics_warning(form->diagnostics, (Place){.file = graph->file, .object = small}, NULL,
                            "--frozen-weights %s changes nothing: no frozen matrix has %d elements",
                            dtype_name(form->form), LEAST_ELEMENTS);
    else if (!chosen && trained)
        return diagnostics_error(form->diagnostics, EXIT_USAGE, (Place){.file = graph->file, .object = trained},
                                 "freeze weights with --freeze or --lora, or leave the option out",
                                 "is trained, and no weight is frozen: --frozen-weights %s is for frozen ones",
                                 dtype_name(form->form));
    if (other)
        diagnostics_warning(form->diagnostics, (Place){.file = graph->file, .object = odd}, NULL,
                            "%d of %d frozen matrices are stored as bf16: their rows are not whole blocks of %d", other,
                            chosen, DTYPE_BLOCK);
    return true;
}

bool store_frozen(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    bool asked = options->frozen_weights != DTYPE_NONE;
    if (!asked && !(options->bf16 && options->differentiate)) return true;
    size_t values = graph->value_count;
    FrozenForm form = {.graph = graph,
                       .form = asked ? options->frozen_weights : DTYPE_BF16,
                       .diagnostics = diagnostics,
                       .turned = memory_allocate(values),
                       .read = memory_allocate(values * sizeof(ValueId))};
    asked ? find_turned(&form) : find_left(&form);
    bool ok = !asked || check_forms(&form);
    if (ok) replace_reads(&form, values);
    free(form.left);
    free(form.turned);
    free(form.read);
    return ok;
}
