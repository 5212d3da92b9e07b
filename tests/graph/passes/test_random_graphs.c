/* Random graphs, lowered as a whole with views and fused calls, and pruned, against the same graphs computed one node
 * at a time from dense values; their gradients against central differences. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/random.h"
#include "codegen/stage/call_fusion.h"
#include "graph/ops/add_node.h"
#include "graph/ops/autodiff.h"
#include "graph/ops/operator.h"
#include "graph/passes/passes.h"
#include "tests/common/graph_evaluator.h"

enum { GRAPHS = 400, NODES = 14, MOST_VALUES = 64, MOST_ELEMENTS = 400 };

typedef struct Generator {
    Graph graph;
    Diagnostics diagnostics;
    uint64_t state;
    ValueId values[MOST_VALUES];
    int value_count;
} Generator;

static int64_t draw(Generator *generator, int64_t below)
{
    return (int64_t)random_draw_below(&generator->state, (uint64_t)below);
}

static ValueId pick(Generator *generator) { return generator->values[draw(generator, generator->value_count)]; }

static Shape shape_of(const Generator *generator, ValueId value)
{
    return graph_value(&generator->graph, value)->shape;
}

/* Adds a node unless its result would be too large, and makes it available. */
static void add(Generator *generator, Opcode op, const ValueId *inputs, int count, const Attribute *attributes,
                int attribute_count)
{
    ValueId outputs[3] = {0};
    NodeId node = graph_add_node(&generator->graph, op, (NodeOrigin){.name = "n"}, inputs, count, attributes,
                                 attribute_count, outputs, opcodes[op].outputs, &generator->diagnostics);
    if (!node) diagnostics_print(&generator->diagnostics, stderr);
    assert_true(node);
    Shape shape = shape_of(generator, outputs[0]);
    if (shape_elements(&shape) <= MOST_ELEMENTS && generator->value_count < MOST_VALUES)
        generator->values[generator->value_count++] = outputs[0];
}

static void add_map(Generator *generator)
{
    static const Opcode unary[] = {OP_Neg, OP_Tanh, OP_Abs, OP_Sin, OP_Gelu, OP_Sigmoid, OP_Relu, OP_Identity};
    static const Opcode binary[] = {OP_Add, OP_Sub, OP_Mul, OP_Max, OP_Min};
    ValueId a = pick(generator);
    for (int attempt = 0; attempt < 4; attempt++) {
        ValueId b = pick(generator);
        Shape left = shape_of(generator, a), right = shape_of(generator, b), both;
        if (!shape_broadcast(&left, &right, &both) || shape_elements(&both) > MOST_ELEMENTS) continue;
        add(generator, binary[draw(generator, 5)], (ValueId[]){a, b}, 2, NULL, 0);
        return;
    }
    add(generator, unary[draw(generator, 8)], &a, 1, NULL, 0);
}

static void add_transpose(Generator *generator)
{
    ValueId x = pick(generator);
    int64_t perm[MAX_RANK];
    int rank = shape_of(generator, x).rank;
    for (int i = 0; i < rank; i++) {
        int at = (int)draw(generator, i + 1);
        perm[i] = i;
        perm[i] = perm[at];
        perm[at] = i;
    }
    Attribute attribute = attribute_integers("perm", perm, rank);
    add(generator, OP_Transpose, &x, 1, &attribute, 1);
}

/* Merges two neighbouring dimensions, or splits one. */
static void add_reshape(Generator *generator)
{
    ValueId x = pick(generator);
    Shape from = shape_of(generator, x), to = {0};
    int at = from.rank ? (int)draw(generator, from.rank) : 0;
    bool merge = draw(generator, 2) && at + 1 < from.rank;
    for (int i = 0; i < from.rank; i++) {
        if (merge && i == at + 1) {
            to.dim[to.rank - 1] *= from.dim[i];
        } else if (!merge && i == at && from.rank < MAX_RANK - 1) {
            int64_t factor = 1 + draw(generator, 3);
            if (from.dim[i] % factor) factor = 1;
            to.dim[to.rank++] = factor;
            to.dim[to.rank++] = from.dim[i] / factor;
        } else {
            to.dim[to.rank++] = from.dim[i];
        }
    }
    Attribute attribute = attribute_integers("shape", to.dim, to.rank);
    add(generator, OP_Reshape, &x, 1, &attribute, 1);
}

static void add_slice(Generator *generator)
{
    ValueId x = pick(generator);
    Shape from = shape_of(generator, x), to = from;
    int64_t starts[MAX_RANK] = {0}, steps[MAX_RANK];
    for (int i = 0; i < from.rank; i++) {
        steps[i] = 1;
        if (draw(generator, 2)) continue;
        int64_t step = 1 + draw(generator, 2), first = draw(generator, from.dim[i]);
        bool down = draw(generator, 2);
        int64_t room = down ? first : from.dim[i] - 1 - first;
        starts[i] = first;
        steps[i] = down ? -step : step;
        to.dim[i] = 1 + draw(generator, room / step + 1);
    }
    Attribute attributes[3] = {attribute_integers("starts", starts, from.rank),
                               attribute_integers("steps", steps, from.rank),
                               attribute_integers("shape", to.dim, from.rank)};
    add(generator, OP_Slice, &x, 1, attributes, 3);
}

static void add_expand(Generator *generator)
{
    ValueId x = pick(generator);
    Shape shape = shape_of(generator, x);
    for (int i = 0; i < shape.rank; i++)
        if (shape.dim[i] == 1) shape.dim[i] = 1 + draw(generator, 3);
    if (shape.rank < MAX_RANK - 2) {
        for (int i = shape.rank++; i > 0; i--) shape.dim[i] = shape.dim[i - 1];
        shape.dim[0] = 1 + draw(generator, 2);
    }
    if (shape_elements(&shape) > MOST_ELEMENTS) return;
    Attribute attribute = attribute_integers("shape", shape.dim, shape.rank);
    add(generator, OP_Expand, &x, 1, &attribute, 1);
}

static void add_reduction(Generator *generator)
{
    static const Opcode ops[] = {OP_ReduceSum, OP_ReduceMean, OP_ReduceMax, OP_ReduceMin};
    ValueId x = pick(generator);
    int64_t axes[MAX_RANK];
    int count = 0, rank = shape_of(generator, x).rank;
    for (int i = 0; i < rank; i++)
        if (draw(generator, 2)) axes[count++] = i;
    Attribute attributes[2] = {attribute_integers("axes", axes, count),
                               attribute_integer("keepdims", draw(generator, 2))};
    add(generator, ops[draw(generator, 4)], &x, 1, attributes, 2);
}

static ValueId constant(Generator *generator, const Shape *shape)
{
    ValueId value = graph_add_constant(&generator->graph, NULL, DTYPE_F64, shape, NULL);
    double *data = (double *)graph_value(&generator->graph, value)->data;
    for (int64_t i = 0; i < shape_elements(shape); i++) data[i] = (double)draw(generator, 1000) / 500 - 1;
    return value;
}

static void add_row_operator(Generator *generator)
{
    ValueId x = pick(generator);
    Shape shape = shape_of(generator, x);
    if (shape.rank == 0) return;
    Shape row = {1, {shape.dim[shape.rank - 1]}};
    ValueId gain = constant(generator, &row), bias = constant(generator, &row);
    if (draw(generator, 2))
        add(generator, OP_LayerNormalization, (ValueId[]){x, gain, bias}, 3, NULL, 0);
    else
        add(generator, OP_Softmax, &x, 1, NULL, 0);
}

static void add_product(Generator *generator)
{
    ValueId x = pick(generator);
    Shape shape = shape_of(generator, x);
    if (shape.rank < 2) return;
    Shape weight = {2, {shape.dim[shape.rank - 1], 1 + draw(generator, 5)}};
    ValueId y = constant(generator, &weight);
    for (int attempt = 0; attempt < 6; attempt++) { /* two computed factors, if they fit */
        ValueId other = pick(generator);
        Shape right = shape_of(generator, other);
        if (right.rank == 2 && right.dim[0] == weight.dim[0]) y = other;
    }
    add(generator, OP_MatMul, (ValueId[]){x, y}, 2, NULL, 0);
}

static void add_gather(Generator *generator)
{
    ValueId x = pick(generator);
    Shape shape = shape_of(generator, x);
    if (shape.rank == 0) return;
    int64_t axis = draw(generator, shape.rank), numbers[3];
    int count = (int)draw(generator, 3);
    for (int i = 0; i < 3; i++) numbers[i] = draw(generator, shape.dim[axis]);
    Shape indices = {count > 0, {count}};
    ValueId index = graph_add_constant(&generator->graph, NULL, DTYPE_I64, &indices, numbers);
    Attribute attribute = attribute_integer("axis", axis);
    add(generator, OP_Gather, (ValueId[]){x, index}, 2, &attribute, 1);
}

static void add_concat(Generator *generator)
{
    ValueId x = pick(generator);
    Shape shape = shape_of(generator, x);
    if (shape.rank == 0) return;
    Attribute attribute = attribute_integer("axis", draw(generator, shape.rank));
    add(generator, OP_Concat, (ValueId[]){x, x}, 2, &attribute, 1);
}

/* Through a type that only memory has; not in graphs that are differentiated. */
static void add_rounding(Generator *generator)
{
    static const DType types[] = {DTYPE_BF16, DTYPE_F32, DTYPE_F64};
    ValueId value = pick(generator);
    for (int i = 0; i < 3; i++) {
        Attribute to = attribute_integer("to", types[i]);
        assert_true(graph_add_node(&generator->graph, OP_Cast, (NodeOrigin){.name = "n"}, &value, 1, &to, 1, &value, 1,
                                   &generator->diagnostics));
    }
    if (generator->value_count < MOST_VALUES) generator->values[generator->value_count++] = value;
}

static void generate(Generator *generator, uint64_t seed, bool rounds)
{
    static void (*const makers[])(Generator *) = {
        add_map,    add_map,       add_map,     add_transpose,    add_transpose, add_reshape, add_reshape, add_slice,
        add_expand, add_reduction, add_product, add_row_operator, add_gather,    add_concat,  add_rounding};
    const int64_t choice = (int64_t)(sizeof makers / sizeof *makers) - !rounds;
    *generator = (Generator){.state = seed * 977};
    graph_init(&generator->graph, "random");
    for (int i = 0; i < 3; i++) {
        Shape shape = {.rank = 1 + (int)draw(generator, 4)};
        for (int k = 0; k < shape.rank; k++) shape.dim[k] = 1 + draw(generator, 5);
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        if (shape_elements(&shape) <= MOST_ELEMENTS)
            generator->values[generator->value_count++] = graph_add_input(&generator->graph, name, DTYPE_F64, &shape);
    }
    if (!generator->value_count)
        generator->values[generator->value_count++] = graph_add_input(&generator->graph, "x", DTYPE_F64, &(Shape){0});
    for (int i = 0; i < NODES; i++) makers[draw(generator, choice)](generator);
    for (int i = 0; i < 3; i++) graph_add_output(&generator->graph, "y", pick(generator));
    graph_add_output(&generator->graph, "last", generator->values[generator->value_count - 1]);
    graph_verify(&generator->graph);
}

static void fill_inputs(const Generator *generator, const Evaluator *evaluator)
{
    for (size_t i = 0; i < generator->graph.input_count; i++) {
        Shape shape = shape_of(generator, generator->graph.inputs[i]);
        double *data = evaluator->buffer[generator->graph.inputs[i]];
        for (int64_t k = 0; k < shape_elements(&shape); k++) data[k] = sin(1.1 * (double)k + (double)i);
    }
}

/* Every node alone: its inputs dense, its outputs made dense. Uses the buffers of `evaluator`, not its lowering. */
static void run_node_by_node(Generator *generator, Evaluator *evaluator)
{
    Graph *graph = &generator->graph;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        Evaluator alone = {.graph = graph, .buffer = evaluator->buffer};
        lowering_begin(&alone.lowering, graph);
        for (int i = 0; i < node->input_count; i++) lowering_stop_at(&alone.lowering, node->inputs[i]);
        lowering_run(&alone.lowering, &n, 1);
        for (int i = 0; i < node->output_count; i++) lowering_materialize(&alone.lowering, node->outputs[i]);
        assert_true(evaluator_run(&alone));
        lowering_free(&alone.lowering);
    }
}

/* Fuses the calls of the evaluator and takes the fused ones out. */
static void fuse(Generator *generator, Evaluator *evaluator)
{
    const Graph *graph = &generator->graph;
    Lowering *lowering = &evaluator->lowering;
    bool *kept = memory_allocate(graph->value_count);
    for (size_t i = 0; i < graph->output_count; i++) kept[graph->outputs[i].value] = true;
    for (size_t i = 0; i < graph->gradient_count; i++) kept[graph->gradients[i]] = true;
    kept[graph->loss] = true;
    ValueArrays *arrays = value_arrays_create(graph->value_count);
    fuse_calls(lowering, 0, lowering->call_count, kept, arrays);
    value_arrays_free(arrays);
    free(kept);
    size_t count = 0;
    for (size_t i = 0; i < lowering->call_count; i++)
        if (!lowering->calls[i].dead) lowering->calls[count++] = lowering->calls[i];
    lowering->call_count = count;
}

static void compare(uint64_t seed, size_t output, int64_t count, const double *want, const double *got)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(want[i] - got[i]) <= 1e-9 * fmax(1, fabs(want[i]))))
            fail_msg("graph %d, output %zu, element %d: %.12g instead of %.12g", (int)seed, output, (int)i, got[i],
                     want[i]);
}

static void check_graph(uint64_t seed, size_t *calls, size_t *fused)
{
    Generator generator;
    generate(&generator, seed, seed % 2);
    Evaluator expected, evaluator;
    evaluator_init(&expected, &generator.graph);
    evaluator_init(&evaluator, &generator.graph);
    fill_inputs(&generator, &expected);
    fill_inputs(&generator, &evaluator);
    run_node_by_node(&generator, &expected);
    *calls += evaluator.lowering.call_count;
    fuse(&generator, &evaluator);
    *fused += evaluator.lowering.call_count;
    for (size_t i = 0; i < evaluator.lowering.call_count; i++) kernel_verify(evaluator.lowering.calls[i].kernel);
    assert_true(evaluator_run(&evaluator));
    for (size_t i = 0; i < generator.graph.output_count; i++) {
        ValueId output = generator.graph.outputs[i].value;
        Shape shape = shape_of(&generator, output);
        compare(seed, i, shape_elements(&shape), expected.buffer[output], evaluator.buffer[output]);
    }
    evaluator_free(&expected);
    evaluator_free(&evaluator);
    graph_free(&generator.graph);
    diagnostics_free(&generator.diagnostics);
}

static void views_and_fusion_change_no_result(void **state)
{
    (void)state;
    size_t calls = 0, fused = 0;
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) check_graph(seed, &calls, &fused);
    assert_true(fused < calls); /* something was fused at all */
}

static double total_elements(const Graph *graph)
{
    double elements = 0;
    for (NodeId n = 1; n < graph->node_count; n++)
        if (graph_node(graph, n)->op != OP_NONE)
            elements += (double)shape_elements(&graph_value(graph, graph_node(graph, n)->outputs[0])->shape);
    return elements;
}

/* Runs a generated graph and frees what that took; results stay in `outputs`, one array per output. */
static void run_graph(Generator *generator, double **outputs)
{
    Evaluator evaluator;
    evaluator_init(&evaluator, &generator->graph);
    fill_inputs(generator, &evaluator);
    assert_true(evaluator_run(&evaluator));
    for (size_t i = 0; i < generator->graph.output_count; i++) {
        Shape shape = shape_of(generator, generator->graph.outputs[i].value);
        size_t bytes = (size_t)shape_elements(&shape) * sizeof(double);
        outputs[i] = memory_allocate(bytes);
        memcpy(outputs[i], evaluator.buffer[generator->graph.outputs[i].value], bytes);
    }
    evaluator_free(&evaluator);
}

static void check_pruning(uint64_t seed, double *before, double *after)
{
    Generator whole, pruned;
    double *want[4], *got[4];
    generate(&whole, seed, false);
    generate(&pruned, seed, false);
    graph_remove_dead(&whole.graph);
    prune_unread(&pruned.graph, &(PassOptions){0}, &pruned.diagnostics);
    graph_verify(&pruned.graph);
    *before += total_elements(&whole.graph);
    *after += total_elements(&pruned.graph);
    run_graph(&whole, want);
    run_graph(&pruned, got);
    for (size_t i = 0; i < whole.graph.output_count; i++) {
        Shape shape = shape_of(&whole, whole.graph.outputs[i].value);
        Shape other = shape_of(&pruned, pruned.graph.outputs[i].value);
        assert_true(shape_equal(&shape, &other));
        compare(seed, i, shape_elements(&shape), want[i], got[i]);
        free(want[i]), free(got[i]);
    }
    graph_free(&whole.graph);
    graph_free(&pruned.graph);
    diagnostics_free(&whole.diagnostics);
    diagnostics_free(&pruned.diagnostics);
}

static void pruning_changes_no_result(void **state)
{
    (void)state;
    double before = 0, after = 0;
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) check_pruning(seed, &before, &after);
    assert_true(after < before); /* something was pruned at all */
}

/* ---- Gradients ---- */

/* Makes parameters of the inputs, and of the last output a loss: the sum of its elements, each with a weight of its
 * own. */
static void add_loss(Generator *generator)
{
    Graph *graph = &generator->graph;
    for (size_t i = 0; i < graph->input_count; i++) graph_value(graph, graph->inputs[i])->role = ROLE_PARAMETER;
    ValueId last = graph->outputs[graph->output_count - 1].value, loss;
    Shape shape = shape_of(generator, last);
    ValueId inputs[2] = {last, constant(generator, &shape)};
    Attribute keep = attribute_integer("keepdims", 0);
    NodeOrigin origin = {.name = "loss"};
    assert_true(graph_add_node(graph, OP_Mul, origin, inputs, 2, NULL, 0, &loss, 1, &generator->diagnostics));
    assert_true(graph_add_node(graph, OP_ReduceSum, origin, &loss, 1, &keep, 1, &loss, 1, &generator->diagnostics));
    graph->loss = loss;
    graph->output_count = 0;
}

static double loss_at(Evaluator *evaluator, double *element, double value)
{
    double old = *element;
    *element = value;
    assert_true(evaluator_run(evaluator));
    *element = old;
    return *(double *)evaluator->buffer[evaluator->graph->loss];
}

/* Whether `got` is the derivative by `element`. Where the slopes on both sides differ there is none. */
static bool is_derivative(Evaluator *evaluator, double *element, double got)
{
    double x = *element, step = 1e-6;
    double above = loss_at(evaluator, element, x + step), here = loss_at(evaluator, element, x);
    double below = loss_at(evaluator, element, x - step), want = (above - below) / (2 * step);
    double scale = fmax(1, fabs(want)), bend = fabs(above - 2 * here + below) / step;
    return fabs(want - got) <= 2e-5 * scale || bend > 1e-3 * scale;
}

/* False if the loss does not depend on the inputs. */
static bool check_gradients(uint64_t seed)
{
    Generator generator;
    generate(&generator, seed, false);
    add_loss(&generator);
    Graph *graph = &generator.graph;
    prune_unread(graph, &(PassOptions){0}, &generator.diagnostics);
    Evaluator forward, evaluator;
    evaluator_init(&forward, graph);
    fill_inputs(&generator, &forward);
    bool depends = differentiate(graph, &generator.diagnostics);
    if (depends) {
        graph_remove_dead(graph);
        graph_verify(graph);
        evaluator_init(&evaluator, graph);
        fill_inputs(&generator, &evaluator);
        fuse(&generator, &evaluator);
        assert_true(evaluator_run(&evaluator));
        for (size_t i = 0; i < graph->input_count; i++) {
            ValueId input = graph->inputs[i], gradient = graph->gradients[input];
            Shape shape = shape_of(&generator, input);
            for (int64_t k = 0; k < shape_elements(&shape); k += 3) {
                double *element = (double *)forward.buffer[input] + k;
                double got = gradient ? ((double *)evaluator.buffer[gradient])[k] : 0;
                if (!is_derivative(&forward, element, got))
                    fail_msg("graph %d: %.10g is not the derivative by element %d of input %zu", (int)seed, got, (int)k,
                             i);
            }
        }
        evaluator_free(&evaluator);
    }
    evaluator_free(&forward);
    graph_free(graph);
    diagnostics_free(&generator.diagnostics);
    return depends;
}

static void gradients_match_finite_differences(void **state)
{
    (void)state;
    int checked = 0;
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) checked += check_gradients(seed);
    assert_true(checked > GRAPHS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_and_fusion_change_no_result),
        cmocka_unit_test(pruning_changes_no_result),
        cmocka_unit_test(gradients_match_finite_differences),
    };
    return cmocka_run_group_tests_name("random graphs", tests, NULL, NULL);
}
