#include "federation/member/site_checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/codec_rows.h"
#include "base/file.h"
#include "base/input_files.h"
#include "runtime/storage/checkpoint_directory.h"
#include "runtime/storage/parameters.h"

/* ---- Names ---- */

void tied_names_read(TiedNames *tied, const GlobalModel *model)
{
    *tied = (TiedNames){0};
    char *lines = arena_string(&tied->arena, model->tied ? model->tied : ""), *rest = NULL;
    size_t most = 1;
    for (const char *at = lines; *at; at++) most += *at == '\n';
    tied->items = arena_new_array(&tied->arena, TiedName, most);
    for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *of = strchr(line, '\t'), *how = of ? strchr(of + 1, '\t') : NULL;
        if (!how) continue;
        *of = *how = '\0';
        tied->items[tied->count++] = (TiedName){line, of + 1, how[1] == '1'};
    }
}

static const TiedName *find_tied(const TiedNames *tied, const char *name)
{
    for (size_t i = 0; i < tied->count; i++)
        if (strcmp(tied->items[i].name, name) == 0) return &tied->items[i];
    return NULL;
}

/* ---- Files ---- */

typedef struct Checkpoint {
    Arena arena;
    const char *directory, *path; /* of the step */
    CheckpointManifest manifest;
    SafeTensors *files;
    int open;
} Checkpoint;

static const char *file_path(Checkpoint *checkpoint, const char *name)
{
    return arena_format(&checkpoint->arena, "%s/%s", checkpoint->path, name);
}

static bool checkpoint_open(Checkpoint *checkpoint, const char *directory, int64_t step, bool is_sound,
                            Diagnostics *diagnostics)
{
    *checkpoint = (Checkpoint){.directory = directory};
    if (!checkpoint_read_manifest(&checkpoint->manifest, directory, step, diagnostics)) return false;
    FREED char *path = checkpoint_path(directory, step);
    checkpoint->path = arena_string(&checkpoint->arena, path);
    checkpoint->files = arena_new_array(&checkpoint->arena, SafeTensors, (size_t)checkpoint->manifest.file_count);
    for (int f = 0; f < checkpoint->manifest.file_count; f++) {
        const CheckpointFile *entry = &checkpoint->manifest.files[f];
        const char *name = file_path(checkpoint, entry->name);
        if (!safetensors_open(&checkpoint->files[f], name, diagnostics)) return false;
        checkpoint->open++;
        if (!is_sound && !checkpoint_verify_file(&checkpoint->files[f], entry, name, diagnostics)) return false;
    }
    return true;
}

static void close_files(Checkpoint *checkpoint)
{
    for (int f = 0; f < checkpoint->open; f++) safetensors_close(&checkpoint->files[f]);
    checkpoint->open = 0;
}

static void checkpoint_close(Checkpoint *checkpoint)
{
    close_files(checkpoint);
    free(checkpoint->manifest.files);
    arena_free(&checkpoint->arena);
}

/* `start`: what values are subtracted from; NULL: nothing. */
static bool read_tensor(const Checkpoint *checkpoint, const GlobalTensor *tensor, const float *start, float *values,
                        Diagnostics *diagnostics)
{
    const SafeTensor *found = NULL;
    Place place = {.file = checkpoint->path, .object = tensor->name};
    for (int f = 0; f < checkpoint->open && !found; f++) found = safetensors_find(&checkpoint->files[f], tensor->name);
    if (!found || found->dtype != DTYPE_F32 || !shape_equal(&found->shape, &tensor->shape))
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "was the site compiled with the federation?",
                                 found ? "the tensor has another type or shape than the federation's model"
                                       : "the tensor is missing");
    enum { AT_ONCE = 1 << 14 }; /* small enough to stay in a cache */
    const float *data = found->data;
    const int64_t parts = (int64_t)((tensor->elements + AT_ONCE - 1) / AT_ONCE);
    size_t i = 0;
    bool finite = true;
#pragma omp parallel for schedule(static) reduction(& : finite) if (parts > 1)
    for (int64_t p = 0; p < parts; p++) {
        size_t at = (size_t)p * AT_ONCE, here = tensor->elements - at < AT_ONCE ? tensor->elements - at : AT_ONCE;
        finite &= isfinite(codec_largest(data + at, (int64_t)here));
        for (size_t e = at; e < at + here; e++) values[e] = start ? start[e] - data[e] : data[e];
    }
    while (!finite && isfinite(data[i])) i++;
    return finite || diagnostics_error(diagnostics, EXIT_DIVERGED, place, "a lower --lr, --warmup or --clip may help",
                                       "element %zu is not finite: nothing of it is sent", i);
}

bool site_checkpoint_read(const char *directory, int64_t step, bool is_sound, const Federation *federation,
                          const GlobalModel *like, bool changes, float *values, Diagnostics *diagnostics)
{
    FREED_WITH(checkpoint_close) Checkpoint checkpoint = {0};
    bool ok = checkpoint_open(&checkpoint, directory, step, is_sound, diagnostics);
    if (ok && strcmp(checkpoint.manifest.model_hash, federation->compiled.model_hash) != 0)
        ok = input_error(diagnostics, checkpoint.path, NULL, "is a checkpoint of another model than the federation's");
    for (size_t i = 0; i < like->tensor_count && ok; i++) {
        size_t first = like->tensors[i].first;
        ok = read_tensor(&checkpoint, &like->tensors[i], changes ? like->values + first : NULL, values + first,
                         diagnostics);
    }
    return ok;
}

/* ---- Writing ---- */

static const float *transposed(Arena *arena, const float *values, const Shape *shape)
{
    int64_t rows = shape->dim[0], columns = shape->dim[1];
    float *copy = arena_new_array(arena, float, (size_t)(rows * columns));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) copy[c * rows + r] = values[r * columns + c];
    return copy;
}

/* The model's values under the name of a checkpoint; NULL: the name is of another tensor, outside the part, or of one
 * that has not met. */
static const float *values_under(Arena *arena, const char *name, const GlobalModel *model, FragmentRange part,
                                 const TiedNames *tied)
{
    const TiedName *other = find_tied(tied, name);
    const GlobalTensor *tensor = global_model_find(model, other ? other->of : name);
    if (!tensor || tensor->first < part.first || tensor->first >= part.end) return NULL;
    if (model->met && !model->met[tensor - model->tensors]) return NULL;
    const float *values = model->values + tensor->first;
    return other && other->transposed ? transposed(arena, values, &tensor->shape) : values;
}

/* Copies of files get a name of the model, so that the manifest lists the old files until it lists the new ones. */
static void name_file(CheckpointFile *file, int number, int64_t round, int64_t branch)
{
    unsigned model =
        (unsigned)((round + 999983 * branch) % 10000000); /* a round that was gone back to is another one */
    snprintf(file->name, sizeof file->name, "rank-%02d.m%07u.safetensors", number % 100, model);
}

bool site_checkpoint_has_model(const char *directory, int64_t step, const GlobalModel *model)
{
    CheckpointManifest manifest;
    CheckpointFile expected;
    FREED_WITH(diagnostics_free) Diagnostics unsaid = {0};
    name_file(&expected, 0, model->round, model->branch);
    bool ok = checkpoint_read_manifest(&manifest, directory, step, &unsaid);
    bool has = ok && manifest.file_count > 0 && strcmp(manifest.files[0].name, expected.name) == 0;
    if (ok) free(manifest.files);
    return has;
}

static bool note_file(CheckpointFile *file, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(file_unmap) MappedFile mapped = {0};
    if (!file_map(&mapped, path, diagnostics)) return false;
    file->bytes = (int64_t)mapped.size;
    file->hash = hash_bytes(mapped.bytes, mapped.size);
    return true;
}

/* Whether the name is of what an inner optimiser keeps. */
static bool is_state(const char *name)
{
    const char *slash = strchr(name, '/');
    for (uint32_t states = 1; slash && states <= 2; states++)
        for (uint32_t s = 0; s < states; s++) {
            const char *prefix = parameter_state_prefix(states, s);
            if (strncmp(name, prefix, strlen(prefix)) == 0 && name + strlen(prefix) == slash) return true;
        }
    return false;
}

/* Whether the bytes were written at `at`. */
static bool write_at(int descriptor, const void *bytes, size_t size, off_t at)
{
    ssize_t written = 0;
    for (const char *from = bytes; size && written >= 0; from += written, at += written, size -= (size_t)written) do
            written = pwrite(descriptor, from, size, at);
        while (written < 0 && errno == EINTR);
    return size == 0;
}

/* Writes the part's values into the open copy of `file`; with `restarts` also zeros for the state of the inner
 * optimiser. Values of other parts and other states stay. */
static bool put_values(int descriptor, const SafeTensors *file, const GlobalModel *model, FragmentRange part,
                       bool restarts, const TiedNames *tied)
{
    FREED_WITH(arena_free) Arena copies = {0};
    bool ok = true;
    for (size_t i = 0; i < file->count && ok; i++) {
        const SafeTensor *tensor = &file->tensors[i];
        const void *data = values_under(&copies, tensor->name, model, part, tied);
        if (restarts && is_state(tensor->name)) data = arena_allocate(&copies, tensor->bytes);
        off_t at = (const unsigned char *)tensor->data - file->file.bytes;
        ok = !data || write_at(descriptor, data, tensor->bytes, at);
    }
    return ok && fsync(descriptor) == 0;
}

static bool copy_file(Checkpoint *checkpoint, int number, const GlobalModel *model, FragmentRange part, bool restarts,
                      const TiedNames *tied, Diagnostics *diagnostics)
{
    const MappedFile *file = &checkpoint->files[number].file;
    CheckpointFile *entry = &checkpoint->manifest.files[number];
    name_file(entry, number, model->round, model->branch);
    const char *path = file_path(checkpoint, entry->name);
    unlink(path); /* the round may start again */
    if (!file_write_part(path, file->bytes, file->size, diagnostics)) return false;
    FREED_WITH(descriptor_close) int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = descriptor >= 0 && put_values(descriptor, &checkpoint->files[number], model, part, restarts, tied);
    if (!ok) file_error(diagnostics, path, "cannot write");
    return ok && note_file(entry, path, diagnostics);
}

/* Writes values into copies of the files, so that the manifest lists either all of the former content or all of the new
 * one. */
static bool replace(const char *directory, int64_t step, const GlobalModel *model, FragmentRange part, bool restarts,
                    const TiedNames *tied, Diagnostics *diagnostics)
{
    FREED_WITH(checkpoint_close) Checkpoint checkpoint = {0};
    bool ok = checkpoint_open(&checkpoint, directory, step, false, diagnostics);
    int count = ok ? checkpoint.manifest.file_count : 0;
    const char **former = arena_new_array(&checkpoint.arena, const char *, (size_t)count);
    for (int f = 0; f < count && ok; f++) {
        former[f] = file_path(&checkpoint, checkpoint.manifest.files[f].name);
        ok = copy_file(&checkpoint, f, model, part, restarts, tied, diagnostics);
    }
    close_files(&checkpoint);      /* inputs no more */
    checkpoint.manifest.rates = 0; /* the next round's steps follow */
    ok = ok && checkpoint_write_manifest(&checkpoint.manifest, directory, diagnostics);
    for (int f = 0; f < count && ok; f++) unlink(former[f]);
    return ok;
}

bool site_checkpoint_exchange(const char *directory, int64_t step, const GlobalModel *model, FragmentRange part,
                              const TiedNames *tied, Diagnostics *diagnostics)
{
    return site_checkpoint_has_model(directory, step, model) ||
           replace(directory, step, model, part, false, tied, diagnostics);
}

bool site_checkpoint_restart(const char *directory, int64_t step, const GlobalModel *model, const TiedNames *tied,
                             Diagnostics *diagnostics)
{
    const FragmentRange all = {0, model->elements};
    return site_checkpoint_has_model(directory, step, model) ||
           replace(directory, step, model, all, true, tied, diagnostics);
}

/* Writes every value, and zeros for the state of the inner optimiser. */
static void add_start(SafeTensorsWriter *writer, Arena *arena, const Federation *federation, const GlobalModel *model,
                      const float *zeros)
{
    uint32_t states = (uint32_t)federation->compiled.states;
    for (size_t i = 0; i < model->tensor_count; i++) {
        const GlobalTensor *tensor = &model->tensors[i];
        safetensors_writer_add(writer, tensor->name, DTYPE_F32, &tensor->shape, model->values + tensor->first);
        for (uint32_t s = 0; s < states; s++)
            safetensors_writer_add(writer,
                                   arena_format(arena, "%s/%s", parameter_state_prefix(states, s), tensor->name),
                                   DTYPE_F32, &tensor->shape, zeros);
    }
}

static void add_tied(SafeTensorsWriter *writer, Arena *arena, const GlobalModel *model, const TiedNames *tied)
{
    for (size_t i = 0; i < tied->count; i++) {
        const GlobalTensor *tensor = global_model_find(model, tied->items[i].of);
        if (!tensor) continue;
        Shape shape = tensor->shape;
        if (tied->items[i].transposed) shape = (Shape){2, {tensor->shape.dim[1], tensor->shape.dim[0]}};
        const FragmentRange all = {0, model->elements};
        safetensors_writer_add(writer, tied->items[i].name, DTYPE_F32, &shape,
                               values_under(arena, tied->items[i].name, model, all, tied));
    }
}

bool site_checkpoint_begin(const char *directory, const Federation *federation, const GlobalModel *model,
                           const TiedNames *tied, CheckpointManifest start, Diagnostics *diagnostics)
{
    const FederationCompiled *compiled = &federation->compiled;
    CheckpointFile file;
    FREED_WITH(arena_free) Arena arena = {0};
    size_t largest = 1;
    for (size_t i = 0; i < model->tensor_count; i++)
        if (model->tensors[i].elements > largest) largest = model->tensors[i].elements;
    FREED float *zeros = memory_allocate(largest * sizeof *zeros);
    SafeTensorsWriter *writer = safetensors_writer();
    if (*compiled->low_rank) safetensors_writer_metadata(writer, "lora", compiled->low_rank);
    add_start(writer, &arena, federation, model, zeros);
    add_tied(writer, &arena, model, tied);
    name_file(&file, 0, model->round, model->branch);
    FREED char *step = checkpoint_path(directory, 0);
    const char *path = arena_format(&arena, "%s/%s", step, file.name);
    input_files_release_path(path);
    start.optimizer = (uint32_t)compiled->optimizer;
    start.file_count = 1;
    start.files = &file;
    if (*compiled->low_rank) start.low_rank = hash_bytes(compiled->low_rank, strlen(compiled->low_rank));
    snprintf(start.model_hash, sizeof start.model_hash, "%s", compiled->model_hash);
    return checkpoint_prepare(directory, 0, diagnostics) && safetensors_write(writer, path, diagnostics) &&
           note_file(&file, path, diagnostics) && checkpoint_write_manifest(&start, directory, diagnostics);
}
