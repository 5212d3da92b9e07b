#include "runtime/storage/dataset.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/storage/data_origin.h"
#include "runtime/storage/hash_cache.h"

/* Reports an error in a tensor of the file, or in the file (NULL). Returns false. */
static bool tensor_error(const char *path, const char *tensor, const char *hint, Diagnostics *diagnostics,
                         const char *format, ...) __attribute__((format(printf, 5, 6)));

static bool tensor_error(const char *path, const char *tensor, const char *hint, Diagnostics *diagnostics,
                         const char *format, ...)
{
    FREED_WITH(arena_free) Arena arena = {0};
    va_list arguments;
    va_start(arguments, format);
    const char *message = arena_format_va(&arena, format, arguments);
    va_end(arguments);
    Place place = {.file = path, .object = tensor ? arena_format(&arena, "tensor '%s'", tensor) : NULL};
    diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, hint, "%s", message);
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

/* Rows of packed tokens may have any length in the data. */
static bool fits_tokens(const SkyTensor *input, const SafeTensor *tensor)
{
    bool fits = tensor->shape.rank == (int)input->rank && tensor->shape.dim[1] > 0;
    for (int i = 2; fits && i < tensor->shape.rank; i++) fits = tensor->shape.dim[i] == input->dim[i];
    return fits;
}

static bool check_shape(const char *path, const SkyTensor *input, const SafeTensor *tensor, Diagnostics *diagnostics)
{
    Shape wanted = input_shape(input), wanted_row = row_shape(&wanted), row = row_shape(&tensor->shape);
    if (tensor->shape.rank >= 1 && shape_equal_but_column(&row, &wanted_row)) return true;
    if (input->fill == SKY_FILL_TOKENS && fits_tokens(input, tensor)) return true;
    char have[256], want[256];
    shape_format(&tensor->shape, have);
    shape_format(&wanted, want);
    if (tensor->shape.rank == 2 && wanted.rank == 2)
        return tensor_error(path, input->name, "tokenise with that --max-length, or compile with another --dim",
                            diagnostics, "rows have %lld elements, but the program was compiled for sequences of %lld",
                            (long long)tensor->shape.dim[1], (long long)wanted.dim[1]);
    return tensor_error(path, input->name, "the first dimension counts rows; the others must match", diagnostics,
                        "has shape %s, but the program was compiled for micro-batches of shape %s", have, want);
}

/* Whether the input's type can represent every element. It is wide enough for any index. */
static bool check_dtype(const char *path, const SkyTensor *input, const SafeTensor *tensor, Diagnostics *diagnostics)
{
    DType have = tensor->dtype, want = (DType)input->dtype;
    if (!dtype_is_float(have) || dtype_is_float(want)) return true;
    return tensor_error(path, input->name, NULL, diagnostics, "holds %s, but the model wants integers (%s)",
                        dtype_name(have), dtype_name(want));
}

static int64_t integer_at(DType dtype, const void *data, int64_t index)
{
    if (dtype == DTYPE_I32) return ((const int32_t *)data)[index];
    if (dtype == DTYPE_I64) return ((const int64_t *)data)[index];
    return element_as_integer(dtype, data, index);
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

/* How many elements from `first` on, of at most `count`, were never written: holes of a sparse file, which are 0 and
 * need not be read. */
static int64_t count_unwritten(DType dtype, const void *data, int64_t first, int64_t count)
{
    size_t size = dtype_size(dtype);
    return (int64_t)(file_zeros_at((const char *)data + (size_t)first * size, (size_t)count * size) / size);
}

enum { BLOCK = 1 << 15 }; /* elements that are looked at before the next hole is looked for */

/* The first element of `data` in first ... end - 1 that the input may not hold; -1: all are valid. */
static int64_t find_invalid_in(const SkyProgram *program, const SkyTensor *input, DType dtype, const void *data,
                               int64_t first, int64_t end)
{
    const SkyLabels *labels = labels_of_input(program, input->name, NULL);
    bool are_classes = labels && labels->kind == SKY_LABELS_CLASSES;
    if (dtype_is_float(dtype) && (!labels || are_classes)) {
        for (int64_t i = first; i < end; i++)
            if (!isfinite(element_as_double(dtype, data, i))) return i;
        return -1;
    }
    if (labels && (!are_classes || labels->classes > 0)) {
        for (; labels; labels = labels_of_input(program, input->name, labels))
            for (int64_t i = first; i < end; i++)
                if (!label_is_valid(labels, dtype, data, i)) return i;
        return -1;
    }
    if (dtype_is_float((DType)input->dtype)) return -1;
    int64_t least, most;
    integer_range(input, &least, &most);
    for (int64_t i = first; i < end; i++) {
        int64_t value = integer_at(dtype, data, i);
        if ((value < least || value > most) && !(labels && value == labels->ignore_index)) return i;
    }
    return -1;
}

/* The same of all elements. */
static int64_t find_invalid(const SkyProgram *program, const SkyTensor *input, DType dtype, const void *data,
                            int64_t elements)
{
    static const uint64_t zero;
    bool zero_is_valid = find_invalid_in(program, input, dtype, &zero, 0, 1) < 0;
    int64_t invalid = -1;
    for (int64_t first = 0; first < elements && invalid < 0; first += BLOCK) {
        if (zero_is_valid) first += count_unwritten(dtype, data, first, elements - first);
        int64_t end = elements - first < BLOCK ? elements : first + BLOCK;
        invalid = find_invalid_in(program, input, dtype, data, first, end);
    }
    return invalid;
}

/* Describes the invalid element `index`, as in "row 3 holds 999, which is not in 0 ... 255". */
static const char *describe_invalid(const SkyProgram *program, const SkyTensor *input, DType dtype, const void *data,
                                    int64_t index, int64_t row, Arena *arena)
{
    const SkyLabels *labels = labels_of_input(program, input->name, NULL);
    while (labels && label_is_valid(labels, dtype, data, index)) labels = labels_of_input(program, input->name, labels);
    if (labels && !(labels->kind == SKY_LABELS_CLASSES && (dtype_is_float(dtype) || !labels->classes))) {
        const LabelText text = label_describe(labels, dtype, data, index);
        return arena_format(arena, "row %lld holds %s, which is not %s", (long long)row, text.value, text.range);
    }
    if (dtype_is_float(dtype)) return arena_format(arena, "element %lld is not finite", (long long)index);
    int64_t least, most;
    integer_range(input, &least, &most);
    return arena_format(arena, "row %lld holds %lld, which is not in %lld ... %lld", (long long)row,
                        (long long)integer_at(dtype, data, index), (long long)least, (long long)most);
}

static bool check_values(const char *path, const SkyProgram *program, const SkyTensor *input, const SafeTensor *tensor,
                         Diagnostics *diagnostics)
{
    int64_t elements = shape_elements(&tensor->shape);
    int64_t index = find_invalid(program, input, tensor->dtype, tensor->data, elements);
    if (index < 0) return true;
    const SkyLabels *labels = labels_of_input(program, input->name, NULL);
    const char *hint = NULL;
    if (!dtype_is_float(tensor->dtype)) hint = "is this data set made with this model's vocabulary?";
    if (labels) hint = labels->kind == SKY_LABELS_CLASSES ? "is this data set made for this model's classes?" : NULL;
    FREED_WITH(arena_free) Arena arena = {0};
    int64_t row = index / (elements / tensor->shape.dim[0]);
    tensor_error(path, input->name, hint, diagnostics, "%s",
                 describe_invalid(program, input, tensor->dtype, tensor->data, index, row, &arena));
    return false;
}

bool dataset_check_filled(const Dataset *dataset, const SkyProgram *program, const SkyTensor *input, const void *filled,
                          Diagnostics *diagnostics)
{
    DType dtype = (DType)input->dtype;
    int64_t elements = (int64_t)(input->bytes / dtype_size(dtype));
    int64_t index = dataset_holds(input) ? find_invalid(program, input, dtype, filled, elements) : -1;
    if (index < 0) return true;
    FREED_WITH(arena_free) Arena arena = {0};
    int64_t row = index / (elements / input->dim[0]);
    tensor_error(dataset->path, input->name, "write new data to another file", diagnostics,
                 "was overwritten while it was in use: of a micro-batch, %s",
                 describe_invalid(program, input, dtype, filled, index, row, &arena));
    return false;
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
        else /* padding repeats a real row, so that nothing overflows */
            convert(tensor->dtype, tensor->data, padding ? 0 : rows[r] * per_row, (DType)input->dtype, destination,
                    r * per_row, per_row);
    }
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

/* ---- Opening, and whether the file is what it was then ---- */

static Hash hash_tensor(const Dataset *dataset, const SkyTensor *input)
{
    const SafeTensor *tensor = safetensors_find(&dataset->file, input->name);
    DType dtype = (DType)input->dtype;
    int64_t elements = shape_elements(&tensor->shape), written = 0; /* from where on elements have to be read */
    FREED unsigned char *block = memory_allocate(BLOCK * dtype_size(dtype)),
                        *zeros = memory_allocate(BLOCK * dtype_size(dtype));
    Hash hash = hash_bytes(&elements, sizeof elements);
    for (int64_t first = 0; first < elements; first += BLOCK) {
        int64_t count = elements - first < BLOCK ? elements - first : BLOCK;
        if (first >= written) written = first + count_unwritten(tensor->dtype, tensor->data, first, elements - first);
        bool reads = first + count > written;
        if (reads) convert(tensor->dtype, tensor->data, first, dtype, block, 0, count);
        hash = hash_extend(hash, reads ? block : zeros, (size_t)count * dtype_size(dtype));
    }
    return hash;
}

/* Under which the hash of the tensor is kept, if it was found valid; false if its elements are not those of a file. */
static bool key_of(const Dataset *dataset, const SkyProgram *program, const SkyTensor *input, const SafeTensor *tensor,
                   Hash *key)
{
    const MappedFile *file = &dataset->file.file;
    const unsigned char *data = tensor->data; /* labels that were numbered anew are elsewhere */
    if (file->in_memory || dataset->descriptor < 0 || data < file->bytes || data >= file->bytes + file->size)
        return false;
    const int64_t fields[] = {tensor->dtype, input->dtype, shape_elements(&tensor->shape), input->value_limit};
    Hash reading = hash_bytes(fields, sizeof fields);
    for (const SkyLabels *l = NULL; (l = labels_of_input(program, input->name, l));) {
        const int64_t of_labels[] = {l->kind, l->ignore_index, l->classes};
        reading = hash_extend(reading, of_labels, sizeof of_labels);
    }
    *key = hash_cache_key(dataset->descriptor, (size_t)(data - file->bytes), reading);
    return true;
}

/* Checks and hashes all elements, unless that was done before and the file is still the same. */
static bool read_whole(Dataset *dataset, const SkyProgram *program, const SkyTensor *input, const SafeTensor *tensor,
                       Diagnostics *diagnostics)
{
    Hash key, content;
    bool kept = key_of(dataset, program, input, tensor, &key);
    if (!kept || !hash_cache_find(key, &content)) {
        if (!check_values(dataset->path, program, input, tensor, diagnostics)) return false;
        content = hash_tensor(dataset, input);
        if (kept) hash_cache_keep(dataset->descriptor, key, content);
    }
    dataset->read[dataset->read_count++] = (DatasetTensor){input, content};
    return true;
}

static bool check_input(Dataset *dataset, const char *path, const SkyProgram *program, const SkyTensor *input,
                        Diagnostics *diagnostics)
{
    if (!dataset_holds(input)) return true;
    if (input->rank < 1 || (input->fill == SKY_FILL_ROWS && input->dim[0] != program->microbatch_size))
        bug("input '%s' has no micro-batch dimension", input->name);
    for (uint32_t i = 0; i < dataset->read_count; i++)
        if (strcmp(dataset->read[i].input->name, input->name) == 0) return true;
    const SafeTensor *tensor = safetensors_find(&dataset->file, input->name);
    if (!tensor)
        return tensor_error(path, NULL, "`skycc tokenize` writes the tensors that BERT models read", diagnostics,
                            "has no tensor '%s', which the model reads", input->name);
    if (!check_shape(path, input, tensor, diagnostics) || !check_dtype(path, input, tensor, diagnostics)) return false;
    if (dataset->rows < 0) dataset->rows = tensor->shape.dim[0];
    if (tensor->shape.dim[0] != dataset->rows)
        return tensor_error(path, input->name, NULL, diagnostics, "has %lld rows, but other tensors have %lld",
                            (long long)tensor->shape.dim[0], (long long)dataset->rows);
    if (dataset->rows == 0 || dataset->rows >= DATASET_NO_ROW)
        return tensor_error(path, input->name, NULL, diagnostics, "has %s",
                            dataset->rows ? "too many rows" : "no rows");
    for (const SkyLabels *l = NULL; (l = labels_of_input(program, input->name, l));)
        dataset->labels[l - program->labels] = tensor;
    return read_whole(dataset, program, input, tensor, diagnostics);
}

/* The hash of pages at equal distances, including the first and the last. */
static Hash hash_sample(const Dataset *dataset)
{
    enum { SAMPLES = 64, SAMPLE_BYTES = 4096 };
    const MappedFile *file = &dataset->file.file;
    Hash hash = hash_bytes(&file->size, sizeof file->size);
    size_t most = file->size < SAMPLE_BYTES ? file->size : SAMPLE_BYTES, last = file->size - most;
    for (size_t i = 0; i < SAMPLES; i++) hash = hash_extend(hash, file->bytes + last / (SAMPLES - 1) * i, most);
    return hash_extend(hash, file->bytes + last, most);
}

static int64_t nanoseconds(struct timespec time) { return time.tv_sec * INT64_C(1000000000) + time.tv_nsec; }

static DatasetStamp make_stamp(const Dataset *dataset)
{
    struct stat status;
    if (fstat(dataset->descriptor, &status) != 0) return (DatasetStamp){.size = 0};
    return (DatasetStamp){status.st_size, nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

static bool match(Dataset *dataset, const SkyProgram *program, const Dataset *like, Diagnostics *diagnostics)
{
    const DataOrigin model = {"the model", program->label_names, program->tokenizers, true};
    DataOrigin known = like && !like->as_model ? data_origin(&like->file, like->path) : model;
    if (model.tokenizers && *model.tokenizers) known.tokenizers = model.tokenizers;
    if (!labels_of_input(program, "labels", NULL)) known.labels = NULL, known.is_model = true;
    if (!data_origin_match(&dataset->file, dataset->path, &known, &dataset->as_model, diagnostics)) return false;
    bool numbered = dataset->as_model || !known.is_model; /* as `known` does */
    dataset->label_names = numbered ? known.labels : safetensors_metadata(&dataset->file, "labels");
    return true;
}

bool dataset_open(Dataset *dataset, const char *path, const SkyProgram *program, const Dataset *like,
                  Diagnostics *diagnostics)
{
    *dataset = (Dataset){.rows = -1, .path = path, .descriptor = -1};
    uint32_t inputs = 0;
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t i = 0; i < program->stages[s].input_count; i++)
            inputs += dataset_holds(&program->stages[s].inputs[i]);
    dataset->read = memory_allocate((inputs + 1) * sizeof *dataset->read);
    bool ok = inputs == 0 ||
              (safetensors_open(&dataset->file, path, diagnostics) && match(dataset, program, like, diagnostics));
    if (ok && inputs) dataset->descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (ok && inputs) dataset->stamp = make_stamp(dataset);
    for (uint32_t s = 0; s < program->stage_count && ok; s++)
        for (uint32_t i = 0; i < program->stages[s].input_count && ok; i++)
            ok = check_input(dataset, path, program, &program->stages[s].inputs[i], diagnostics);
    if (inputs == 0) dataset->rows = 0;
    if (ok && inputs) dataset->sample = hash_sample(dataset);
    if (!ok) dataset_close(dataset);
    return ok;
}

void dataset_close(Dataset *dataset)
{
    safetensors_close(&dataset->file);
    if (dataset->read && dataset->descriptor >= 0) close(dataset->descriptor);
    free(dataset->read);
    *dataset = (Dataset){0};
}

bool dataset_check_unchanged(Dataset *dataset, bool samples, Diagnostics *diagnostics)
{
    if (dataset->read_count == 0) return true;
    const DatasetStamp was = dataset->stamp, now = make_stamp(dataset);
    bool written = now.size != was.size || now.modified_ns != was.modified_ns || now.changed_ns != was.changed_ns;
    if (now.size < was.size && !samples) return true; /* who reads what is gone is ended by SIGBUS, which says more */
    bool same = now.size >= was.size && (!samples || hash_equal(hash_sample(dataset), dataset->sample));
    for (uint32_t i = 0; i < dataset->read_count && same && written; i++)
        same = hash_equal(hash_tensor(dataset, dataset->read[i].input), dataset->read[i].content);
    dataset->stamp = now;
    return same || tensor_error(dataset->path, NULL, "write new data to another file; a run that is resumed says so",
                                diagnostics, "was overwritten while it was in use");
}
