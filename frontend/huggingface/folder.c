#include "frontend/huggingface/folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/parts.h"

#define CONFIG "config.json"
#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

enum { MOST_CONFIG_BYTES = 1 << 22, MOST_INDEX_BYTES = 1 << 26, MOST_SHARDS = 1000 };

static const char *path_of(HuggingFaceFolder *folder, const char *name)
{
    return arena_format(&folder->arena, "%s/%s", folder->path, name);
}

/* ---- Tensors ---- */

static bool open_file(HuggingFaceFolder *folder, const char *name, Diagnostics *diagnostics)
{
    FolderFile file = {.name = arena_string(&folder->arena, name)};
    if (!safetensors_open(&file.tensors, path_of(folder, name), diagnostics)) return false;
    file.used = arena_new_array(&folder->arena, bool, file.tensors.count);
    array_push(folder->files, folder->file_count, folder->file_capacity, file);
    return true;
}

static const FolderFile *file_named(const HuggingFaceFolder *folder, const char *name)
{
    for (size_t i = 0; i < folder->file_count; i++)
        if (strcmp(folder->files[i].name, name) == 0) return &folder->files[i];
    return NULL;
}

static bool refuse_entry(const char *path, const char *tensor, const char *problem, const char *hint,
                         Diagnostics *diagnostics)
{
    char object[512];
    snprintf(object, sizeof object, "weight_map['%.400s']", tensor);
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = path, .object = object}, hint, "%s", problem);
}

/* One entry of the index: the file is opened when it is named first, and must hold the tensor. */
static bool open_shard(HuggingFaceFolder *folder, const char *index, const char *tensor, const json_t *value,
                       Diagnostics *diagnostics)
{
    const char *name = json_string_value(value);
    if (!name) return refuse_entry(index, tensor, "must be a file name", NULL, diagnostics);
    if (folder_name_problem(name)) return refuse_entry(index, tensor, folder_name_problem(name), NULL, diagnostics);
    if (!file_named(folder, name)) {
        if (folder->file_count == MOST_SHARDS)
            return refuse_entry(index, tensor, "is in more files than skycc reads (1000)", NULL, diagnostics);
        FolderEntry entry = folder_find(folder->path, name, INT64_MAX, diagnostics);
        if (entry == FOLDER_ABSENT)
            return refuse_entry(index, tensor,
                                arena_format(&folder->arena, "is in '%s', which is missing in the folder", name),
                                "copy or download that file too", diagnostics);
        if (entry == FOLDER_REFUSED || !open_file(folder, name, diagnostics)) return false;
    }
    return safetensors_find(&file_named(folder, name)->tensors, tensor) ||
           refuse_entry(index, tensor, arena_format(&folder->arena, "is not in '%s'", name), NULL, diagnostics);
}

static bool open_index(HuggingFaceFolder *folder, Diagnostics *diagnostics)
{
    const char *path = path_of(folder, INDEX), *tensor;
    json_t *root = json_read(path, diagnostics), *map, *name;
    bool ok = root && json_get_object((JsonReader){path, diagnostics}, root, NULL, "weight_map", &map);
    if (ok) json_object_foreach(map, tensor, name)
        {
            ok = open_shard(folder, path, tensor, name, diagnostics);
            if (!ok) break;
        }
    json_decref(root);
    return ok;
}

/* A file of the form model-00001-of-00002.safetensors in the folder; "" if there is none. */
static void find_shard(const char *path, char name[static 256])
{
    DIR *folder = opendir(path);
    *name = 0;
    for (const struct dirent *entry; folder && !*name && (entry = readdir(folder));)
        if (pattern_matches("model-*-of-*.safetensors", entry->d_name)) snprintf(name, 256, "%s", entry->d_name);
    if (folder) closedir(folder);
}

/* Pickles are programs: nothing but Python can read them, and reading runs them. */
static bool refuse_absence(const HuggingFaceFolder *folder, Diagnostics *diagnostics)
{
    static const char *const pickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    FREED_WITH(diagnostics_free) Diagnostics unread = {0};
    bool pickle = false;
    for (int i = 0; i < 2; i++) pickle |= folder_find(folder->path, pickles[i], INT64_MAX, &unread) != FOLDER_ABSENT;
    char shard[256];
    find_shard(folder->path, shard);
    if (*shard)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(folder->path),
                                 "copy " INDEX " to it from where the model came from; all files that it names are "
                                 "needed",
                                 "has parts of the weights, such as '%s', but no " INDEX ", which says what they hold",
                                 shard);
    return diagnostics_error(
        diagnostics, EXIT_BAD_INPUT, PLACE_FILE(folder->path),
        pickle ? "convert it once where it may run: python -c \"from transformers import AutoModel as M; "
                 "M.from_pretrained('FOLDER').save_pretrained('NEW')\" (AutoModelFor... keeps a head)"
               : "give the folder that save_pretrained writes; import --weights seed makes a new model of config.json "
                 "alone",
        pickle
            ? "has its weights only in pytorch_model.bin, a pickle: skycc reads none, because loading one runs its code"
            : "has neither " SINGLE " nor " INDEX);
}

static bool open_tensors(HuggingFaceFolder *folder, Diagnostics *diagnostics)
{
    FolderEntry single = folder_find(folder->path, SINGLE, INT64_MAX, diagnostics);
    if (single == FOLDER_PRESENT) return open_file(folder, SINGLE, diagnostics);
    FolderEntry index =
        single == FOLDER_ABSENT ? folder_find(folder->path, INDEX, MOST_INDEX_BYTES, diagnostics) : FOLDER_REFUSED;
    if (index == FOLDER_PRESENT) return open_index(folder, diagnostics);
    return index == FOLDER_REFUSED ? false : refuse_absence(folder, diagnostics);
}

/* PEFT's adapters name the model that they belong to. */
static bool refuse_without_config(const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(diagnostics_free) Diagnostics unread = {0};
    bool adapter = folder_find(path, "adapter_config.json", MOST_CONFIG_BYTES, &unread) != FOLDER_ABSENT;
    return input_error(diagnostics, path,
                       adapter ? "merge it into its model first: python -c \"from peft import "
                                 "AutoPeftModelForCausalLM as M; "
                                 "M.from_pretrained('FOLDER').merge_and_unload().save_pretrained('NEW')\""
                               : "give the folder that save_pretrained writes",
                       "has no config.json%s", adapter ? ": it is an adapter of PEFT" : "");
}

bool folder_open(HuggingFaceFolder *folder, const char *path, bool weighs, Diagnostics *diagnostics)
{
    *folder = (HuggingFaceFolder){.path = path};
    struct stat status;
    if (stat(path, &status) != 0) return file_error(diagnostics, path, "cannot open");
    if (!S_ISDIR(status.st_mode))
        return input_error(diagnostics, path, "name the folder that holds config.json and model.safetensors",
                           "is not a folder");
    FolderEntry entry = folder_find(path, CONFIG, MOST_CONFIG_BYTES, diagnostics);
    if (entry == FOLDER_ABSENT) return refuse_without_config(path, diagnostics);
    return entry == FOLDER_PRESENT &&
           config_read(&folder->config, path_of(folder, CONFIG), &folder->arena, diagnostics) &&
           (!weighs || open_tensors(folder, diagnostics));
}

void folder_close(HuggingFaceFolder *folder)
{
    for (size_t i = 0; i < folder->file_count; i++) safetensors_close(&folder->files[i].tensors);
    free(folder->files);
    config_free(&folder->config);
    arena_free(&folder->arena);
    *folder = (HuggingFaceFolder){0};
}

const SafeTensor *folder_tensor(HuggingFaceFolder *folder, const char *name)
{
    for (size_t i = 0; i < folder->file_count; i++) {
        FolderFile *file = &folder->files[i];
        const SafeTensor *tensor = safetensors_find(&file->tensors, name);
        if (!tensor) continue;
        file->used[tensor - file->tensors.tensors] = true;
        return tensor;
    }
    return NULL;
}

const char *folder_place(const HuggingFaceFolder *folder, const SafeTensor *tensor, int64_t *offset)
{
    for (size_t i = 0; folder->refers && i < folder->file_count; i++) {
        const FolderFile *file = &folder->files[i];
        const unsigned char *bytes = file->tensors.file.bytes, *data = tensor->data;
        if (data < bytes || data >= bytes + file->tensors.file.size) continue;
        FREED_WITH(arena_free) Arena arena = {0};
        struct stat status;
        bool own = lstat(arena_format(&arena, "%s/%s", folder->path, file->name), &status) == 0 &&
                   S_ISREG(status.st_mode) && status.st_nlink == 1; /* external data follows no links */
        *offset = data - bytes;
        return own ? file->name : NULL;
    }
    return NULL;
}
