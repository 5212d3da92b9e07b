#include "runtime/storage/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

static bool refuse(const char *path, const char *tensor, const char *hint, Diagnostics *diagnostics, const char *format,
                   ...) __attribute__((format(printf, 5, 6)));

static bool refuse(const char *path, const char *tensor, const char *hint, Diagnostics *diagnostics, const char *format,
                   ...)
{
    Arena arena = {0};
    va_list arguments;
    va_start(arguments, format);
    const char *message = arena_format_va(&arena, format, arguments);
    va_end(arguments);
    Place place = {.file = path, .object = tensor ? arena_format(&arena, "tensor '%s'", tensor) : NULL};
    diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, hint, "%s", message);
    arena_free(&arena);
    return false;
}

static Shape row_shape(const Shape *shape)
{
    Shape row = {.rank = shape->rank - 1};
    for (int i = 0; i < row.rank; i++) row.dim[i] = shape->dim[i + 1];
    return row;
}

static Shape input_shape(const SkyTensor *input)
{
    Shape shape = {.rank = (int)input->rank};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = input->dim[i];
    return shape;
}

/* Of packed tokens the data has as many a row as it likes. */
static bool fits_tokens(const SkyTensor *input, const SafeTensor *tensor)
{
    bool fits = tensor->shape.rank == (int)input->rank && tensor->shape.dim[1] > 0;
    for (int i = 2; fits && i < tensor->shape.rank; i++) fits = tensor->shape.dim[i] == input->dim[i];
    return fits;
}

static bool check_shape(const char *path, const SkyTensor *input, const SafeTensor *tensor, Diagnostics *diagnostics)
{
    Shape wanted = input_shape(input), wanted_row = row_shape(&wanted), row = row_shape(&tensor->shape);
    if (tensor->shape.rank >= 1 && shape_equal(&row, &wanted_row)) return true;
    if (input->fill == SKY_FILL_TOKENS && fits_tokens(input, tensor)) return true;
    char have[256], want[256];
    shape_format(&tensor->shape, have);
    shape_format(&wanted, want);
    if (tensor->shape.rank == 2 && wanted.rank == 2)
        return refuse(path, input->name, "tokenise with that --max-length, or compile with another --dim", diagnostics,
                      "rows have %lld elements, but the program was compiled for sequences of %lld",
                      (long long)tensor->shape.dim[1], (long long)wanted.dim[1]);
    return refuse(path, input->name, "the first dimension counts rows; the others must match", diagnostics,
                  "has shape %s, but the program was compiled for micro-batches of shape %s", have, want);
}

/* Whether every element can be represented in the input's type, which is wide enough for what it indexes. */
static bool check_dtype(const char *path, const SkyTensor *input, const SafeTensor *tensor, Diagnostics *diagnostics)
{
    DType have = tensor->dtype, want = (DType)input->dtype;
    if (!dtype_is_float(have) || dtype_is_float(want)) return true;
    return refuse(path, input->name, NULL, diagnostics, "holds %s, but the model wants integers (%s)", dtype_name(have),
                  dtype_name(want));
}

static int64_t integer_at(const SafeTensor *tensor, int64_t index)
{
    if (tensor->dtype == DTYPE_I32) return ((const int32_t *)tensor->data)[index];
    if (tensor->dtype == DTYPE_I64) return ((const int64_t *)tensor->data)[index];
    return element_as_integer(tensor->dtype, tensor->data, index);
}

/* The values an input of integer type may take: [*least, *most]. */
static void integer_range(const SkyTensor *input, int64_t *least, int64_t *most)
{
    switch ((DType)input->dtype) {
    case DTYPE_BOOL: *least = 0, *most = 1; break;
    case DTYPE_I8: *least = INT8_MIN, *most = INT8_MAX; break;
    case DTYPE_U8: *least = 0, *most = UINT8_MAX; break;
    case DTYPE_I16: *least = INT16_MIN, *most = INT16_MAX; break;
    case DTYPE_U16: *least = 0, *most = UINT16_MAX; break;
    case DTYPE_I32: *least = INT32_MIN, *most = INT32_MAX; break;
    case DTYPE_U32: *least = 0, *most = UINT32_MAX; break;
    case DTYPE_U64: *least = 0, *most = INT64_MAX; break;
    default: *least = INT64_MIN, *most = INT64_MAX; break;
    }
    if (input->value_limit > 0) *least = 0, *most = input->value_limit - 1;
}

static bool check_labels(const char *path, const SkyLabels *labels, const SafeTensor *tensor, Diagnostics *diagnostics)
{
    int64_t elements = shape_elements(&tensor->shape);
    for (int64_t i = 0; i < elements; i++) {
        if (label_is_valid(labels, tensor->dtype, tensor->data, i)) continue;
        const LabelText text = label_describe(labels, tensor->dtype, tensor->data, i);
        return refuse(path, labels->name,
                      labels->kind == SKY_LABELS_CLASSES ? "is this data set made for this model's classes?" : NULL,
                      diagnostics, "row %lld holds %s, which is not %s",
                      (long long)(i / (elements / tensor->shape.dim[0])), text.value, text.range);
    }
    return true;
}

static bool check_finite(const char *path, const SkyTensor *input, const SafeTensor *tensor, Diagnostics *diagnostics)
{
    for (int64_t i = 0; i < shape_elements(&tensor->shape); i++)
        if (!isfinite(element_as_double(tensor->dtype, tensor->data, i)))
            return refuse(path, input->name, NULL, diagnostics, "element %lld is not finite", (long long)i);
    return true;
}

static bool check_values(const char *path, const SkyProgram *program, const SkyTensor *input, const SafeTensor *tensor,
                         Diagnostics *diagnostics)
{
    const SkyLabels *labels = labels_of_input(program, input->name, NULL);
    bool is_class = labels && labels->kind == SKY_LABELS_CLASSES;
    if (dtype_is_float(tensor->dtype) && (!labels || is_class)) return check_finite(path, input, tensor, diagnostics);
    if (labels && (!is_class || labels->classes > 0)) {
        for (; labels; labels = labels_of_input(program, input->name, labels))
            if (!check_labels(path, labels, tensor, diagnostics)) return false;
        return true;
    }
    if (dtype_is_float((DType)input->dtype)) return true;
    int64_t elements = shape_elements(&tensor->shape), least, most;
    integer_range(input, &least, &most);
    int64_t per_row = tensor->shape.dim[0] ? elements / tensor->shape.dim[0] : 1;
    for (int64_t i = 0; i < elements; i++) {
        int64_t value = integer_at(tensor, i);
        if ((value >= least && value <= most) || (labels && value == labels->ignore_index)) continue;
        return refuse(path, input->name, "is this data set made with this model's vocabulary?", diagnostics,
                      "row %lld holds %lld, which is not in %lld ... %lld", (long long)(i / per_row), (long long)value,
                      (long long)least, (long long)most);
    }
    return true;
}

static bool check_input(Dataset *dataset, const char *path, const SkyProgram *program, const SkyTensor *input,
                        Diagnostics *diagnostics)
{
    if (!dataset_holds(input)) return true;
    if (input->rank < 1 || (input->fill == SKY_FILL_ROWS && input->dim[0] != program->microbatch_size))
        bug("input '%s' has no micro-batch dimension", input->name);
    const SafeTensor *tensor = safetensors_find(&dataset->file, input->name);
    if (!tensor)
        return refuse(path, NULL, "`skycc tokenize` writes the tensors that BERT models read", diagnostics,
                      "has no tensor '%s', which the model reads", input->name);
    if (!check_shape(path, input, tensor, diagnostics) || !check_dtype(path, input, tensor, diagnostics)) return false;
    if (dataset->rows < 0) dataset->rows = tensor->shape.dim[0];
    if (tensor->shape.dim[0] != dataset->rows)
        return refuse(path, input->name, NULL, diagnostics, "has %lld rows, but other tensors have %lld",
                      (long long)tensor->shape.dim[0], (long long)dataset->rows);
    if (dataset->rows == 0 || dataset->rows >= DATASET_NO_ROW)
        return refuse(path, input->name, NULL, diagnostics, "has %s", dataset->rows ? "too many rows" : "no rows");
    for (const SkyLabels *l = NULL; (l = labels_of_input(program, input->name, l));)
        dataset->labels[l - program->labels] = tensor;
    return check_values(path, program, input, tensor, diagnostics);
}

bool dataset_open(Dataset *dataset, const char *path, const SkyProgram *program, Diagnostics *diagnostics)
{
    *dataset = (Dataset){.rows = -1};
    uint32_t inputs = 0;
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t i = 0; i < program->stages[s].input_count; i++)
            inputs += dataset_holds(&program->stages[s].inputs[i]);
    bool ok = inputs == 0 || safetensors_open(&dataset->file, path, diagnostics);
    for (uint32_t s = 0; s < program->stage_count && ok; s++)
        for (uint32_t i = 0; i < program->stages[s].input_count && ok; i++)
            ok = check_input(dataset, path, program, &program->stages[s].inputs[i], diagnostics);
    if (inputs == 0) dataset->rows = 0;
    if (!ok) dataset_close(dataset);
    return ok;
}

void dataset_close(Dataset *dataset)
{
    safetensors_close(&dataset->file);
    *dataset = (Dataset){0};
}

static void convert(DType from, const void *source, int64_t first, DType to, void *destination, int64_t start,
                    int64_t count)
{
    if (from == to) {
        size_t size = dtype_size(from);
        memcpy((char *)destination + (size_t)start * size, (const char *)source + (size_t)first * size,
               (size_t)count * size);
    } else if (from == DTYPE_I32 && to == DTYPE_I64) {
        for (int64_t i = 0; i < count; i++) ((int64_t *)destination)[start + i] = ((const int32_t *)source)[first + i];
    } else if (dtype_is_float(to)) {
        for (int64_t i = 0; i < count; i++)
            element_store_double(to, destination, start + i, element_as_double(from, source, first + i));
    } else {
        for (int64_t i = 0; i < count; i++)
            element_store_integer(to, destination, start + i, element_as_integer(from, source, first + i));
    }
}

void dataset_convert(const SafeTensor *tensor, int64_t first, const SkyTensor *input, void *destination, int64_t start,
                     int64_t count)
{
    convert(tensor->dtype, tensor->data, first, (DType)input->dtype, destination, start, count);
}

void dataset_fill(const Dataset *dataset, const SkyProgram *program, const SkyTensor *input, const uint32_t *rows,
                  void *destination)
{
    const SafeTensor *tensor = safetensors_find(&dataset->file, input->name);
    const SkyLabels *labels = labels_of_input(program, input->name, NULL);
    int64_t per_row = shape_elements(&tensor->shape) / dataset->rows;
    for (int64_t r = 0; r < input->dim[0]; r++) {
        bool padding = rows[r] == DATASET_NO_ROW;
        if (padding && labels)
            labels_ignore(labels, (DType)input->dtype, destination, r * per_row, per_row);
        else /* padding takes some real row, so that nothing in it can overflow */
            convert(tensor->dtype, tensor->data, padding ? 0 : rows[r] * per_row, (DType)input->dtype, destination,
                    r * per_row, per_row);
    }
}

Hash dataset_hash(const Dataset *dataset, const SkyTensor *input)
{
    enum { BLOCK = 1 << 15 }; /* elements */
    const SafeTensor *tensor = safetensors_find(&dataset->file, input->name);
    DType dtype = (DType)input->dtype;
    int64_t elements = shape_elements(&tensor->shape);
    unsigned char *block = memory_allocate(BLOCK * dtype_size(dtype));
    Hash hash = hash_bytes(&elements, sizeof elements);
    for (int64_t first = 0; first < elements; first += BLOCK) {
        int64_t count = elements - first < BLOCK ? elements - first : BLOCK;
        convert(tensor->dtype, tensor->data, first, dtype, block, 0, count);
        hash = hash_extend(hash, block, (size_t)count * dtype_size(dtype));
    }
    free(block);
    return hash;
}

void dataset_count_labels(const Dataset *dataset, const SkyProgram *program, const uint32_t *rows, int64_t count,
                          LabelCount labels[SKY_MOST_LABELS])
{
    for (uint32_t l = 0; l < SKY_MOST_LABELS; l++) {
        const SafeTensor *tensor = dataset->labels[l];
        labels[l] = (LabelCount){0};
        for (int64_t r = 0; tensor && r < count; r++)
            if (rows[r] != DATASET_NO_ROW)
                labels_count(&program->labels[l], tensor->dtype, &tensor->shape, tensor->data, rows[r], 1, &labels[l]);
    }
}

void data_order_open(DataOrder *order, uint64_t seed, int64_t rows, int64_t batch, bool shuffled)
{
    *order = (DataOrder){.seed = seed, .rows = rows, .batch = batch, .shuffled = shuffled, .permuted_epoch = -1};
    order->permutation = memory_resize(NULL, (size_t)rows, sizeof *order->permutation);
}

void data_order_close(DataOrder *order)
{
    free(order->permutation);
    order->permutation = NULL;
}

bool data_order_at_epoch_end(const DataOrder *order, const DataCursor *cursor)
{
    return cursor->offset + order->batch > order->rows;
}

void data_order_next(DataOrder *order, DataCursor *cursor, uint32_t *rows)
{
    if (data_order_at_epoch_end(order, cursor)) *cursor = (DataCursor){cursor->epoch + 1, 0};
    if (order->permuted_epoch != cursor->epoch) {
        RandomStream stream = random_substream(random_stream(order->seed, "shuffle"), (uint64_t)cursor->epoch);
        if (order->shuffled)
            random_permutation(stream, order->permutation, (size_t)order->rows);
        else
            for (int64_t i = 0; i < order->rows; i++) order->permutation[i] = (uint32_t)i;
        order->permuted_epoch = cursor->epoch;
    }
    memcpy(rows, order->permutation + cursor->offset, (size_t)order->batch * sizeof *rows);
    cursor->offset += order->batch;
}
