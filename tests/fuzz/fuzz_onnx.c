/* An ONNX model on its way to a training graph: wire scan, import with shape inference and folding, fusion, layers,
 * loss, gradients, updates. What is small enough is then lowered and interpreted, with extreme numbers as inputs. */
#include <string.h>

#include "driver/compile/training_model.h"
#include "frontend/onnx/external_data.h"
#include "tests/common/graph_evaluator.h"
#include "tests/frontend/onnx/model_changes.h"
#include "tests/fuzz/fuzz.h"

const ExternalFile *__real_external_data_open(ExternalData *data, const char *location, Place place,
                                              Diagnostics *diagnostics);
const ExternalFile *__wrap_external_data_open(ExternalData *data, const char *location, Place place,
                                              Diagnostics *diagnostics);

/* One file of weights exists, of 64 bytes; the model's own folder does not. */
const ExternalFile *__wrap_external_data_open(ExternalData *data, const char *location, Place place,
                                              Diagnostics *diagnostics)
{
    static const _Alignas(16) unsigned char weights[64] = {1, 2, 3};
    static const ExternalFile present = {.location = "w.bin", .path = "w.bin", .file = {weights, sizeof weights, true}};
    if (strcmp(location, present.location) == 0) return &present;
    return __real_external_data_open(data, location, place, diagnostics);
}

/* Elements of all values; a large number beyond `most`. */
static int64_t count_elements(const Graph *graph, int64_t most)
{
    int64_t total = 0;
    for (ValueId v = 1; v < graph->value_count && total <= most; v++) {
        int64_t elements = onnx_shape_volume(&graph_value(graph, v)->shape);
        total += elements < 0 || elements > most ? most + 1 : elements;
    }
    return total;
}

static double count_iterations(const Lowering *lowering)
{
    double total = 0;
    for (size_t c = 0; c < lowering->call_count; c++) {
        const Kernel *kernel = lowering->calls[c].kernel;
        double product = 1;
        for (int a = 0; a < kernel->axis_count; a++) product *= kernel->extent[a] ? (double)kernel->extent[a] : 1;
        total += product;
    }
    return total;
}

/* Whatever indices say, no element outside of a tensor is touched. */
static void interpret(Graph *graph)
{
    enum { MOST_ELEMENTS = 1 << 14, MOST_ITERATIONS = 1 << 20 };
    static const double extremes[] = {0, -1, 1, 0x1p62, -0x1p63, 7, -0x1p31, 1e300};
    if (count_elements(graph, MOST_ELEMENTS) > MOST_ELEMENTS) return;
    Evaluator evaluator;
    evaluator_init(&evaluator, graph);
    for (size_t i = 0; i < graph->input_count; i++) {
        const Value *value = graph_value(graph, graph->inputs[i]);
        for (int64_t k = 0, n = shape_elements(&value->shape); k < n; k++)
            element_store_double(value->dtype, evaluator.buffer[graph->inputs[i]], k, extremes[(size_t)k % 8]);
    }
    if (count_iterations(&evaluator.lowering) <= MOST_ITERATIONS && !evaluator_run(&evaluator))
        bug("an index is out of range");
    evaluator_free(&evaluator);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    static const ModelOptions variants[] = {
        {.train = true},
        {.want_loss = true, .import = {.dropout_given = true, .dropout = 0.1}},
        {.import = {.no_weights = true, .untie = true}},
        {.train = true, .optimizer = "lamb", .import = {.keep_ties = true, .dropout_off = true}},
        {.no_pruning = true},
    };
    ModelOptions options = variants[size % (sizeof variants / sizeof *variants)];
    options.import.default_dimension = 2;
    fuzz_file("nowhere/fuzz.onnx", data, size);
    Diagnostics diagnostics = {0};
    TrainingModel model;
    bool ok = training_model_load(&model, "nowhere/fuzz.onnx", &options, &diagnostics);
    if (ok) interpret(&model.graph);
    training_model_free(&model);
    fuzz_end(ok, &diagnostics);
    return 0;
}

#ifdef SKYCC_FUZZ /* libFuzzer's own mutation of bytes, and changes that keep the message well-formed */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

/* The size of the changed model, or 0: it is no message, or too long. */
static size_t change_message(uint8_t *data, size_t size, size_t most, Arena *arena, RandomStream stream)
{
    Diagnostics diagnostics = {0};
    bool sound = size && wire_scan(data, size, &onnx__model_proto__descriptor, "fuzz.onnx", &diagnostics);
    diagnostics_free(&diagnostics);
    ProtobufCAllocator allocator = onnx_allocator(arena);
    Onnx__ModelProto *model = sound ? onnx__model_proto__unpack(&allocator, size, data) : NULL;
    if (!model) return 0;
    size_t changes = 1 + (size_t)random_below(stream, 0, 3);
    for (size_t i = 0; i < changes; i++) model_change(model, arena, stream, 1 + i * MODEL_CHANGE_DRAWS);
    size_t packed = onnx__model_proto__get_packed_size(model);
    return packed <= most ? onnx__model_proto__pack(model, data) : 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    RandomStream stream = random_stream(seed, "fuzz");
    Arena arena = {0};
    size_t changed = seed % 4 ? change_message(data, size, most, &arena, stream) : 0;
    arena_free(&arena);
    return changed ? changed : LLVMFuzzerMutate(data, size, most);
}
#endif
