/* Safetensors files: mapped and checked on reading, streamed and committed atomically on writing. */
#ifndef BASE_SAFETENSORS_H
#define BASE_SAFETENSORS_H

#include "base/dtype.h"
#include "base/file.h"
#include "base/hash.h"

typedef struct SafeTensor {
    const char *name;
    DType dtype;
    Shape shape;
    const void *data; /* aligned to the element size: inside the mapping, or a copy where the file left it unaligned */
    size_t bytes;
} SafeTensor;

typedef struct SafeTensors {
    MappedFile file;
    Arena arena;
    SafeTensor *tensors;        /* in order of their data */
    const SafeTensor **by_name; /* sorted, for safetensors_find */
    size_t count;
    const char **metadata; /* key, value, key, value ... */
    size_t metadata_count; /* pairs */
} SafeTensors;

/* Every size, offset, overlap and name is checked before use; nothing is left open on failure. */
bool safetensors_open(SafeTensors *file, const char *path, Diagnostics *diagnostics);
const SafeTensor *safetensors_find(const SafeTensors *file, const char *name); /* NULL if absent; logarithmic */
const char *safetensors_metadata(const SafeTensors *file, const char *key);    /* NULL if absent */
/* Whether no tensor can have this name. */
bool safetensors_name_is_reserved(const char *name);
void safetensors_close(SafeTensors *file);

/* Writing: declare every tensor (names must differ), then write all of them. */
typedef struct SafeTensorsWriter SafeTensorsWriter;

SafeTensorsWriter *safetensors_writer(void);
void safetensors_writer_metadata(SafeTensorsWriter *writer, const char *key, const char *value);
/* `data` is not copied and must live until safetensors_write. */
void safetensors_writer_add(SafeTensorsWriter *writer, const char *name, DType dtype, const Shape *shape,
                            const void *data);
/* The file is written again and again (file_create_again). */
void safetensors_writer_again(SafeTensorsWriter *writer);
/* What the written file is: its size, and the hash of its bytes, which are not read again for that. */
typedef struct FileContent {
    size_t bytes;
    Hash hash;
} FileContent;
void safetensors_writer_note(SafeTensorsWriter *writer, FileContent *content);
/* Writes header and data to `path` (atomically) and frees the writer, in success and failure alike. Tensors keep the
 * order they were added in, except that wider element types come first, so that every tensor is aligned; the header is
 * padded so that the data starts at a multiple of 64 bytes. */
bool safetensors_write(SafeTensorsWriter *writer, const char *path, Diagnostics *diagnostics);

#endif
