/* Every operator of operator_cases.c: its result against an independent reference, in several types and memory layouts,
 * and its gradient against central differences. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "base/random.h"
#include "base/codec_rows.h"
#include "graph/ops/autodiff.h"
#include "tests/codegen/kernels/opencl_runner.h"
#include "tests/common/graph_evaluator.h"
#include "tests/graph/ops/operator_cases.h"

static uint64_t random_state;

static double random_between(double low, double high)
{
    return low + (high - low) * (double)(random_draw(&random_state) >> 11) * 0x1p-53;
}

/* ---- Where kernels run ---- */

static bool on_opencl; /* else they are interpreted */

/* On OpenCL all cases are a few programs, because drivers take long for each: the cases are built once to collect their
 * calls, and once more to look at the results. Of a gradient the calls that compute it are collected, and what they
 * read is interpreted: drivers take long for every kernel, too, and the operator's own ones are those of another
 * case. */
static struct Batch {
    Arena arena;
    OpenClCall *calls;
    void **data;
    size_t *bytes, call_count, call_capacity, count, data_capacity, bytes_capacity, taken;
    Opcode differentiated; /* by the gradient that is checked */
    bool ran;
} batch;

static size_t bytes_of(const Evaluator *evaluator, ValueId v)
{
    const Value *value = graph_value(evaluator->graph, v);
    return (size_t)shape_elements(&value->shape) * dtype_size(value->dtype);
}

static bool is_collected(const Graph *graph, NodeId id)
{
    const Node *node = graph_node(graph, id);
    if (!graph->loss) return true;
    return strcmp(node->name, "loss") != 0 && (node->phase == PHASE_BACKWARD || node->op != batch.differentiated);
}

/* What the collected calls find: all that others compute, and nothing yet of their own. */
static void interpret_others(Evaluator *evaluator)
{
    const Graph *graph = evaluator->graph;
    assert_true(evaluator_run(evaluator));
    for (NodeId id = 1; id < graph->node_count; id++) {
        const Node *node = graph_node(graph, id);
        for (int i = 0; i < node->output_count && is_collected(graph, id); i++)
            if (node->outputs[i]) memset(evaluator->buffer[node->outputs[i]], 0, bytes_of(evaluator, node->outputs[i]));
    }
}

static void collect(Evaluator *evaluator)
{
    if (evaluator->graph->loss) interpret_others(evaluator);
    for (size_t c = 0; c < evaluator->lowering.call_count; c++) {
        const LoweredCall *call = &evaluator->lowering.calls[c];
        if (!is_collected(evaluator->graph, call->node)) continue;
        Kernel *kernel = arena_copy(&batch.arena, call->kernel, sizeof *call->kernel);
        kernel->label = arena_string(&batch.arena, kernel->label);
        OpenClCall collected = {.kernel = kernel};
        for (int k = 0; k < kernel->operand_count; k++) {
            ValueId value = call->operands[k].value;
            collected.buffer[k] = batch.count + value;
            collected.offset[k] =
                call->operands[k].offset * (int64_t)dtype_size(graph_value(evaluator->graph, value)->dtype);
        }
        array_push(batch.calls, batch.call_count, batch.call_capacity, collected);
    }
    for (ValueId v = 0; v < evaluator->buffer_count; v++) {
        size_t bytes = v ? bytes_of(evaluator, v) : 0, count = batch.count;
        array_push(batch.bytes, count, batch.bytes_capacity, bytes);
        array_push(batch.data, batch.count, batch.data_capacity, arena_copy(&batch.arena, evaluator->buffer[v], bytes));
    }
}

/* Everything; whether there are results now. */
static bool run(Evaluator *evaluator)
{
    if (!on_opencl) {
        assert_true(evaluator_run(evaluator));
    } else if (!batch.ran) {
        collect(evaluator);
    } else {
        for (ValueId v = 1; v < evaluator->buffer_count; v++) {
            assert_int_equal(batch.bytes[batch.taken + v], bytes_of(evaluator, v));
            memcpy(evaluator->buffer[v], batch.data[batch.taken + v], bytes_of(evaluator, v));
        }
        batch.taken += evaluator->buffer_count;
    }
    return !on_opencl || batch.ran;
}

/* ---- Graphs of one operator ---- */

typedef struct Subject {
    const Case *test;
    DType dtype;
    bool transposed; /* inputs of several dimensions lie in memory in reversed order */
    Graph graph;
    Diagnostics diagnostics;
    int input_count;
    ValueId stored[MAX_INPUTS], outputs[MAX_OUTPUTS];
    Tensor input[MAX_INPUTS]; /* as the operator sees them */
} Subject;

static DType input_type(const Subject *subject, InputKind kind)
{
    switch (kind) {
    case WHOLE:
    case KNOWN:
    case ORDER: return DTYPE_I64;
    case TRUTH: return DTYPE_BOOL;
    case SCALARS: return DTYPE_F32;
    default: return subject->dtype;
    }
}

/* Random elements, rounded to the type that holds them. */
static Tensor random_tensor(const InputSpec *spec, DType dtype)
{
    int64_t count = shape_elements(&spec->shape);
    Tensor tensor = {spec->shape, memory_allocate((size_t)(count + 1) * sizeof(double))};
    for (int64_t i = 0; i < count; i++) {
        double value = random_between(spec->low, spec->high), rounded = 0;
        if (spec->kind == WHOLE || spec->kind == KNOWN) value = floor(random_between(spec->low, spec->high + 1));
        if (spec->kind == ORDER) value = (double)(count - 1 - i);
        if (spec->kind == SPARSE && i % 3 == 0) value = 0;
        if (spec->kind == TRUTH) value = random_between(0, 1) < 0.5;
        if (spec->kind == SCALARS) value = 0.25 + (double)i;
        element_store_double(dtype, &rounded, 0, value);
        tensor.data[i] = element_as_double(dtype, &rounded, 0);
    }
    return tensor;
}

/* The elements as they are stored: in reversed order of dimensions where the subject says so. */
static void store_tensor(const Subject *subject, int i, void *data)
{
    const Tensor *tensor = &subject->input[i];
    DType dtype = input_type(subject, subject->test->inputs[i].kind);
    Shape reversed = tensor->shape;
    for (int axis = 0; axis < reversed.rank; axis++) reversed.dim[axis] = tensor->shape.dim[reversed.rank - 1 - axis];
    Tensor stored = {subject->transposed ? reversed : tensor->shape, tensor->data};
    FOR_EACH_ELEMENT(index, &stored)
    {
        int64_t from[MAX_RANK];
        for (int axis = 0; axis < reversed.rank; axis++)
            from[axis] = at[subject->transposed ? reversed.rank - 1 - axis : axis];
        element_store_double(dtype, data, index, *element(tensor, from, reversed.rank));
    }
}

static ValueId add_input(Subject *subject, int i)
{
    const InputSpec *spec = &subject->test->inputs[i];
    DType dtype = input_type(subject, spec->kind);
    subject->input[i] = random_tensor(spec, dtype);
    char name[32];
    snprintf(name, sizeof name, "input%d", i);
    Shape shape = spec->shape;
    bool reversed = subject->transposed && shape.rank > 1;
    for (int axis = 0; axis < shape.rank && reversed; axis++) shape.dim[axis] = spec->shape.dim[shape.rank - 1 - axis];
    size_t bytes = (size_t)shape_elements(&shape) * dtype_size(dtype);
    void *data = arena_allocate(&subject->graph.arena, bytes);
    store_tensor(subject, i, data);
    ValueId value;
    if (spec->kind == CONSTANT || spec->kind == KNOWN)
        value = graph_add_constant(&subject->graph, NULL, dtype, &shape, data);
    else
        value = graph_add_parameter(&subject->graph, name, dtype, &shape, data);
    subject->stored[i] = value;
    if (reversed)
        graph_add_node(&subject->graph, OP_Transpose, (NodeOrigin){.name = "layout"}, &value, 1, NULL, 0, &value, 1,
                       &subject->diagnostics);
    return value;
}

static void build(Subject *subject)
{
    const Case *test = subject->test;
    graph_init(&subject->graph, "test");
    random_state = (uint64_t)test->op;
    ValueId inputs[MAX_INPUTS];
    while (subject->input_count < MAX_INPUTS && test->inputs[subject->input_count].kind != NONE) {
        inputs[subject->input_count] = add_input(subject, subject->input_count);
        subject->input_count++;
    }
    int attribute_count = 0;
    while (attribute_count < 4 && test->attributes[attribute_count].name) attribute_count++;
    NodeId node = graph_add_node(&subject->graph, test->op, (NodeOrigin){.name = "subject"}, inputs,
                                 subject->input_count, test->attributes, attribute_count, subject->outputs,
                                 opcodes[test->op].outputs, &subject->diagnostics);
    if (!node) diagnostics_print(&subject->diagnostics, stderr);
    assert_true(node);
}

static void destroy(Subject *subject)
{
    for (int i = 0; i < subject->input_count; i++) free(subject->input[i].data);
    graph_free(&subject->graph);
    diagnostics_free(&subject->diagnostics);
}

static const char *describe(const Subject *subject)
{
    static char text[128];
    snprintf(text, sizeof text, "case %d, %s, %s%s", (int)(subject->test - operator_cases),
             opcodes[subject->test->op].name, dtype_name(subject->dtype), subject->transposed ? ", transposed" : "");
    return text;
}

/* ---- Results ---- */

static double tolerance_of(const Subject *subject)
{
    if (subject->dtype == DTYPE_F64) return 1e-12;
    return subject->dtype == DTYPE_F32 ? 1e-6 : 4e-3;
}

static void check_results(const Subject *subject, const Evaluator *evaluator)
{
    static double expected[MAX_OUTPUTS][MAX_ELEMENTS];
    memset(expected, 0, sizeof expected);
    Tensor output[MAX_OUTPUTS];
    int count = opcodes[subject->test->op].outputs;
    for (int i = 0; i < count; i++) {
        output[i] = (Tensor){graph_value(&subject->graph, subject->outputs[i])->shape, expected[i]};
        assert_true(shape_elements(&output[i].shape) <= MAX_ELEMENTS);
    }
    subject->test->reference(subject->test, subject->input, output);
    for (int i = 0; i < count; i++) {
        DType type = graph_value(&subject->graph, subject->outputs[i])->dtype;
        for (int64_t k = 0; k < shape_elements(&output[i].shape); k++) {
            double got = element_as_double(type, evaluator->buffer[subject->outputs[i]], k), want = expected[i][k];
            if (!(fabs(got - want) <= tolerance_of(subject) * fmax(1, fabs(want))))
                fail_msg("%s: element %lld of output %d is %.17g, not %.17g", describe(subject), (long long)k, i, got,
                         want);
        }
    }
}

static void check_forward(const Case *test, DType dtype, bool transposed)
{
    Subject subject = {.test = test, .dtype = dtype, .transposed = transposed};
    build(&subject);
    for (int i = 0; i < opcodes[test->op].outputs; i++) graph_add_output(&subject.graph, "y", subject.outputs[i]);
    Evaluator evaluator;
    evaluator_init(&evaluator, &subject.graph);
    if (run(&evaluator)) check_results(&subject, &evaluator);
    evaluator_free(&evaluator);
    destroy(&subject);
}

static bool seen[OP_COUNT]; /* checked in a forward case, or part of a gradient that was checked */

static void results_match_the_references(void **state)
{
    (void)state;
    for (int i = 0; i < operator_case_count; i++) {
        seen[operator_cases[i].op] = true;
        for (int transposed = 0; transposed < 2 - on_opencl; transposed++) {
            check_forward(&operator_cases[i], DTYPE_F32, transposed);
            if (on_opencl) continue; /* a driver takes long for every kernel */
            check_forward(&operator_cases[i], DTYPE_F64, transposed);
            check_forward(&operator_cases[i], DTYPE_F16, transposed);
        }
    }
}

/* ---- Gradients ---- */

/* The loss is a sum of all elements of the first output, each with a weight of its own, so that no mistake cancels. */
static ValueId add_loss(Subject *subject)
{
    Graph *graph = &subject->graph;
    Shape shape = graph_value(graph, subject->outputs[0])->shape;
    InputSpec spec = {CONSTANT, shape, 0.5, 1.5};
    Tensor weights = random_tensor(&spec, DTYPE_F64);
    ValueId weight = graph_add_constant(graph, NULL, DTYPE_F64, &shape, weights.data), loss = subject->outputs[0];
    free(weights.data);
    NodeOrigin origin = {.name = "loss"};
    Attribute keep = attribute_integer("keepdims", 0);
    assert_true(
        graph_add_node(graph, OP_Mul, origin, (ValueId[]){loss, weight}, 2, NULL, 0, &loss, 1, &subject->diagnostics));
    assert_true(graph_add_node(graph, OP_ReduceSum, origin, &loss, 1, &keep, 1, &loss, 1, &subject->diagnostics));
    return loss;
}

static double loss_at(Evaluator *evaluator, ValueId input, int64_t k, double value)
{
    double *data = evaluator->buffer[input], old = data[k];
    data[k] = value;
    assert_true(evaluator_run(evaluator));
    data[k] = old;
    return *(double *)evaluator->buffer[evaluator->graph->loss];
}

static void check_derivatives(const Subject *subject, Evaluator *forward, const Evaluator *evaluator)
{
    for (int i = 0; i < subject->input_count; i++) {
        InputKind kind = subject->test->inputs[i].kind;
        if (kind != REAL && kind != SPARSE) continue;
        ValueId input = subject->stored[i], gradient = subject->graph.gradients[input];
        if (subject->test->op == OP_Sign) { /* flat wherever it is smooth */
            assert_int_equal(gradient, 0);
            continue;
        }
        assert_true(gradient);
        const double *got = evaluator->buffer[gradient];
        int64_t count = shape_elements(&graph_value(&subject->graph, input)->shape);
        for (int64_t k = 0; k < count; k++) {
            double x = ((double *)forward->buffer[input])[k], h = 1e-5;
            double want = (loss_at(forward, input, k, x + h) - loss_at(forward, input, k, x - h)) / (2 * h);
            if (!(fabs(got[k] - want) <= 1e-6 * fmax(1, fabs(want))))
                fail_msg("%s: derivative by element %lld of input %d is %.10g, not %.10g", describe(subject),
                         (long long)k, i, got[k], want);
        }
    }
}

static void check_gradient(const Case *test, bool transposed)
{
    Subject subject = {.test = test, .dtype = DTYPE_F64, .transposed = transposed};
    build(&subject);
    batch.differentiated = test->op;
    subject.graph.loss = add_loss(&subject);
    Evaluator forward;
    evaluator_init(&forward, &subject.graph);
    bool ok = differentiate(&subject.graph, &subject.diagnostics);
    if (!ok) diagnostics_print(&subject.diagnostics, stderr);
    assert_true(ok);
    graph_verify(&subject.graph);
    Evaluator evaluator;
    evaluator_init(&evaluator, &subject.graph);
    for (NodeId n = 1; n < subject.graph.node_count; n++) seen[graph_node(&subject.graph, n)->op] = true;
    if (run(&evaluator)) check_derivatives(&subject, &forward, &evaluator);
    evaluator_free(&forward);
    evaluator_free(&evaluator);
    destroy(&subject);
}

static void gradients_match_finite_differences(void **state)
{
    (void)state;
    for (int i = 0; i < operator_case_count; i++)
        for (int transposed = 0; transposed < 2 - on_opencl && operator_cases[i].differentiable; transposed++)
            check_gradient(&operator_cases[i], transposed);
}

/* ---- Updates ---- */

enum { PARAMETERS = 9600, STEPS = 3 }; /* several parts of a sum (lower_part) */

typedef struct Training {
    double parameter, first, second; /* of one weight; momentum's velocity is `first` */
} Training;

static const double RATE = 0.01, BETA1 = 0.9, BETA2 = 0.99, EPSILON = 1e-6, DECAY = 0.1, SCALE = 0.5;

/* One step of LAMB for all weights, from the paper's Algorithm 2. */
static void reference_lamb(int step, const double *gradient, Training *weights)
{
    double length = 0, step_length = 0, direction[PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++) {
        Training *weight = &weights[i];
        double slope = gradient[i] * SCALE;
        weight->first = BETA1 * weight->first + (1 - BETA1) * slope;
        weight->second = BETA2 * weight->second + (1 - BETA2) * slope * slope;
        double mean = weight->first / (1 - pow(BETA1, step)), square = weight->second / (1 - pow(BETA2, step));
        direction[i] = mean / (sqrt(square) + EPSILON) + DECAY * weight->parameter;
        length += weight->parameter * weight->parameter;
        step_length += direction[i] * direction[i];
    }
    for (int i = 0; i < PARAMETERS; i++) weights[i].parameter -= RATE * sqrt(length / step_length) * direction[i];
}

/* One step as torch.optim describes it. */
static void reference_update(Opcode op, bool decoupled, int step, double gradient, Training *weight)
{
    gradient *= SCALE;
    if (decoupled)
        weight->parameter *= 1 - RATE * DECAY;
    else
        gradient += DECAY * weight->parameter;
    if (op == OP_SgdUpdate) {
        weight->parameter -= RATE * gradient;
    } else if (op == OP_MomentumUpdate) {
        weight->first = BETA1 * weight->first + gradient;
        weight->parameter -= RATE * weight->first;
    } else {
        weight->first = BETA1 * weight->first + (1 - BETA1) * gradient;
        weight->second = BETA2 * weight->second + (1 - BETA2) * gradient * gradient;
        double mean = weight->first / (1 - pow(BETA1, step)), square = weight->second / (1 - pow(BETA2, step));
        weight->parameter -= RATE * mean / (sqrt(square) + EPSILON);
    }
}

static void check_update(Opcode op, bool decoupled)
{
    Graph graph;
    Diagnostics diagnostics = {0};
    graph_init(&graph, "test");
    InputSpec spec = {REAL, SHAPE(3, PARAMETERS / 3), -1, 1};
    Tensor start = random_tensor(&spec, DTYPE_F64), slope = random_tensor(&spec, DTYPE_F64);
    ValueId parameter = graph_add_parameter(&graph, "w", DTYPE_F64, &spec.shape, start.data);
    ValueId gradient = graph_add_input(&graph, "g", DTYPE_F64, &spec.shape), scalars = graph_step_scalars(&graph);
    ValueId inputs[5] = {parameter, gradient, scalars, graph_add_state(&graph, "m", parameter),
                         graph_add_state(&graph, "v", parameter)};
    Attribute attribute = attribute_integer("decoupled", decoupled);
    NodeOrigin origin = {.name = "update", .phase = PHASE_UPDATE};
    assert_true(
        graph_add_node(&graph, op, origin, inputs, opcodes[op].least_inputs, &attribute, 1, NULL, 0, &diagnostics));
    seen[op] = true;
    Evaluator evaluator;
    evaluator_init(&evaluator, &graph);
    Training weights[PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++) weights[i] = (Training){.parameter = start.data[i]};
    for (int t = 1; t <= STEPS; t++) {
        float *scalar = evaluator.buffer[scalars];
        scalar[SKY_STEP_LEARNING_RATE] = (float)RATE;
        scalar[SKY_STEP_BETA1] = (float)BETA1;
        scalar[SKY_STEP_BETA2] = (float)BETA2;
        scalar[SKY_STEP_EPSILON] = (float)EPSILON;
        scalar[SKY_STEP_WEIGHT_DECAY] = (float)DECAY;
        scalar[SKY_STEP_CORRECTION1] = (float)(1 / (1 - pow(BETA1, t)));
        scalar[SKY_STEP_CORRECTION2] = (float)(1 / (1 - pow(BETA2, t)));
        scalar[SKY_STEP_GRADIENT_SCALE] = (float)SCALE;
        for (int i = 0; i < PARAMETERS; i++) {
            double value = slope.data[i] * t;
            ((double *)evaluator.buffer[gradient])[i] = value;
            if (op != OP_LambUpdate) reference_update(op, decoupled, t, value, &weights[i]);
        }
        if (op == OP_LambUpdate) reference_lamb(t, evaluator.buffer[gradient], weights);
        bool has_results = run(&evaluator);
        if (!has_results) assert_true(evaluator_run(&evaluator)); /* where the next step begins */
        for (int i = 0; i < PARAMETERS && has_results; i++)
            assert_true(fabs(((double *)evaluator.buffer[parameter])[i] - weights[i].parameter) < 1e-6 * t);
    }
    evaluator_free(&evaluator);
    graph_free(&graph);
    diagnostics_free(&diagnostics);
    free(start.data), free(slope.data);
}

static void updates_match_their_definitions(void **state)
{
    (void)state;
    check_update(OP_SgdUpdate, false);
    check_update(OP_MomentumUpdate, false);
    check_update(OP_AdamUpdate, false);
    check_update(OP_AdamUpdate, true);
    check_update(OP_LambUpdate, false);
}

/* ---- Codings ---- */

enum { CODED_ROWS = 6, CODED_COLUMNS = 70 };

/* A tensor [3, 2, 70], in either layout, in a micro-batch that begins with row 5: bytes and what comes back, against
 * rows coded one by one. */
static void check_coding(Codec codec, bool stochastic, bool transposed)
{
    static const InputSpec spec = {REAL, SHAPE(3, 2, CODED_COLUMNS), -2, 2};
    static const InputSpec key_spec = {KNOWN, SHAPE(1), -99, 99},
                           scalars_spec = {SCALARS, SHAPE(SKY_STEP_SCALARS), 0, 1};
    const Case test = {.op = OP_Encode, .inputs = {spec, key_spec, scalars_spec}};
    Subject subject = {.test = &test, .dtype = DTYPE_F32, .transposed = transposed};
    Graph *graph = &subject.graph;
    graph_init(graph, "test");
    ValueId inputs[3], bytes, back;
    for (; subject.input_count < 3; subject.input_count++)
        inputs[subject.input_count] = add_input(&subject, subject.input_count);
    Attribute attributes[] = {attribute_string("codec", codec_name(codec)),
                              attribute_integer(stochastic ? "row" : "columns", stochastic ? 140 : CODED_COLUMNS)};
    NodeOrigin origin = {.name = "subject"};
    assert_true(graph_add_node(graph, OP_Encode, origin, inputs, stochastic ? 3 : 1, attributes, 2, &bytes, 1,
                               &subject.diagnostics));
    attributes[1] = attribute_integer("columns", CODED_COLUMNS);
    assert_true(graph_add_node(graph, OP_Decode, origin, &bytes, 1, attributes, 2, &back, 1, &subject.diagnostics));
    seen[OP_Encode] = seen[OP_Decode] = true;
    Evaluator evaluator;
    evaluator_init(&evaluator, graph);
    int64_t first_row = 5, step_key = 77;
    float *scalars = evaluator.buffer[inputs[2]];
    memcpy(&scalars[SKY_STEP_FIRST_ROW], &first_row, sizeof first_row);
    memcpy(&scalars[SKY_STEP_RANDOM_KEY], &step_key, sizeof step_key);
    bool has_results = run(&evaluator);
    int64_t row_bytes = codec_row_bytes(codec, CODED_COLUMNS);
    for (int r = 0; r < CODED_ROWS && has_results; r++) {
        float row[CODED_COLUMNS], decoded[CODED_COLUMNS];
        uint8_t coded[4 * CODED_COLUMNS];
        for (int i = 0; i < CODED_COLUMNS; i++) row[i] = (float)subject.input[0].data[r * CODED_COLUMNS + i];
        CodecRounding rounding = {stochastic, (uint64_t)((int64_t)subject.input[1].data[0] + step_key),
                                  (uint64_t)(first_row * 2 + r) * CODED_COLUMNS};
        codec_encode_row(codec, row, CODED_COLUMNS, rounding, coded);
        codec_decode_row(codec, coded, CODED_COLUMNS, decoded);
        assert_memory_equal((char *)evaluator.buffer[bytes] + r * row_bytes, coded, (size_t)row_bytes);
        assert_memory_equal((float *)evaluator.buffer[back] + r * CODED_COLUMNS, decoded, sizeof decoded);
    }
    evaluator_free(&evaluator);
    destroy(&subject);
}

static void codings_code_row_by_row(void **state)
{
    (void)state;
    for (int codec = CODEC_BF16; codec < CODEC_COUNT; codec++)
        for (int way = 0; way < 4 - 2 * on_opencl; way++) check_coding((Codec)codec, way & 1, way & 2);
}

static void every_operator_was_checked(void **state)
{
    (void)state;
    for (int op = OP_NONE + 1; op < OP_COUNT; op++)
        if (!seen[op]) fail_msg("%s has no case", opcodes[op].name);
}

/* On the first OpenCL device: few programs, as a driver takes long for each, and more than one, as oclgrind takes for
 * every kernel as long as the memory of its program is large. */
static void all_cases_run_as_few_programs(void **state)
{
    enum { CALLS = 512 };
    results_match_the_references(state);
    gradients_match_finite_differences(state);
    updates_match_their_definitions(state);
    codings_code_row_by_row(state);
    for (size_t done = 0; done < batch.call_count; done += CALLS) {
        size_t rest = batch.call_count - done;
        opencl_run_calls(&batch.calls[done], rest < CALLS ? rest : CALLS, batch.data, batch.bytes, batch.count);
    }
    batch.ran = true;
}

/* With the argument "opencl": there; 77 after printing why there is no device. */
int main(int argc, char **argv)
{
    on_opencl = argc > 1 && strcmp(argv[1], "opencl") == 0;
    if (on_opencl && opencl_missing()) {
        printf("skipped: %s\n", opencl_missing());
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_cases_run_as_few_programs),
        cmocka_unit_test(results_match_the_references),
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(updates_match_their_definitions),
        cmocka_unit_test(codings_code_row_by_row),
        cmocka_unit_test(every_operator_was_checked),
    };
    int failures =
        _cmocka_run_group_tests("ops", tests + !on_opencl, sizeof tests / sizeof *tests - !on_opencl, NULL, NULL);
    free(batch.calls), free(batch.data), free(batch.bytes);
    arena_free(&batch.arena);
    return failures;
}
