/* Weights in files next to the model.
 *
 * A location is a relative path inside the model's folder: no "..", no absolute path, and no component that is a
 * symbolic link, so that a model from a stranger cannot reach other files. The opened descriptor is checked, not the
 * name: a regular file with a single hard link. Files are mapped, never copied, and each only once. */
#ifndef FRONTEND_ONNX_EXTERNAL_DATA_H
#define FRONTEND_ONNX_EXTERNAL_DATA_H

#include "base/file.h"

typedef struct ExternalFile {
    const char *location; /* as the model names it */
    const char *path;     /* for opening it again */
    MappedFile file;
    bool missing;
    bool refused; /* once reported, whoever asks */
} ExternalFile;

typedef struct ExternalData {
    Arena arena;
    const char *model_path;
    bool tolerate_missing; /* a file that does not exist is no error */
    ExternalFile **files;
    size_t count, capacity;
} ExternalData;

/* The mapped file of that location; NULL after reporting, against `place` if it is the first time. */
const ExternalFile *external_data_open(ExternalData *data, const char *location, Place place, Diagnostics *diagnostics);
void external_data_close(ExternalData *data);

#endif
