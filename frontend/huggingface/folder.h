/* The files of a Hugging Face folder: config.json, and tensors in model.safetensors or in several files that
 * model.safetensors.index.json lists.
 *
 * A folder comes from a stranger: its names must be plain, its files regular and in the folder itself. Only links of
 * the library's cache, NAME -> ../../blobs/HASH, are followed. */
#ifndef FRONTEND_HUGGINGFACE_FOLDER_H
#define FRONTEND_HUGGINGFACE_FOLDER_H

#include "base/safetensors.h"
#include "frontend/huggingface/config.h"

typedef struct FolderFile {
    const char *name;
    SafeTensors tensors;
    bool *used; /* per tensor */
} FolderFile;

typedef struct HuggingFaceFolder {
    Arena arena;
    const char *path;
    HuggingFaceConfig config;
    bool refers; /* the model is written into the folder, and refers to its files */
    FolderFile *files;
    size_t file_count, file_capacity;
} HuggingFaceFolder;

/* Opens and checks config.json and, if `weighs`, the headers of all tensor files. `path` must outlive the folder; free
 * it in any case. */
bool folder_open(HuggingFaceFolder *folder, const char *path, bool weighs, Diagnostics *diagnostics);
void folder_close(HuggingFaceFolder *folder);

/* The tensor of that name, now marked as used; NULL if there is none. */
const SafeTensor *folder_tensor(HuggingFaceFolder *folder, const char *name);

/* The file that has the tensor's elements as they are, and where, if a model that is written into the folder may refer
 * to it; NULL: they have to be copied. */
const char *folder_place(const HuggingFaceFolder *folder, const SafeTensor *tensor, int64_t *offset);

/* Why a name found in a folder's file cannot name another of its files; NULL if it can. */
const char *folder_name_problem(const char *name);

typedef enum FolderEntry { FOLDER_ABSENT, FOLDER_PRESENT, FOLDER_REFUSED } FolderEntry;

/* Whether `name` is a readable file of the folder with at most `most_bytes`; reports why not. */
FolderEntry folder_find(const char *path, const char *name, int64_t most_bytes, Diagnostics *diagnostics);

#endif
