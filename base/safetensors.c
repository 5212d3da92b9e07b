#include "base/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum {
    LENGTH_BYTES = 8,             /* the header's length, little-endian, in front of it */
    MAX_HEADER_BYTES = 100000000, /* the limit of the format's reference implementation */
    DATA_ALIGNMENT = 64
};

bool safetensors_name_is_reserved(const char *name) { return strcmp(name, "__metadata__") == 0; }

static bool refuse_as(Diagnostics *diagnostics, const char *path, const char *tensor, const char *hint,
                      const char *problem)
{
    char object[512];
    if (tensor) snprintf(object, sizeof object, "tensor '%s'", tensor);
    Place place = {.file = strcmp(path, "-") == 0 ? "standard input" : path, .object = tensor ? object : NULL};
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, hint, "%s", problem);
}

static bool refuse(Diagnostics *diagnostics, const char *path, const char *tensor, const char *problem)
{
    return refuse_as(diagnostics, path, tensor, NULL, problem);
}

static bool read_metadata(SafeTensors *file, const char *path, const json_t *metadata, Diagnostics *diagnostics)
{
    if (!json_is_object(metadata)) return refuse(diagnostics, path, NULL, "'__metadata__' must be an object");
    file->metadata = arena_new_array(&file->arena, const char *, 2 * json_object_size(metadata));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value)) return refuse(diagnostics, path, NULL, "'__metadata__' must hold strings only");
        file->metadata[2 * file->metadata_count] = arena_string(&file->arena, key);
        file->metadata[2 * file->metadata_count + 1] = arena_string(&file->arena, json_string_value(value));
        file->metadata_count++;
    }
    return true;
}

static bool read_shape(Shape *shape, const json_t *array)
{
    size_t rank = json_array_size(array);
    if (!json_is_array(array) || rank > MAX_RANK) return false;
    shape->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dimension = json_array_get(array, i);
        if (!json_is_integer(dimension)) return false;
        shape->dim[i] = json_integer_value(dimension);
    }
    return shape_elements(shape) >= 0;
}

/* Fills `tensor`; its data lies inside the `data_size` bytes at `data`. */
static bool read_entry(SafeTensor *tensor, const char *path, const json_t *entry, const unsigned char *data,
                       size_t data_size, Diagnostics *diagnostics)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype) return refuse(diagnostics, path, tensor->name, "has no dtype");
    tensor->dtype = dtype_from_safetensors_name(dtype);
    if (tensor->dtype == DTYPE_NONE) {
        char problem[128];
        snprintf(problem, sizeof problem, "has the dtype %.60s, which is not supported", dtype);
        return refuse_as(diagnostics, path, tensor->name, "save the model in float32, float16 or bfloat16", problem);
    }
    if (!read_shape(&tensor->shape, json_object_get(entry, "shape")))
        return refuse(diagnostics, path, tensor->name,
                      "has a wrong shape: tensors have at most 8 dimensions, none negative");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return refuse(diagnostics, path, tensor->name, "has no data_offsets");
    json_int_t from = json_integer_value(first), to = json_integer_value(last);
    if (from < 0 || to < from || (uint64_t)to > data_size)
        return refuse_as(diagnostics, path, tensor->name, "copy or download it again: it may have been cut off",
                         "has data outside the file");
    size_t bytes = (size_t)shape_elements(&tensor->shape) * dtype_size(tensor->dtype);
    if ((size_t)(to - from) != bytes)
        return refuse(diagnostics, path, tensor->name, "has data whose size does not match its shape and dtype");
    tensor->data = data + from;
    tensor->bytes = bytes;
    return true;
}

/* Points the tensor at its data. Element types need aligned addresses, which the format does not promise: such tensors
 * are copied. */
static bool attach_data(SafeTensors *file, SafeTensor *tensor, const char *path, const unsigned char *data,
                        Diagnostics *diagnostics)
{
    tensor->data = data;
    if ((uintptr_t)data % dtype_size(tensor->dtype)) tensor->data = arena_copy(&file->arena, data, tensor->bytes);
    if (tensor->dtype == DTYPE_BOOL)
        for (size_t i = 0; i < tensor->bytes; i++)
            if (data[i] > 1) return refuse(diagnostics, path, tensor->name, "has a BOOL that is neither 0 nor 1");
    return true;
}

static int by_data(const void *a, const void *b)
{
    const SafeTensor *left = a, *right = b;
    if (left->data != right->data) return (uintptr_t)left->data < (uintptr_t)right->data ? -1 : 1;
    if (left->bytes != right->bytes) return left->bytes < right->bytes ? -1 : 1; /* empty ones before their successor */
    return strcmp(left->name, right->name);
}

static int by_name(const void *a, const void *b)
{
    const SafeTensor *const *left = a, *const *right = b;
    return strcmp((*left)->name, (*right)->name);
}

static bool read_entries(SafeTensors *file, const char *path, const json_t *header, const unsigned char *data,
                         size_t data_size, Diagnostics *diagnostics)
{
    file->tensors = arena_new_array(&file->arena, SafeTensor, json_object_size(header));
    const char *key;
    json_t *entry;
    json_object_foreach((json_t *)header, key, entry)
    {
        if (safetensors_name_is_reserved(key)) {
            if (!read_metadata(file, path, entry, diagnostics)) return false;
            continue;
        }
        SafeTensor *tensor = &file->tensors[file->count++];
        tensor->name = arena_string(&file->arena, key);
        if (!read_entry(tensor, path, entry, data, data_size, diagnostics)) return false;
    }
    if (file->count) qsort(file->tensors, file->count, sizeof *file->tensors, by_data);
    const unsigned char *next = data;
    for (size_t i = 0; i < file->count; i++) {
        SafeTensor *tensor = &file->tensors[i];
        const unsigned char *begin = tensor->data;
        if (begin < next) return refuse(diagnostics, path, tensor->name, "overlaps the data of another tensor");
        if (begin > next) return refuse(diagnostics, path, tensor->name, "has unused bytes before its data");
        next = begin + tensor->bytes;
        if (!attach_data(file, tensor, path, begin, diagnostics)) return false;
    }
    if (next != data + data_size) return refuse(diagnostics, path, NULL, "has bytes after the last tensor");
    return true;
}

static bool read_header(SafeTensors *file, const char *path, Diagnostics *diagnostics)
{
    const unsigned char *bytes = file->file.bytes;
    if (file->file.size < LENGTH_BYTES) return refuse(diagnostics, path, NULL, "is too short for a safetensors file");
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | bytes[i];
    if (length > MAX_HEADER_BYTES || length > file->file.size - LENGTH_BYTES)
        return refuse(diagnostics, path, NULL, "is not a safetensors file, or it ends inside its header");
    json_error_t error;
    json_auto_t *header =
        json_loadb((const char *)bytes + LENGTH_BYTES, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(header)) {
        char problem[JSON_ERROR_TEXT_LENGTH + 64];
        snprintf(problem, sizeof problem, "has no valid header: %s", header ? "it is not an object" : error.text);
        return refuse(diagnostics, path, NULL, problem);
    }
    size_t start = LENGTH_BYTES + (size_t)length;
    return read_entries(file, path, header, bytes + start, file->file.size - start, diagnostics);
}

bool safetensors_open(SafeTensors *file, const char *path, Diagnostics *diagnostics)
{
    *file = (SafeTensors){0};
    if (!file_map(&file->file, path, diagnostics)) return false;
    if (!read_header(file, path, diagnostics)) {
        safetensors_close(file);
        return false;
    }
    file->by_name = arena_new_array(&file->arena, const SafeTensor *, file->count);
    for (size_t i = 0; i < file->count; i++) file->by_name[i] = &file->tensors[i];
    if (file->count) qsort(file->by_name, file->count, sizeof *file->by_name, by_name);
    return true;
}

const SafeTensor *safetensors_find(const SafeTensors *file, const char *name)
{
    const SafeTensor wanted = {.name = name}, *key = &wanted;
    if (!file->count) return NULL;
    const SafeTensor **found = bsearch(&key, file->by_name, file->count, sizeof *file->by_name, by_name);
    return found ? *found : NULL;
}

const char *safetensors_metadata(const SafeTensors *file, const char *key)
{
    for (size_t i = 0; i < file->metadata_count; i++)
        if (strcmp(file->metadata[2 * i], key) == 0) return file->metadata[2 * i + 1];
    return NULL;
}

void safetensors_close(SafeTensors *file)
{
    file_unmap_input(&file->file);
    arena_free(&file->arena);
    *file = (SafeTensors){0};
}

struct SafeTensorsWriter {
    Arena arena;
    Buffer metadata; /* members of "__metadata__" */
    SafeTensor *tensors;
    size_t count, capacity;
    bool again;
    FileContent *content;
};

SafeTensorsWriter *safetensors_writer(void) { return memory_allocate(sizeof(SafeTensorsWriter)); }

void safetensors_writer_again(SafeTensorsWriter *writer) { writer->again = true; }

void safetensors_writer_note(SafeTensorsWriter *writer, FileContent *content) { writer->content = content; }

void safetensors_writer_metadata(SafeTensorsWriter *writer, const char *key, const char *value)
{
    JsonWriter json = {.buffer = &writer->metadata, .follows = writer->metadata.size > 0};
    json_add_string(&json, key, value);
}

void safetensors_writer_add(SafeTensorsWriter *writer, const char *name, DType dtype, const Shape *shape,
                            const void *data)
{
    int64_t elements = shape_elements(shape);
    if (elements < 0 || dtype == DTYPE_NONE) bug("tensor '%s' cannot be written", name);
    SafeTensor tensor = {.name = arena_string(&writer->arena, name),
                         .dtype = dtype,
                         .shape = *shape,
                         .data = data,
                         .bytes = (size_t)elements * dtype_size(dtype)};
    array_push(writer->tensors, writer->count, writer->capacity, tensor);
}

static void add_entry(JsonWriter *header, const SafeTensor *tensor, size_t begin)
{
    json_open(header, tensor->name, '{');
    json_add_string(header, "dtype", dtype_safetensors_name(tensor->dtype));
    json_add_integers(header, "shape", tensor->shape.dim, (size_t)tensor->shape.rank);
    json_add_raw(header, "data_offsets", "[%zu,%zu]", begin, begin + tensor->bytes);
    json_close(header, '}');
}

static void print_header(Buffer *header, const SafeTensorsWriter *writer, const SafeTensor *const *order)
{
    JsonWriter json = {.buffer = header};
    size_t begin = 0;
    buffer_append(header, "\0\0\0\0\0\0\0", LENGTH_BYTES);
    json_open(&json, NULL, '{');
    if (writer->metadata.size) json_add_raw(&json, "__metadata__", "{%s}", buffer_text(&writer->metadata));
    for (size_t i = 0; i < writer->count; i++) {
        add_entry(&json, order[i], begin);
        begin += order[i]->bytes;
    }
    json_close(&json, '}');
    while (header->size % DATA_ALIGNMENT) buffer_append(header, " ", 1);
    uint64_t length = header->size - LENGTH_BYTES;
    for (int i = 0; i < LENGTH_BYTES; i++) header->bytes[i] = (char)(length >> 8 * i);
}

/* The order of the data: the format leaves no room for padding, so wide elements go first to keep all aligned. */
static const SafeTensor **order_by_alignment(SafeTensorsWriter *writer)
{
    const SafeTensor **order = arena_new_array(&writer->arena, const SafeTensor *, writer->count);
    size_t placed = 0;
    for (size_t size = 8; size; size /= 2)
        for (size_t i = 0; i < writer->count; i++)
            if (dtype_size(writer->tensors[i].dtype) == size) order[placed++] = &writer->tensors[i];
    if (placed != writer->count) bug("an element type is not 1, 2, 4 or 8 bytes wide");
    return order;
}

static void check_names(SafeTensorsWriter *writer)
{
    const SafeTensor **sorted = arena_new_array(&writer->arena, const SafeTensor *, writer->count);
    for (size_t i = 0; i < writer->count; i++) sorted[i] = &writer->tensors[i];
    if (writer->count) qsort(sorted, writer->count, sizeof *sorted, by_name);
    for (size_t i = 1; i < writer->count; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0) bug("two tensors are named '%s'", sorted[i]->name);
}

/* Hashes what it has just written, which is still in a cache. */
static bool put(OutputFile *file, HashStream *hash, const void *data, size_t size)
{
    enum { AT_ONCE = 1 << 18 };
    const unsigned char *bytes = data;
    bool written = true;
    for (size_t at = 0; at < size && written; at += AT_ONCE) {
        size_t some = size - at < AT_ONCE ? size - at : AT_ONCE;
        written = fwrite(bytes + at, 1, some, file->stream) == some;
        if (hash) hash_stream_add(hash, bytes + at, some);
    }
    return written;
}

bool safetensors_write(SafeTensorsWriter *writer, const char *path, Diagnostics *diagnostics)
{
    check_names(writer);
    const SafeTensor **order = order_by_alignment(writer);
    FREED_WITH(buffer_free) Buffer header = {0};
    OutputFile file;
    print_header(&header, writer, order);
    bool ok = writer->again ? file_create_again(&file, path, diagnostics) : file_create(&file, path, diagnostics);
    if (ok) {
        HashStream *hash = writer->content ? hash_stream() : NULL;
        size_t bytes = header.size;
        bool written = put(&file, hash, header.bytes, header.size);
        for (size_t i = 0; i < writer->count && written; bytes += order[i++]->bytes)
            written = put(&file, hash, order[i]->data, order[i]->bytes);
        if (hash) *writer->content = (FileContent){bytes, hash_stream_end(hash)};
        ok = file_commit(&file, diagnostics);
    }
    buffer_free(&writer->metadata);
    free(writer->tensors);
    arena_free(&writer->arena);
    free(writer);
    return ok;
}
