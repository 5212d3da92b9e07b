/* GGUF, version 3: the file format of llama.cpp (gguf.md in ggml's documentation). Metadata in the order of the calls,
 * then tensors, which are read row by row while the file is written. Internal to the folder. */
#ifndef FRONTEND_HUGGINGFACE_GGUF_FILE_H
#define FRONTEND_HUGGINGFACE_GGUF_FILE_H

#include "base/buffer.h"
#include "base/diagnostics.h"
#include "base/dtype.h"

typedef enum GgufType { GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q8_0 = 8 } GgufType;

/* Writes the elements of a row (of a vector: all) as float32. */
typedef void GgufReadRow(const void *context, int64_t row, float *values);

typedef struct GgufTensor {
    const char *name;
    GgufType type;
    Shape shape; /* rank 1 or 2, the outer dimension first; GGUF_Q8_0: rows of multiples of 32 */
    GgufReadRow *read;
    const void *context;
} GgufTensor;

typedef struct GgufFile {
    Buffer pairs; /* the metadata as it is in the file */
    uint64_t pair_count;
    GgufTensor *tensors;
    size_t count, capacity;
} GgufFile;

void gguf_text(GgufFile *file, const char *key, const char *value);
void gguf_integer(GgufFile *file, const char *key, int64_t value); /* u32 */
void gguf_real(GgufFile *file, const char *key, double value);     /* f32 */
void gguf_flag(GgufFile *file, const char *key, bool value);
void gguf_texts(GgufFile *file, const char *key, const char *const *values, size_t count);
void gguf_integers(GgufFile *file, const char *key, const int32_t *values, size_t count);
void gguf_reals(GgufFile *file, const char *key, const float *values, size_t count);

/* Names, shapes and contexts must live until the file is written. */
void gguf_add(GgufFile *file, const GgufTensor *tensor);

/* Reports elements that the type of their tensor cannot hold. */
bool gguf_write(const GgufFile *file, const char *path, Diagnostics *diagnostics);
void gguf_free(GgufFile *file);

#endif
