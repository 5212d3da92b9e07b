#include "runtime/storage/checkpoint_manifest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/input_files.h"
#include "base/json.h"
#include "base/parts.h"
#include "runtime/storage/checkpoint_directory.h"
#include "runtime/storage/dataset.h"

static const char manifest_format[] = "skycc.checkpoint/1";
static const char *const optimizer_names[] = {"sgd", "momentum", "adam", "adamw", "lamb"};
enum { OPTIMIZER_COUNT = sizeof optimizer_names / sizeof *optimizer_names, SEAL_SIZE = 64 };

Hash checkpoint_low_rank(const SkyProgram *program)
{
    return *program->low_rank ? hash_bytes(program->low_rank, strlen(program->low_rank)) : (Hash){0};
}

CheckpointMicrobatch checkpoint_microbatch(const SkyProgram *program)
{
    return (CheckpointMicrobatch){program->microbatch_size, program->packing.slots ? program->packing.length : 0};
}

/* ---- Writing ---- */

/* The end of a manifest: the hash of everything before it. Returns the length. */
static int seal_of(const char *text, size_t size, char seal[static SEAL_SIZE])
{
    char hash[33];
    return snprintf(seal, SEAL_SIZE, ",\n \"hash\": \"%s\"\n}\n", hash_format(hash_bytes(text, size), hash));
}

void checkpoint_seal_manifest(Buffer *text)
{
    char seal[SEAL_SIZE];
    int length = seal_of(text->bytes, text->size, seal);
    buffer_append(text, seal, (size_t)length);
}

static bool check_seal(const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(file_unmap) MappedFile file = {0};
    char seal[SEAL_SIZE];
    if (!file_map(&file, path, diagnostics)) return false;
    const char *text = (const char *)file.bytes;
    size_t length = (size_t)seal_of("", 0, seal);
    bool sealed = file.size > length;
    if (sealed) {
        seal_of(text, file.size - length, seal);
        sealed = memcmp(text + file.size - length, seal, length) == 0;
    }
    return sealed || input_error(diagnostics, path, NULL, "does not have the content that it was written with");
}

static void print_best(Buffer *text, const CheckpointBest *best)
{
    char hash[33];
    if (!best->metric[0]) return;
    buffer_print(text, " \"best\": {\"metric\": \"%s\", \"step\": %lld, \"value\": %.17g, \"waited\": %lld",
                 best->metric, (long long)best->step, best->step ? best->value : 0, (long long)best->waited);
    if (!hash_equal(best->data, (Hash){0})) buffer_print(text, ", \"data\": \"%s\"", hash_format(best->data, hash));
    buffer_print(text, "},\n");
}

bool checkpoint_write_manifest(const CheckpointManifest *manifest, const char *directory, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    char hash[33];
    buffer_print(&text, "{\n \"format\": \"%s\",\n \"step\": %lld,\n \"optimizer\": \"%s\",\n", manifest_format,
                 (long long)manifest->step, optimizer_names[manifest->optimizer]);
    buffer_print(&text, " \"model_hash\": ");
    json_print_string(&text, manifest->model_hash);
    buffer_print(&text, ",\n \"plan_hash\": ");
    json_print_string(&text, manifest->plan_hash);
    if (manifest->low_rank.high || manifest->low_rank.low)
        buffer_print(&text, ",\n \"lora_hash\": \"%s\"", hash_format(manifest->low_rank, hash));
    buffer_print(&text, ",\n \"random\": {\"seed\": \"%llu\"},\n", (unsigned long long)manifest->seed);
    buffer_print(&text, " \"data\": {\"rows\": %lld, \"epoch\": %lld, \"offset\": %lld, \"shuffled\": %d",
                 (long long)manifest->rows, (long long)manifest->cursor.epoch, (long long)manifest->cursor.offset,
                 manifest->shuffled);
    if (!hash_equal(manifest->data, (Hash){0}))
        buffer_print(&text, ", \"hash\": \"%s\"", hash_format(manifest->data, hash));
    buffer_print(&text, "},\n");
    if (manifest->skipped) buffer_print(&text, " \"skipped\": %lld,\n", (long long)manifest->skipped);
    if (manifest->microbatch.rows)
        buffer_print(&text, " \"microbatch\": {\"rows\": %lld, \"length\": %lld},\n",
                     (long long)manifest->microbatch.rows, (long long)manifest->microbatch.length);
    buffer_print(&text, " \"schedule_steps\": %lld,\n", (long long)manifest->schedule_steps);
    if (manifest->rates > 0) buffer_print(&text, " \"rates\": %.17g,\n", manifest->rates);
    print_best(&text, &manifest->best);
    if (!hash_equal(manifest->evaluation_data, (Hash){0}))
        buffer_print(&text, " \"evaluation_data\": \"%s\",\n", hash_format(manifest->evaluation_data, hash));
    if (manifest->evaluation_due) buffer_print(&text, " \"evaluation_due\": true,\n");
    buffer_print(&text, " \"files\": [");
    for (int i = 0; i < manifest->file_count; i++)
        buffer_print(&text, "%s\n  {\"name\": \"%s\", \"bytes\": %lld, \"hash\": \"%s\"}", i ? "," : "",
                     manifest->files[i].name, (long long)manifest->files[i].bytes,
                     hash_format(manifest->files[i].hash, hash));
    buffer_print(&text, "\n ]");
    checkpoint_seal_manifest(&text);
    FREED char *path = checkpoint_manifest_path(directory, manifest->step);
    input_files_release_path(path); /* a step may be saved again after its checkpoint was read */
    return file_write_all(path, text.bytes, text.size, diagnostics);
}

/* ---- Reading ---- */

static bool read_hash(const char *text, Hash *hash)
{
    unsigned long long high, low;
    int used = 0;
    if (strlen(text) != 32 || sscanf(text, "%16llx%16llx%n", &high, &low, &used) != 2 || used != 32) return false;
    *hash = (Hash){high, low};
    return true;
}

static bool read_file(JsonReader reader, const json_t *entry, const char *place, CheckpointFile *file)
{
    const char *name, *hash;
    if (!json_get_string(reader, entry, place, "name", &name) ||
        !json_get_integer(reader, entry, place, "bytes", &file->bytes) ||
        !json_get_string(reader, entry, place, "hash", &hash))
        return false;
    if (strlen(name) >= sizeof file->name || strncmp(name, "rank-", 5) != 0 || strchr(name, '/') ||
        !read_hash(hash, &file->hash))
        return diagnostics_error(reader.diagnostics, EXIT_BAD_INPUT, (Place){.file = reader.file, .object = place},
                                 NULL, "names no file of a checkpoint");
    snprintf(file->name, sizeof file->name, "%s", name);
    return true;
}

static bool read_files(JsonReader reader, const json_t *root, CheckpointManifest *manifest)
{
    json_t *files;
    if (!json_get_array(reader, root, "", "files", &files)) return false;
    size_t count = json_array_size(files);
    manifest->files = memory_allocate(count * sizeof *manifest->files);
    manifest->file_count = (int)count;
    for (size_t i = 0; i < count; i++) {
        char place[64];
        snprintf(place, sizeof place, "files[%zu]", i);
        if (!read_file(reader, json_array_get(files, i), place, &manifest->files[i])) return false;
    }
    return true;
}

static bool copy_text(char *target, size_t size, const char *text)
{
    return (size_t)snprintf(target, size, "%s", text) < size;
}

/* The results of evaluations, which are optional. */
static bool read_best(JsonReader reader, const json_t *root, CheckpointBest *best)
{
    const char *metric, *data = NULL;
    json_t *object;
    if (!json_object_get(root, "best")) return true;
    if (!json_get_object(reader, root, "", "best", &object) ||
        !json_get_string(reader, object, "best", "metric", &metric) ||
        !json_get_integer(reader, object, "best", "step", &best->step) ||
        !json_get_number(reader, object, "best", "value", &best->value) ||
        !json_get_integer(reader, object, "best", "waited", &best->waited) ||
        (json_object_get(object, "data") && !json_get_string(reader, object, "best", "data", &data)))
        return false;
    const int64_t most = (int64_t)1 << 53;
    if (best->step >= 0 && best->step < most && best->waited >= 0 && best->waited < most &&
        copy_text(best->metric, sizeof best->metric, metric) && (!data || read_hash(data, &best->data)))
        return true;
    return input_error(reader.diagnostics, reader.file, NULL, "its \"best\" is no step and value of a metric");
}

/* Absent in older checkpoints. */
static bool read_microbatch(JsonReader reader, const json_t *root, CheckpointMicrobatch *microbatch)
{
    json_t *object;
    *microbatch = (CheckpointMicrobatch){0};
    if (!json_object_get(root, "microbatch")) return true;
    if (!json_get_object(reader, root, "", "microbatch", &object) ||
        !json_get_integer(reader, object, "microbatch", "rows", &microbatch->rows) ||
        !json_get_integer(reader, object, "microbatch", "length", &microbatch->length))
        return false;
    return (microbatch->rows > 0 && microbatch->length >= 0) ||
           input_error(reader.diagnostics, reader.file, NULL, "its \"microbatch\" is none");
}

/* Absent where nobody needs it. */
static bool read_rates(JsonReader reader, const json_t *root, double *rates)
{
    *rates = 0;
    if (!json_object_get(root, "rates")) return true;
    return json_get_number(reader, root, "", "rates", rates) &&
           ((*rates > 0 && isfinite(*rates)) ||
            input_error(reader.diagnostics, reader.file, NULL, "its \"rates\" are no sum of learning rates"));
}

static bool read_members(JsonReader reader, const json_t *root, int64_t step, CheckpointManifest *manifest)
{
    const char *format, *optimizer, *model, *plan, *seed;
    json_t *data, *random;
    int64_t shuffled;
    if (!json_get_string(reader, root, "", "format", &format) ||
        !json_get_integer(reader, root, "", "step", &manifest->step) ||
        !json_get_string(reader, root, "", "optimizer", &optimizer) ||
        !json_get_string(reader, root, "", "model_hash", &model) ||
        !json_get_string(reader, root, "", "plan_hash", &plan) || !json_get_object(reader, root, "", "data", &data) ||
        !json_get_object(reader, root, "", "random", &random) ||
        !json_get_string(reader, random, "random", "seed", &seed) ||
        !json_get_integer(reader, data, "data", "rows", &manifest->rows) ||
        !json_get_integer(reader, data, "data", "epoch", &manifest->cursor.epoch) ||
        !json_get_integer(reader, data, "data", "offset", &manifest->cursor.offset) ||
        !json_get_integer(reader, data, "data", "shuffled", &shuffled) ||
        !json_optional_integer(reader, root, "", "skipped", &manifest->skipped) ||
        !json_optional_integer(reader, root, "", "schedule_steps", &manifest->schedule_steps))
        return false;
    const char *data_hash = json_string_value(json_object_get(data, "hash"));
    const char *low_rank = json_string_value(json_object_get(root, "lora_hash"));
    const char *evaluation = json_string_value(json_object_get(root, "evaluation_data"));
    manifest->low_rank = (Hash){0};
    const int64_t most = (int64_t)1 << 53; /* so that later steps do not overflow */
    manifest->shuffled = shuffled != 0;
    manifest->seed = strtoull(seed, NULL, 10);
    int kind = word_index(optimizer, optimizer_names, OPTIMIZER_COUNT);
    manifest->optimizer = (uint32_t)kind;
    if (strcmp(format, manifest_format) == 0 && kind >= 0 && manifest->step == step && step >= 0 && step < most &&
        manifest->schedule_steps >= 0 && manifest->schedule_steps <= most && manifest->cursor.epoch >= 0 &&
        manifest->cursor.epoch < most && manifest->rows < DATASET_NO_ROW && manifest->cursor.offset >= 0 &&
        manifest->cursor.offset <= manifest->rows && manifest->skipped >= 0 && manifest->skipped <= step &&
        (!low_rank || read_hash(low_rank, &manifest->low_rank)) &&
        (!data_hash || read_hash(data_hash, &manifest->data)) &&
        (!evaluation || read_hash(evaluation, &manifest->evaluation_data)) &&
        copy_text(manifest->model_hash, sizeof manifest->model_hash, model) &&
        copy_text(manifest->plan_hash, sizeof manifest->plan_hash, plan)) {
        manifest->evaluation_due = json_is_true(json_object_get(root, "evaluation_due"));
        return read_best(reader, root, &manifest->best) && read_microbatch(reader, root, &manifest->microbatch) &&
               read_rates(reader, root, &manifest->rates) && read_files(reader, root, manifest);
    }
    return input_error(reader.diagnostics, reader.file, NULL,
                       "is no manifest of a checkpoint that this program can read");
}

bool checkpoint_read_manifest(CheckpointManifest *manifest, const char *directory, int64_t step,
                              Diagnostics *diagnostics)
{
    *manifest = (CheckpointManifest){0};
    FREED char *path = checkpoint_manifest_path(directory, step);
    json_auto_t *root = check_seal(path, diagnostics) ? json_read(path, diagnostics) : NULL;
    if (root && read_members((JsonReader){path, diagnostics}, root, step, manifest)) return true;
    free(manifest->files);
    manifest->files = NULL;
    manifest->file_count = 0;
    return false;
}
