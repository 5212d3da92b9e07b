/* A Hugging Face folder with one file of tensors: config.json, a zero byte, and the index of the files of tensors.
 * An accepted configuration becomes a graph with new weights, which are not drawn; the input's length selects the head.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/huggingface/encoder.h"
#include "frontend/huggingface/heads.h"
#include "tests/fuzz/fuzz.h"

#define FOLDER "." /* whose files are those below, whatever is on the disk */

enum { MOST_LAYERS = 8 };

static const char tensors[] =
    "\x40\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}          1234";

FolderEntry __wrap_folder_find(const char *path, const char *name, int64_t most_bytes, Diagnostics *diagnostics);

FolderEntry __wrap_folder_find(const char *path, const char *name, int64_t most_bytes, Diagnostics *diagnostics)
{
    (void)path, (void)most_bytes, (void)diagnostics;
    static const char *const names[] = {"config.json", "model.safetensors.index.json", "a.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return FOLDER_PRESENT;
    return FOLDER_ABSENT;
}

static void build(const HuggingFaceConfig *config, size_t size, Diagnostics *diagnostics)
{
    const HeadKind kind = HEAD_NONE + (HeadKind)(size % (HEAD_FIRST - HEAD_NONE + 1));
    const Head head = {.kind = kind,
                       .labels = kind == HEAD_SEQUENCE || kind == HEAD_TOKENS ? 3 : kind == HEAD_REGRESSION};
    if (head_problem(config, &head)) return;
    Network network = {.config = config,
                       .diagnostics = diagnostics,
                       .prefix = "",
                       .draws = true,
                       .batch = {0, "batch"},
                       .sequence = {0, "seq"}};
    onnx_builder_open(&network.builder, "fuzz", 20);
    head_build(&network, &head, encoder_build(&network));
    Buffer text = {0};
    config_print(config, &head, &text);
    buffer_free(&text);
    string_map_free(&network.parameters);
    free(network.added);
    onnx_builder_close(&network.builder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t length = size;
    FuzzPart part = fuzz_part(&data, &size);
    fuzz_file(FOLDER "/config.json", part.data, part.size);
    fuzz_file(FOLDER "/model.safetensors.index.json", data, size);
    fuzz_file(FOLDER "/a.safetensors", (const uint8_t *)tensors, sizeof tensors - 1);
    fuzz_begin();
    Diagnostics diagnostics = {0}, of_config = {0};
    HuggingFaceFolder folder;
    HuggingFaceConfig config;
    Arena arena = {0};
    bool ok = folder_open(&folder, FOLDER, true, &diagnostics);
    if (config_read(&config, FOLDER "/config.json", &arena, &of_config) && config.layers <= MOST_LAYERS)
        build(&config, length, &of_config);
    config_free(&config);
    folder_close(&folder);
    diagnostics_free(&of_config);
    arena_free(&arena);
    fuzz_end(ok, &diagnostics);
    return 0;
}
