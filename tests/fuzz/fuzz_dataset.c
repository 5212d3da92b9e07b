/* A data set, of which micro-batches are filled. */
#include <stdlib.h>

#include "runtime/storage/dataset.h"
#include "tests/fuzz/fuzz.h"

enum { ROWS = 2, LENGTH = 4 };

static const SkyTensor inputs[] = {
    {.name = "input_ids", .dtype = DTYPE_I64, .rank = 2, .dim = {ROWS, LENGTH}, .value_limit = 9},
    {.name = "attention_mask", .dtype = DTYPE_F32, .rank = 2, .dim = {ROWS, LENGTH}},
    {.name = "flags", .dtype = DTYPE_BOOL, .rank = 1, .dim = {ROWS}},
    {.name = "labels", .dtype = DTYPE_I32, .rank = 1, .dim = {ROWS}},
};
enum { INPUTS = sizeof inputs / sizeof *inputs };

static const SkyLabels labels[] = {{.name = "labels", .ignore_index = -100, .classes = 3}};
static const SkyStage stage = {.inputs = inputs, .input_count = INPUTS};
static const SkyProgram program = {.stages = &stage,
                                   .stage_count = 1,
                                   .microbatch_size = ROWS,
                                   .labels = labels,
                                   .label_count = 1,
                                   .label_names = "[\"A\",\"b\",\"c\"]",
                                   .tokenizers = "0123 4567"};

static bool read_dataset(Diagnostics *diagnostics)
{
    Dataset dataset;
    if (!dataset_open(&dataset, "data.safetensors", &program, NULL, diagnostics)) return false;
    const uint32_t rows[ROWS] = {(uint32_t)dataset.rows - 1, DATASET_NO_ROW};
    for (int i = 0; i < INPUTS; i++) {
        Shape shape = {.rank = (int)inputs[i].rank, .dim = {inputs[i].dim[0], inputs[i].dim[1]}};
        void *filled = memory_allocate((size_t)shape_elements(&shape) * dtype_size((DType)inputs[i].dtype));
        dataset_fill(&dataset, &program, &inputs[i], rows, filled);
        for (int j = 0; i == 0 && j < ROWS * LENGTH; j++)
            if (((int64_t *)filled)[j] < 0 || ((int64_t *)filled)[j] >= inputs[0].value_limit) bug("an id too large");
        free(filled);
    }
    LabelCount counts[SKY_MOST_LABELS];
    dataset_count_labels(&dataset, &program, rows, ROWS, counts);
    if (counts[0].count > 1) bug("a row that does not exist has a label");
    dataset_close(&dataset);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    Diagnostics diagnostics = {0};
    fuzz_file("data.safetensors", data, size);
    fuzz_end(read_dataset(&diagnostics), &diagnostics);
    return 0;
}
