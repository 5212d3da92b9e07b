/* What a stage program reads: by the first byte a checkpoint's MANIFEST.json, and the rows that it goes on with, or a
 * data set, of which micro-batches are filled. */
#include <stdlib.h>

#include "runtime/checkpoint_files.h"
#include "tests/fuzz/fuzz.h"

enum { ROWS = 2, LENGTH = 4, BATCHES = 3 };

static bool read_manifest(Diagnostics *diagnostics)
{
    enum { MOST_ROWS = 1 << 16 };
    CheckpointManifest manifest;
    if (!checkpoint_read_manifest(&manifest, "checkpoints", 7, diagnostics)) return false;
    if (manifest.rows >= ROWS && manifest.rows <= MOST_ROWS) {
        DataOrder order;
        uint32_t rows[ROWS];
        data_order_open(&order, manifest.seed, manifest.rows, ROWS, manifest.shuffled);
        for (int i = 0; i < BATCHES; i++) {
            data_order_next(&order, &manifest.cursor, rows);
            for (int r = 0; r < ROWS; r++)
                if (rows[r] >= manifest.rows) bug("row %u of %lld", rows[r], (long long)manifest.rows);
        }
        data_order_close(&order);
    }
    free(manifest.files);
    return true;
}

static const SkyTensor inputs[] = {
    {.name = "input_ids", .dtype = DTYPE_I64, .rank = 2, .dim = {ROWS, LENGTH}, .value_limit = 9},
    {.name = "attention_mask", .dtype = DTYPE_F32, .rank = 2, .dim = {ROWS, LENGTH}},
    {.name = "flags", .dtype = DTYPE_BOOL, .rank = 1, .dim = {ROWS}},
    {.name = "labels", .dtype = DTYPE_I32, .rank = 1, .dim = {ROWS}},
};
enum { INPUTS = sizeof inputs / sizeof *inputs };

static const SkyLabels labels[] = {{"labels", -100, 3}};
static const SkyStage stage = {.inputs = inputs, .input_count = INPUTS};
static const SkyProgram program = {
    .stages = &stage, .stage_count = 1, .microbatch_size = ROWS, .labels = labels, .label_count = 1};

static bool read_dataset(Diagnostics *diagnostics)
{
    Dataset dataset;
    if (!dataset_open(&dataset, "data.safetensors", &program, diagnostics)) return false;
    const uint32_t rows[ROWS] = {(uint32_t)dataset.rows - 1, DATASET_NO_ROW};
    for (int i = 0; i < INPUTS; i++) {
        Shape shape = {.rank = (int)inputs[i].rank, .dim = {inputs[i].dim[0], inputs[i].dim[1]}};
        void *filled = memory_allocate((size_t)shape_elements(&shape) * dtype_size((DType)inputs[i].dtype));
        dataset_fill(&dataset, &program, &inputs[i], rows, filled);
        for (int j = 0; i == 0 && j < ROWS * LENGTH; j++)
            if (((int64_t *)filled)[j] < 0 || ((int64_t *)filled)[j] >= inputs[0].value_limit) bug("an id too large");
        free(filled);
    }
    int64_t valid[SKY_MOST_LABELS];
    dataset_valid_labels(&dataset, &program, rows, ROWS, valid);
    if (valid[0] > 1) bug("a row that does not exist has a label");
    dataset_close(&dataset);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    if (!size) return 0;
    Diagnostics diagnostics = {0};
    bool manifest = *data % 2;
    fuzz_file(manifest ? "checkpoints/step-00000007/MANIFEST.json" : "data.safetensors", data + 1, size - 1);
    fuzz_end(manifest ? read_manifest(&diagnostics) : read_dataset(&diagnostics), &diagnostics);
    return 0;
}
