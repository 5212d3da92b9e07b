#include "frontend/huggingface/gguf_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { GGUF_VERSION = 3, GGUF_ALIGNMENT = 32, Q8_BLOCK = 32, Q8_BYTES = 2 + Q8_BLOCK };

/* Types of metadata. */
enum { PAIR_U32 = 4, PAIR_I32 = 5, PAIR_F32 = 6, PAIR_BOOL = 7, PAIR_TEXT = 8, PAIR_ARRAY = 9 };

/* ---- Metadata ---- */

static void append_u32(Buffer *buffer, uint32_t value) { buffer_append(buffer, &value, sizeof value); }

static void append_u64(Buffer *buffer, uint64_t value) { buffer_append(buffer, &value, sizeof value); }

static void append_text(Buffer *buffer, const char *text)
{
    append_u64(buffer, strlen(text));
    buffer_append(buffer, text, strlen(text));
}

static void begin(GgufFile *file, const char *key, uint32_t type)
{
    file->pair_count++;
    append_text(&file->pairs, key);
    append_u32(&file->pairs, type);
}

static void begin_array(GgufFile *file, const char *key, uint32_t type, size_t count)
{
    begin(file, key, PAIR_ARRAY);
    append_u32(&file->pairs, type);
    append_u64(&file->pairs, count);
}

void gguf_text(GgufFile *file, const char *key, const char *value)
{
    begin(file, key, PAIR_TEXT);
    append_text(&file->pairs, value);
}

void gguf_integer(GgufFile *file, const char *key, int64_t value)
{
    begin(file, key, PAIR_U32);
    append_u32(&file->pairs, (uint32_t)value);
}

void gguf_real(GgufFile *file, const char *key, double value)
{
    begin(file, key, PAIR_F32);
    buffer_append(&file->pairs, &(float){(float)value}, sizeof(float));
}

void gguf_flag(GgufFile *file, const char *key, bool value)
{
    begin(file, key, PAIR_BOOL);
    buffer_append(&file->pairs, &(char){value}, 1);
}

void gguf_texts(GgufFile *file, const char *key, const char *const *values, size_t count)
{
    begin_array(file, key, PAIR_TEXT, count);
    for (size_t i = 0; i < count; i++) append_text(&file->pairs, values[i]);
}

void gguf_integers(GgufFile *file, const char *key, const int32_t *values, size_t count)
{
    begin_array(file, key, PAIR_I32, count);
    buffer_append(&file->pairs, values, count * sizeof *values);
}

void gguf_reals(GgufFile *file, const char *key, const float *values, size_t count)
{
    begin_array(file, key, PAIR_F32, count);
    buffer_append(&file->pairs, values, count * sizeof *values);
}

/* ---- Tensors ---- */

void gguf_add(GgufFile *file, const GgufTensor *tensor)
{
    if (file->count == file->capacity) {
        file->capacity = file->capacity ? 2 * file->capacity : 64;
        file->tensors = memory_resize(file->tensors, file->capacity, sizeof *file->tensors);
    }
    file->tensors[file->count++] = *tensor;
}

static int64_t row_width(const GgufTensor *tensor) { return tensor->shape.dim[tensor->shape.rank - 1]; }

static size_t row_bytes(const GgufTensor *tensor)
{
    size_t width = (size_t)row_width(tensor);
    return tensor->type == GGUF_Q8_0  ? width / Q8_BLOCK * Q8_BYTES
           : tensor->type == GGUF_F16 ? width * sizeof(uint16_t)
                                      : width * sizeof(float);
}

static size_t rows_of(const GgufTensor *tensor) { return tensor->shape.rank == 2 ? (size_t)tensor->shape.dim[0] : 1; }

static size_t aligned(size_t size) { return (size + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT; }

/* The scale, f16, is the largest magnitude / 127; then 32 integers. Quotients take the scale before it is rounded, as
 * ggml does. */
static void encode_q8(const float *values, int64_t width, unsigned char *bytes)
{
    for (int64_t i = 0; i < width; i += Q8_BLOCK, bytes += Q8_BYTES) {
        float largest = 0;
        for (int k = 0; k < Q8_BLOCK; k++) largest = fmaxf(largest, fabsf(values[i + k]));
        float scale = largest / 127, inverse = scale > 0 ? 1 / scale : 0;
        uint16_t half;
        element_store_double(DTYPE_F16, &half, 0, scale);
        memcpy(bytes, &half, sizeof half);
        for (int k = 0; k < Q8_BLOCK; k++) bytes[2 + k] = (unsigned char)(signed char)roundf(values[i + k] * inverse);
    }
}

/* False if an element is beyond the type. */
static bool encode_row(const GgufTensor *tensor, const float *values, void *bytes)
{
    const float most = tensor->type == GGUF_F16 ? 65504 : tensor->type == GGUF_Q8_0 ? 65504 * 127.0f : INFINITY;
    const int64_t width = row_width(tensor);
    bool fits = true;
    for (int64_t i = 0; i < width; i++) fits &= isfinite(values[i]) && fabsf(values[i]) <= most;
    if (!fits) return false;
    if (tensor->type == GGUF_Q8_0)
        encode_q8(values, width, bytes);
    else if (tensor->type == GGUF_F16)
        for (int64_t i = 0; i < width; i++) element_store_double(DTYPE_F16, bytes, i, values[i]);
    else
        memcpy(bytes, values, (size_t)width * sizeof *values);
    return true;
}

static bool write_tensor(const GgufTensor *tensor, FILE *stream, Diagnostics *diagnostics)
{
    static const char padding[GGUF_ALIGNMENT];
    const size_t size = row_bytes(tensor), rows = rows_of(tensor);
    FREED float *values = memory_allocate((size_t)row_width(tensor) * sizeof *values);
    FREED void *bytes = memory_allocate(size);
    bool fits = true;
    for (size_t row = 0; fits && row < rows; row++) {
        tensor->read(tensor->context, (int64_t)row, values);
        fits = encode_row(tensor, values, bytes);
        if (fits) fwrite(bytes, 1, size, stream);
    }
    fwrite(padding, 1, aligned(size * rows) - size * rows, stream);
    return fits || input_error(diagnostics, tensor->name, "check whether its training diverged",
                               "holds numbers that are not finite, or too large for %s",
                               tensor->type == GGUF_F16 ? "f16 (above 65504)" : "its type");
}

static void append_tensors(const GgufFile *file, Buffer *header)
{
    size_t offset = 0;
    for (size_t i = 0; i < file->count; i++) {
        const GgufTensor *tensor = &file->tensors[i];
        append_text(header, tensor->name);
        append_u32(header, (uint32_t)tensor->shape.rank);
        for (int k = tensor->shape.rank - 1; k >= 0; k--) append_u64(header, (uint64_t)tensor->shape.dim[k]);
        append_u32(header, tensor->type);
        append_u64(header, offset);
        offset += aligned(row_bytes(tensor) * rows_of(tensor));
    }
    buffer_align(header, GGUF_ALIGNMENT);
}

bool gguf_write(const GgufFile *file, const char *path, Diagnostics *diagnostics)
{
    OutputFile output;
    FREED_WITH(buffer_free) Buffer header = {0};
    if (!file_create(&output, path, diagnostics)) return false;
    buffer_append(&header, "GGUF", 4);
    append_u32(&header, GGUF_VERSION);
    append_u64(&header, file->count);
    append_u64(&header, file->pair_count);
    buffer_append(&header, file->pairs.bytes, file->pairs.size);
    append_tensors(file, &header);
    fwrite(header.bytes, 1, header.size, output.stream);
    bool ok = true;
    for (size_t i = 0; ok && i < file->count; i++) ok = write_tensor(&file->tensors[i], output.stream, diagnostics);
    if (ok) return file_commit(&output, diagnostics);
    file_abandon(&output);
    return false;
}

void gguf_free(GgufFile *file)
{
    buffer_free(&file->pairs);
    free(file->tensors);
}
