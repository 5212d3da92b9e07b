/* Runs ONNX's own operator test cases through the importer, and then the interpreter or, with --compiled, compiled
 * code.
 *
 *   conformance [--compiled] FOLDER...
 *
 * A folder holds cases.json, a list of {"case", "ops", "elem_types"}, and a folder per case with model.onnx and
 * test_data_set_0/{input,output}_N.pb. Prints a line for every case that is not passed and a summary: passed, failed,
 * refused (a diagnostic says why), outside (operators or element types that skycc does not list). Ends with 1 if a case
 * failed. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/step_scalars.h"
#include "codegen/codegen.h"
#include "frontend/import.h"
#include "frontend/tensor.h"
#include "tests/graph_evaluator.h"

enum { MOST_TENSORS = 64 };

typedef enum Verdict { PASSED, FAILED, REFUSED, OUTSIDE, VERDICTS } Verdict;

typedef struct CaseTensor {
    DType dtype;
    Shape shape;
    const void *data;
} CaseTensor;

static int read_tensors(const char *folder, const char *kind, Arena *arena, CaseTensor *tensors,
                        Diagnostics *diagnostics)
{
    for (int i = 0;; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/test_data_set_0/%s_%d.pb", folder, kind, i);
        if (i == MOST_TENSORS || access(path, R_OK) != 0) return i;
        CaseTensor *tensor = &tensors[i];
        if (!onnx_tensor_read(path, arena, &tensor->dtype, &tensor->shape, &tensor->data, diagnostics)) return -1;
    }
}

static bool close_enough(const CaseTensor *expected, const Value *value, const void *data)
{
    if (expected->dtype != value->dtype || !shape_equal(&expected->shape, &value->shape)) {
        char a[256], b[256];
        printf("expected %s %s, got %s %s: ", dtype_name(expected->dtype), shape_format(&expected->shape, a),
               dtype_name(value->dtype), shape_format(&value->shape, b));
        return false;
    }
    double relative = expected->dtype == DTYPE_F16 || expected->dtype == DTYPE_BF16 ? 1e-2 : 1e-3;
    for (int64_t i = 0; i < shape_elements(&expected->shape); i++) {
        double want = element_as_double(expected->dtype, expected->data, i),
               got = element_as_double(value->dtype, data, i);
        if ((isnan(want) && isnan(got)) || want == got) continue;
        if (fabs(want - got) <= 1e-7 + relative * fabs(want)) continue;
        printf("element %lld is %g instead of %g: ", (long long)i, got, want);
        return false;
    }
    return true;
}

static bool compiled; /* --compiled */

/* Runs all calls as compiled for this machine. */
static bool run_compiled(Evaluator *evaluator)
{
    const Lowering *lowering = &evaluator->lowering;
    Diagnostics diagnostics = {0};
    Target target;
    const Kernel **kernels = memory_allocate((lowering->call_count + 1) * sizeof *kernels);
    for (size_t i = 0; i < lowering->call_count; i++) kernels[i] = lowering->calls[i].kernel;
    if (!target_init(&target, (TargetOptions){0}, &diagnostics)) return false;
    CompiledKernels *code = codegen_compile(kernels, lowering->call_count, &target, (CodegenOptions){0}, &diagnostics);
    JitProgram *jit = code ? jit_load(code, &diagnostics) : NULL;
    for (size_t i = 0; i < lowering->call_count && jit; i++) {
        void *address[KERNEL_MAX_OPERANDS];
        evaluator_addresses(evaluator, &lowering->calls[i], address);
        const CompiledKernel *kernel = codegen_find(code, kernels[i]);
        void *scratch = aligned_alloc(64, (kernel->scratch_bytes + 64) / 64 * 64);
        if (kernel->units) jit_find(jit, kernel)(address, 0, kernel->units, scratch);
        free(scratch);
    }
    diagnostics_print(&diagnostics, stdout);
    free(kernels);
    return jit != NULL;
}

static Verdict evaluate(Graph *graph, const CaseTensor *inputs, int input_count, const CaseTensor *outputs,
                        int output_count)
{
    Evaluator evaluator;
    graph_remove_dead(graph);
    evaluator_init(&evaluator, graph);
    for (int i = 0; i < input_count && (size_t)i < graph->input_count; i++) {
        const Value *value = graph_value(graph, graph->inputs[i]);
        if (value->dtype != inputs[i].dtype || !shape_equal(&value->shape, &inputs[i].shape))
            return printf("input %d: ", i), FAILED;
        memcpy(evaluator.buffer[graph->inputs[i]], inputs[i].data,
               (size_t)shape_elements(&value->shape) * dtype_size(value->dtype));
    }
    if (graph->scalars) {
        float scalars[SKY_STEP_SCALARS] = {0};
        int64_t valid = 0;
        const void *labels = evaluator.buffer[graph->labels];
        for (int64_t i = 0; graph->labels && i < shape_elements(&graph_value(graph, graph->labels)->shape); i++)
            valid += element_as_integer(graph_value(graph, graph->labels)->dtype, labels, i) != graph->ignore_index;
        scalars[0] = valid ? 1.0f / (float)valid : 1;
        memcpy(evaluator.buffer[graph->scalars], scalars, sizeof scalars);
    }
    if (!(compiled ? run_compiled : evaluator_run)(&evaluator)) return printf("did not run: "), FAILED;
    for (int i = 0; i < output_count; i++) {
        ValueId value = graph->outputs[i].value;
        if (!close_enough(&outputs[i], graph_value(graph, value), evaluator.buffer[value])) return FAILED;
    }
    evaluator_free(&evaluator);
    return PASSED;
}

static Verdict run_case(const char *folder)
{
    Diagnostics diagnostics = {0};
    Arena arena = {0};
    CaseTensor inputs[MOST_TENSORS], outputs[MOST_TENSORS];
    const char *path = arena_format(&arena, "%s/model.onnx", folder);
    int input_count = read_tensors(folder, "input", &arena, inputs, &diagnostics);
    int output_count = read_tensors(folder, "output", &arena, outputs, &diagnostics);
    Graph graph;
    ImportedModel model;
    InputShape shapes[MOST_TENSORS];
    ImportOptions options = {.input_shapes = shapes, .dropout_off = false};
    for (int i = 0; i < input_count; i++)
        shapes[options.input_shape_count++] = (InputShape){NULL, inputs[i].shape, inputs[i].dtype, inputs[i].data};
    graph_init(&graph, path);
    bool imported = diagnostics.errors == 0 && import_onnx(&graph, &model, path, &options, &diagnostics);
    Verdict verdict = REFUSED;
    if (imported)
        verdict = evaluate(&graph, inputs, input_count, outputs, output_count);
    else
        diagnostics_print(&diagnostics, stdout);
    return verdict;
}

/* In a process of its own: a crash is one failed case. Its output goes into `text`. */
static Verdict run_apart(const char *folder, char *text, size_t size)
{
    int ends[2];
    if (pipe(ends) != 0) abort();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        Verdict verdict = run_case(folder);
        fflush(stdout);
        _exit((int)verdict);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n; (n = read(ends[0], text + used, size - 1 - used)) > 0;) used += (size_t)n;
    text[used] = '\0';
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) < VERDICTS ? (Verdict)WEXITSTATUS(status) : FAILED;
}

#define DROPOUT_REASON "its elements were dropped by the random numbers of another program"

/* Cases that contradict themselves, or that nobody can fulfil, by the end of their path. */
static const struct {
    const char *name, *reason;
} broken_cases[] = {
    {"/node/test_training_dropout", DROPOUT_REASON},
    {"/node/test_training_dropout_default", DROPOUT_REASON},
    {"/node/test_training_dropout_mask", DROPOUT_REASON},
    {"/node/test_training_dropout_default_mask", DROPOUT_REASON},
    {"1.12/node/test_adam_multiple", "its model lacks the epsilon that its outputs were computed with"},
};

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Why a case is none of skycc's business; NULL if it is. */
static const char *outside(const char *path, const json_t *description, char reason[static 256])
{
    for (size_t i = 0; i < sizeof broken_cases / sizeof broken_cases[0]; i++)
        if (ends_with(path, broken_cases[i].name)) return broken_cases[i].reason;
    const char *op;
    json_t *count;
    json_object_foreach(json_object_get(description, "ops"), op, count)
    {
        const char *colons = strstr(op, "::");
        char domain[128] = "";
        if (colons) snprintf(domain, sizeof domain, "%.*s", (int)(colons - op), op);
        if (!onnx_operator_supported(domain, colons ? colons + 2 : op)) {
            snprintf(reason, 256, "operator %s", op);
            return reason;
        }
    }
    size_t i;
    json_t *type;
    json_array_foreach(json_object_get(description, "elem_types"), i, type)
    {
        int32_t number = (int32_t)json_integer_value(type);
        if (onnx_dtype(number) == DTYPE_NONE) {
            snprintf(reason, 256, "type %s", onnx_data_type_name(number));
            return reason;
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static const char *const words[VERDICTS] = {"passed", "failed", "refused", "outside"};
    int counts[VERDICTS] = {0}, first = 1;
    if (argc > 1 && strcmp(argv[1], "--compiled") == 0) {
        compiled = true;
        first++;
    }
    for (int a = first; a < argc; a++) {
        char path[1024], text[8192], reason[256];
        snprintf(path, sizeof path, "%s/cases.json", argv[a]);
        json_t *cases = json_load_file(path, 0, NULL), *description;
        size_t i;
        json_array_foreach(cases, i, description)
        {
            const char *name = json_string_value(json_object_get(description, "case"));
            snprintf(path, sizeof path, "%s/%s", argv[a], name);
            text[0] = '\0';
            const char *why = outside(path, description, reason);
            Verdict verdict = why ? OUTSIDE : run_apart(path, text, sizeof text);
            counts[verdict]++;
            if (verdict != PASSED) printf("%s %s: %s\n", words[verdict], path, why ? why : text);
        }
        json_decref(cases);
    }
    printf("%d passed, %d failed, %d refused, %d outside\n", counts[PASSED], counts[FAILED], counts[REFUSED],
           counts[OUTSIDE]);
    return counts[FAILED] > 0;
}
