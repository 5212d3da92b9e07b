/* Training and evaluation data: a safetensors file, mapped, and checked as a whole before training starts. Who
 * overwrites a mapped file changes what is trained on, so batches are checked again, and the file after every step.
 *
 * Every tensor has one row per sample: [N, ...] where the graph input is [micro-batch size, ...]. Packed sequences
 * (runtime/program/packing.h) are filled by packed_batch.h; rows have the data's own length then. */
#ifndef RUNTIME_STORAGE_DATASET_H
#define RUNTIME_STORAGE_DATASET_H

#include "base/hash.h"
#include "base/safetensors.h"
#include "runtime/program/labels.h"

/* A tensor that this rank reads. */
typedef struct DatasetTensor {
    const SkyTensor *input;
    Hash content; /* of all its elements, as `input` has them: whatever integers or floats the file holds them in */
} DatasetTensor;

/* How the file was when it was last looked at. */
typedef struct DatasetStamp {
    int64_t size, modified_ns, changed_ns;
} DatasetStamp;

typedef struct Dataset {
    SafeTensors file;
    const char *path;                          /* not copied */
    int64_t rows;                              /* 0 if this rank reads no inputs and the file was not opened */
    const SafeTensor *labels[SKY_MOST_LABELS]; /* of the program's labels; NULL: no stage of this rank reads them */
    DatasetTensor *read;                       /* every one once */
    uint32_t read_count;
    int descriptor; /* of the mapped file, whatever has its name by now */
    DatasetStamp stamp;
    bool as_model;           /* its labels are numbered as the model says */
    const char *label_names; /* in the numbering that its labels have here, as a JSON list; NULL or "": not known */
    Hash sample;             /* of a few of its pages */
} Dataset;

/* In place of a row number: a row that pads the last batch of an epoch. Its labels weigh nothing. */
#define DATASET_NO_ROW UINT32_MAX

/* Whether the input is found in data; others the runtime makes up. */
static inline bool dataset_holds(const SkyTensor *input) { return input->fill <= SKY_FILL_SLOTS; }

/* Opens `path`, which must live as long, and checks every tensor that the program's stages read: present, one element
 * type for another without loss, the same number of rows, the shape the program was compiled for, ids and labels inside
 * their range. Labels are brought into the numbering of the model, or of the data set `like` (NULL: none), which is
 * open, as data_origin.h says. */
bool dataset_open(Dataset *dataset, const char *path, const SkyProgram *program, const Dataset *like,
                  Diagnostics *diagnostics);
void dataset_close(Dataset *dataset);

/* Copies rows `rows[0 ... input->dim[0] - 1]` of the tensor that `input` is named after to `destination`, converted. */
void dataset_fill(const Dataset *dataset, const SkyProgram *program, const SkyTensor *input, const uint32_t *rows,
                  void *destination);
/* What `dataset_fill` or packed_batch_fill wrote for a micro-batch is as valid as all was when the file was opened;
 * else it was overwritten, which is an error. */
bool dataset_check_filled(const Dataset *dataset, const SkyProgram *program, const SkyTensor *input, const void *filled,
                          Diagnostics *diagnostics);
/* Whether the file still holds what it held when it was opened: an error if not. Reads all of it if the file was
 * written to, as the system says. `samples`: also a few pages in any case, because not every system notes what is
 * written to a mapped file. */
bool dataset_check_unchanged(Dataset *dataset, bool samples, Diagnostics *diagnostics);
/* Elements of a tensor of the data set, converted to the input's type. */
void dataset_convert(const SafeTensor *tensor, int64_t first, const SkyTensor *input, void *destination, int64_t start,
                     int64_t count);
/* Of each of the program's labels what these rows have; nothing where this rank does not read them. */
void dataset_count_labels(const Dataset *dataset, const SkyProgram *program, const uint32_t *rows, int64_t count,
                          LabelCount labels[SKY_MOST_LABELS]);

#endif
