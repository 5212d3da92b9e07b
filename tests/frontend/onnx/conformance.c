/* Runs ONNX's own operator test cases through the importer, and then the interpreter or, with --compiled, compiled
 * code.
 *
 *   conformance [--compiled] FOLDER...
 *
 * A folder holds cases.json, a list of {"case"}, and a folder per case with model.onnx and
 * test_data_set_0/{input,output}_N.pb. ONNX's tolerances hold, or |error| <= "tolerance" where a case has that; the
 * largest error is printed then. Prints a line for every case that is not passed, with the reason, and a summary:
 * passed, failed, refused (a shape depends on what is computed), excused (nobody could pass), outside (operators or
 * element types that skycc does not promise). Ends with 1 if a case failed. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontend/onnx/import.h"
#include "runtime/program/step_scalars.h"
#include "tests/common/graph_evaluator.h"
#include "tests/frontend/onnx/compiled_calls.h"
#include "tests/frontend/onnx/conformance_scope.h"

enum { MOST_TENSORS = 64 };

typedef enum Verdict { PASSED, FAILED, REFUSED, EXCUSED, OUTSIDE, VERDICTS } Verdict;

static bool compiled; /* --compiled */

/* A test case, and what is read of it. */
typedef struct Case {
    const char *folder;
    double tolerance; /* absolute; 0: ONNX's own tolerances */
    bool random;      /* only what chance leaves no doubt about is checked */
    Arena arena;
    OnnxModel files[2 * MOST_TENSORS]; /* of the tensors below */
    OnnxTensor inputs[MOST_TENSORS], outputs[MOST_TENSORS];
    int input_count, output_count;
    double largest_error;
} Case;

/* ---- Reading ---- */

/* The element type that the model declares for a value; 0 if it is no tensor. */
static int32_t declared_type(const Onnx__ValueInfoProto *value)
{
    const Onnx__TypeProto *type = value->type;
    return type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? type->tensor_type->elem_type : 0;
}

/* Brings a tensor whose type is not the declared one into that. */
static void convert_tensor(Case *test, OnnxTensor *tensor, DType dtype)
{
    if (tensor->dtype == dtype || dtype == DTYPE_NONE) return;
    int64_t elements = shape_elements(&tensor->shape);
    void *data = arena_allocate(&test->arena, (size_t)elements * dtype_size(dtype));
    for (int64_t i = 0; i < elements; i++)
        element_store_double(dtype, data, i, element_as_double(tensor->dtype, tensor->data, i));
    tensor->data = data;
    tensor->dtype = dtype;
}

/* ONNX before 1.13 wrote bfloat16 elements as uint16. */
static Verdict read_tensor(Case *test, OnnxModel *file, const char *path, int32_t declared, OnnxTensor *tensor,
                           Diagnostics *diagnostics)
{
    *file = (OnnxModel){.path = path, .external = {.model_path = path}};
    const MappedFile *mapped = &file->file;
    ProtobufCAllocator allocator = onnx_allocator(&file->arena);
    char reason[256];
    if (!file_map(&file->file, path, diagnostics)) return FAILED;
    Onnx__TensorProto *proto = onnx__tensor_proto__unpack(&allocator, mapped->size, mapped->bytes);
    if (!proto) return printf("%s is no tensor", path), FAILED;
    if (declared == ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16 &&
        proto->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__UINT16)
        proto->data_type = declared;
    if (!scope_has_type(proto->data_type, reason)) return printf("%s", reason), OUTSIDE;
    if (!onnx_tensor_elements(file, proto, NULL, path, tensor, diagnostics)) return FAILED;
    if (!tensor->data) tensor->data = ""; /* no elements */
    convert_tensor(test, tensor, onnx_dtype(declared));
    return PASSED;
}

static Verdict read_tensors(Case *test, const char *kind, Onnx__ValueInfoProto *const *declared, size_t declared_count,
                            OnnxModel *files, OnnxTensor *tensors, int *count, Diagnostics *diagnostics)
{
    for (*count = 0; *count < MOST_TENSORS && (size_t)*count < declared_count; (*count)++) {
        const char *path = arena_format(&test->arena, "%s/test_data_set_0/%s_%d.pb", test->folder, kind, *count);
        if (access(path, R_OK) != 0) break;
        Verdict verdict =
            read_tensor(test, &files[*count], path, declared_type(declared[*count]), &tensors[*count], diagnostics);
        if (verdict != PASSED) return verdict;
    }
    return *count || strcmp(kind, "output") != 0 ? PASSED : (printf("there is no output to compare with"), FAILED);
}

/* ---- Checking ---- */

static bool same_kind(const OnnxTensor *expected, const Value *value)
{
    char a[256], b[256];
    if (expected->dtype == value->dtype && shape_equal(&expected->shape, &value->shape)) return true;
    printf("expected %s %s, got %s %s", dtype_name(expected->dtype), shape_format(&expected->shape, a),
           dtype_name(value->dtype), shape_format(&value->shape, b));
    return false;
}

static bool close_enough(Case *test, const OnnxTensor *expected, const void *data)
{
    bool half = expected->dtype == DTYPE_F16 || expected->dtype == DTYPE_BF16;
    double relative = test->tolerance > 0 ? 0 : half ? 1e-2 : 1e-3;
    double absolute = test->tolerance > 0 ? test->tolerance : 1e-7;
    for (int64_t i = 0; i < shape_elements(&expected->shape); i++) {
        double want = element_as_double(expected->dtype, expected->data, i),
               got = element_as_double(expected->dtype, data, i), error = fabs(want - got);
        if ((isnan(want) && isnan(got)) || want == got) continue;
        if (!(error <= absolute + relative * fabs(want))) {
            printf("element %lld is %g instead of %g", (long long)i, got, want);
            return false;
        }
        if (error > test->largest_error) test->largest_error = error;
    }
    return true;
}

/* Which elements a Dropout drops is chance; how many is less so (six standard deviations), and what becomes of each,
 * and of the mask, is certain. Inputs: data, ratio (0.5), training. */
static bool plausible_dropout(const Case *test, const void *result, const void *mask)
{
    const OnnxTensor *x = &test->inputs[0], *ratio = test->input_count > 1 ? &test->inputs[1] : NULL;
    double p = ratio ? element_as_double(ratio->dtype, ratio->data, 0) : 0.5;
    int64_t elements = shape_elements(&x->shape), kept = 0;
    for (int64_t i = 0; i < elements; i++) {
        double before = element_as_double(x->dtype, x->data, i), after = element_as_double(x->dtype, result, i);
        bool here = mask ? element_as_integer(DTYPE_BOOL, mask, i) != 0 : after != 0;
        double want = here ? before / (1 - p) : 0;
        if (fabs(after - want) > 1e-6 * fabs(want)) {
            printf("element %lld is %g instead of %g", (long long)i, after, want);
            return false;
        }
        kept += here;
    }
    double mean = (double)elements * (1 - p), deviation = sqrt((double)elements * p * (1 - p));
    if (fabs((double)kept - mean) <= 6 * deviation) return true;
    printf("%lld of %lld elements were kept at ratio %g", (long long)kept, (long long)elements, p);
    return false;
}

/* ---- Running ---- */

/* What nothing reads (the second input of CastLike, whose type counts alone) need not have the declared shape. */
static bool is_read(const Graph *graph, ValueId value)
{
    for (NodeId n = 1; n < graph->node_count; n++)
        for (int i = 0; graph_node(graph, n)->op != OP_NONE && i < graph_node(graph, n)->input_count; i++)
            if (graph_node(graph, n)->inputs[i] == value) return true;
    for (size_t i = 0; i < graph->output_count; i++)
        if (graph->outputs[i].value == value) return true;
    return false;
}

static bool set_inputs(const Case *test, Evaluator *evaluator)
{
    Graph *graph = evaluator->graph;
    for (int i = 0; i < test->input_count && (size_t)i < graph->input_count; i++) {
        const Value *value = graph_value(graph, graph->inputs[i]);
        if (!is_read(graph, graph->inputs[i])) continue;
        if (!same_kind(&test->inputs[i], value)) return false;
        size_t bytes = (size_t)shape_elements(&value->shape) * dtype_size(value->dtype);
        if (bytes) memcpy(evaluator->buffer[graph->inputs[i]], test->inputs[i].data, bytes);
    }
    if (!graph->scalars) return true;
    float scalars[SKY_STEP_SCALARS] = {[SKY_STEP_DROPOUT] = 1};
    for (int l = 0; l < graph->label_count; l++) {
        const Labels *labels = &graph->labels[l];
        const Value *value = graph_value(graph, labels->input);
        int64_t valid = 0;
        for (int64_t k = 0; k < shape_elements(&value->shape); k++)
            valid += element_as_integer(value->dtype, evaluator->buffer[labels->input], k) != labels->ignore_index;
        scalars[loss_scale_element(l)] = valid ? 1.0f / (float)valid : 1;
    }
    memcpy(evaluator->buffer[graph->scalars], scalars, sizeof scalars);
    return true;
}

static bool evaluate(Case *test, Graph *graph)
{
    Evaluator evaluator;
    graph_remove_dead(graph);
    evaluator_init(&evaluator, graph);
    bool ok = set_inputs(test, &evaluator);
    if (ok && !(compiled ? compiled_calls_run : evaluator_run)(&evaluator)) ok = (printf("did not run"), false);
    void *result[MOST_TENSORS] = {0};
    for (int i = 0; ok && i < test->output_count; i++) {
        ValueId value = graph->outputs[i].value;
        result[i] = evaluator.buffer[value];
        ok = same_kind(&test->outputs[i], graph_value(graph, value)) &&
             (test->random || close_enough(test, &test->outputs[i], result[i]));
    }
    if (ok && test->random) ok = plausible_dropout(test, result[0], result[1]);
    evaluator_free(&evaluator);
    return ok;
}

/* A refusal is good only where a shape depends on the numbers computed. */
static Verdict refused(const Diagnostics *diagnostics)
{
    diagnostics_print(diagnostics, stdout);
    for (const Diagnostic *d = diagnostics->first; d; d = d->next)
        if (d->is_error && !strstr(d->message, "must be known at compile time")) return FAILED;
    return REFUSED;
}

static Verdict run_model(Case *test, const OnnxModel *model, const char *path, Diagnostics *diagnostics)
{
    char reason[256];
    if (!scope_has_model(model->proto, reason)) return printf("%s", reason), OUTSIDE;
    const Onnx__GraphProto *proto = model->proto->graph;
    Verdict verdict = read_tensors(test, "input", proto->input, proto->n_input, test->files, test->inputs,
                                   &test->input_count, diagnostics);
    if (verdict == PASSED)
        verdict = read_tensors(test, "output", proto->output, proto->n_output, test->files + MOST_TENSORS,
                               test->outputs, &test->output_count, diagnostics);
    if (verdict != PASSED) return diagnostics_print(diagnostics, stdout), verdict;

    Graph graph;
    ImportedModel imported;
    InputShape shapes[MOST_TENSORS];
    for (int i = 0; i < test->input_count; i++)
        shapes[i] = (InputShape){NULL, test->inputs[i].shape, test->inputs[i].dtype, test->inputs[i].data};
    ImportOptions options = {.input_shapes = shapes, .input_shape_count = (size_t)test->input_count};
    graph_init(&graph, path);
    bool accepted = import_onnx(&graph, &imported, path, &options, diagnostics);
    verdict = !accepted ? refused(diagnostics) : evaluate(test, &graph) ? PASSED : FAILED;
    graph_free(&graph);
    return verdict;
}

/* Frees what it has read. */
static Verdict run_case(Case *test)
{
    Diagnostics diagnostics = {0};
    const char *path = arena_format(&test->arena, "%s/model.onnx", test->folder);
    OnnxModel model;
    Verdict verdict = FAILED;
    if (onnx_model_open(&model, path, false, &diagnostics)) {
        verdict = run_model(test, &model, path, &diagnostics);
        onnx_model_close(&model);
    } else {
        diagnostics_print(&diagnostics, stdout);
    }
    for (int i = 0; i < test->input_count; i++) onnx_model_close(&test->files[i]);
    for (int i = 0; i < test->output_count; i++) onnx_model_close(&test->files[MOST_TENSORS + i]);
    diagnostics_free(&diagnostics);
    arena_free(&test->arena);
    return verdict;
}

/* ---- All cases ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Cases whose elements are dropped by the random numbers of another program. */
static bool is_random(const char *path)
{
    static const char *const ends[] = {"/test_training_dropout", "/test_training_dropout_default",
                                       "/test_training_dropout_mask", "/test_training_dropout_default_mask"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(path, ends[i])) return true;
    return false;
}

/* Why nobody can pass a case; NULL if one can. */
static const char *excuse(const char *path)
{
    if (ends_with(path, "1.12/node/test_adam_multiple"))
        return "its model lacks the epsilon that its outputs were computed with";
    return NULL;
}

/* Runs the cases from `first` on and writes of each what it prints, a zero and its verdict. */
static void run_cases(const char *folder, const json_t *cases, size_t first)
{
    for (size_t i = first; i < json_array_size(cases); i++) {
        const json_t *description = json_array_get(cases, i);
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, json_string_value(json_object_get(description, "case")));
        Case test = {.folder = path,
                     .tolerance = json_number_value(json_object_get(description, "tolerance")),
                     .random = is_random(path)};
        const char *why = excuse(path);
        Verdict verdict = why ? EXCUSED : run_case(&test);
        if (why) printf("%s", why);
        if (verdict == PASSED && test.tolerance > 0) printf("largest error %.2g", test.largest_error);
        putchar('\0');
        putchar((int)verdict);
        fflush(stdout);
    }
}

/* run_cases in a process of its own, from whose output what it found is read. */
static FILE *start(const char *folder, const json_t *cases, size_t first, pid_t *child)
{
    int ends[2];
    if (pipe(ends) != 0) abort();
    fflush(stdout);
    *child = fork();
    if (*child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        run_cases(folder, cases, first);
        _exit(0);
    }
    close(ends[1]);
    return fdopen(ends[0], "r");
}

/* The next case's; a process that ends before it says so has crashed in that case. */
static Verdict read_verdict(FILE *found, char *text, size_t size)
{
    size_t used = 0;
    int c;
    while ((c = getc(found)) != EOF && c != '\0')
        if (used < size - 1) text[used++] = (char)c;
    text[used] = '\0';
    c = c == EOF ? EOF : getc(found);
    return c >= 0 && c < VERDICTS ? (Verdict)c : VERDICTS;
}

static FILE *finish(FILE *found, pid_t child)
{
    fclose(found);
    waitpid(child, NULL, 0);
    return NULL;
}

static void run_folder(const char *folder, int counts[VERDICTS])
{
    static const char *const words[VERDICTS] = {"passed", "failed", "refused", "excused", "outside"};
    char path[1024], text[8192];
    snprintf(path, sizeof path, "%s/cases.json", folder);
    json_t *cases = json_load_file(path, 0, NULL);
    if (!cases) {
        printf("failed %s: cannot be read\n", path);
        counts[FAILED]++;
    }
    FILE *found = NULL;
    pid_t child = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        if (!found) found = start(folder, cases, i, &child);
        Verdict verdict = read_verdict(found, text, sizeof text);
        if (verdict == VERDICTS) { /* the cases after it get another process */
            found = finish(found, child);
            verdict = FAILED;
        }
        counts[verdict]++;
        const char *name = json_string_value(json_object_get(json_array_get(cases, i), "case"));
        if (verdict != PASSED || *text)
            printf("%s %s/%s: %s%s", words[verdict], folder, name, text, ends_with(text, "\n") ? "" : "\n");
    }
    if (found) finish(found, child);
    json_decref(cases);
}

int main(int argc, char **argv)
{
    int counts[VERDICTS] = {0}, first = 1;
    if (argc > 1 && strcmp(argv[1], "--compiled") == 0) {
        compiled = true;
        first++;
    }
    for (int a = first; a < argc; a++) run_folder(argv[a], counts);
    printf("%d passed, %d failed, %d refused, %d excused, %d outside\n", counts[PASSED], counts[FAILED],
           counts[REFUSED], counts[EXCUSED], counts[OUTSIDE]);
    return counts[FAILED] > 0 || counts[PASSED] == 0;
}
