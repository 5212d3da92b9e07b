#include "frontend/huggingface/import_folder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "frontend/huggingface/encoder.h"
#include "frontend/huggingface/heads.h"
#include "frontend/huggingface/tokenizers.h"
#include "frontend/onnx/model.h"

enum { OPSET = 20, DECODER_OPSET = 23, MOST_LISTED = 8 }; /* 23 brings RMSNormalization */

/* Weights beyond this go into a file of their own: a protobuf message ends at 2 GiB, and the graph needs room too. */
#define MOST_INSIDE ((int64_t)3 << 29)

/* ---- Which head ---- */

static bool choose_head(const HuggingFaceConfig *config, const Head *wanted, Head *head, Diagnostics *diagnostics)
{
    *head = wanted->kind == HEAD_FROM_FOLDER ? config->head : *wanted;
    const char *problem = head_problem(config, head);
    if (problem)
        return diagnostics_error(diagnostics, EXIT_USAGE, (Place){.file = "config.json", .object = "model_type"},
                                 "see skycc help import for the heads", "%s", problem);
    if (wanted->kind != HEAD_FROM_FOLDER || head->kind != HEAD_FROM_FOLDER) return true;
    char message[256];
    snprintf(message, sizeof message, "skycc imports the encoder alone, without the head of '%.100s'",
             config->architecture);
    diagnostics_warning(diagnostics, (Place){.file = "config.json", .object = "architectures"},
                        "--head puts another one on it", "%s", message);
    head->kind = HEAD_NONE;
    return true;
}

/* ---- Summary for the user ---- */

/* Of no weights: what earlier versions of the library saved next to them. */
static bool is_buffer(const SafeTensor *tensor)
{
    static const char *const ends[] = {".inv_freq", ".masked_bias", ".attn.bias", ".attention.bias"};
    size_t length = strlen(tensor->name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (length > strlen(ends[i]) && strcmp(tensor->name + length - strlen(ends[i]), ends[i]) == 0) return true;
    return !dtype_is_float(tensor->dtype);
}

/* "layers" of "model.layers.0.mlp.weight", where "model." is the name of the encoder in models with a head. */
static const char *first_module(const Network *network, const char *name, Arena *arena)
{
    const char *base = network->config->type->base;
    size_t length = strlen(base);
    if (strncmp(name, base, length) == 0 && name[length] == '.') name += length + 1;
    return arena_string_n(arena, name, strcspn(name, "."));
}

/* Tensors next to those that the encoder is made of hint at a config.json of another model. */
static void warn_of_unused(const Network *network, const HuggingFaceFolder *folder)
{
    const Onnx__GraphProto *graph = &network->builder.graph;
    FREED_WITH(string_map_free) StringMap modules = {0};
    FREED_WITH(arena_free) Arena arena = {0};
    size_t count = 0;
    const char *names = "";
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (strncmp(graph->initializer[i]->name, network->prefix, strlen(network->prefix)) == 0)
            string_map_add(&modules, first_module(network, graph->initializer[i]->name, &arena), 0);
    for (size_t i = 0; i < folder->file_count; i++)
        for (size_t k = 0; k < folder->files[i].tensors.count; k++) {
            const SafeTensor *tensor = &folder->files[i].tensors.tensors[k];
            bool absolute = network->config->distances && strstr(tensor->name, "position_embeddings");
            if (folder->files[i].used[k] || is_buffer(tensor) || absolute) continue;
            if (!string_map_find(&modules, first_module(network, tensor->name, &arena))) continue;
            if (count < MOST_LISTED) names = arena_format(&arena, "%s%s%.200s", names, count ? ", " : "", tensor->name);
            count++;
        }
    if (count)
        diagnostics_warning(network->diagnostics, PLACE_FILE(folder->path),
                            "config.json may be of another model, with fewer layers for instance",
                            "has %zu tensors of the encoder that are not used: %s%s", count, names,
                            count > MOST_LISTED ? " ..." : "");
}

static void print_unused(const HuggingFaceFolder *folder, FILE *summary)
{
    size_t count = 0;
    for (size_t i = 0; i < folder->file_count; i++) {
        const FolderFile *file = &folder->files[i];
        for (size_t k = 0; k < file->tensors.count; k++) {
            if (file->used[k] || is_buffer(&file->tensors.tensors[k])) continue;
            if (count < MOST_LISTED)
                text_print(summary, "%s%s", count ? ", " : "not used: ", file->tensors.tensors[k].name);
            count++;
        }
    }
    if (count > MOST_LISTED) text_print(summary, " and %zu more", count - MOST_LISTED);
    if (count) fputc('\n', summary);
}

/* Of weights that are not small. */
static void print_weights(const Network *network, FILE *summary)
{
    const OnnxBuilder *builder = &network->builder;
    const double mebibyte = 1 << 20;
    int64_t copied = onnx_builder_bytes(builder, false), referred = onnx_builder_bytes(builder, true);
    if (network->widened_count)
        text_print(summary, "%zu weights stay of 16 bits in the model; it computes with them in float32\n",
                   network->widened_count);
    if (referred)
        text_print(summary, "weights: %.1f MiB stay in the folder's own files, %.1f MiB are written\n",
                   (double)referred / mebibyte, (double)copied / mebibyte);
    else if (copied > MOST_INSIDE)
        text_print(summary, "weights: %.1f MiB are copied; an output inside the folder would refer to its files\n",
                   (double)copied / mebibyte);
}

static void print_summary(const Network *network, const HuggingFaceFolder *folder, const Head *head, FILE *summary)
{
    const HuggingFaceConfig *config = network->config;
    FREED_WITH(arena_free) Arena arena = {0};
    text_print(summary, "%s: %lld layers, hidden %lld, %lld heads, vocabulary %lld, up to %lld tokens\n",
               config->type->name, (long long)config->layers, (long long)config->hidden, (long long)config->heads,
               (long long)config->vocabulary, (long long)encoder_most_positions(config));
    text_print(summary, "head: %s, %s\n", head_text(&arena, head),
               !folder->file_count    ? "new"
               : network->added_count ? "partly or wholly new"
                                      : "all of it from the folder");
    bool all = !folder->file_count;
    for (size_t i = 0; i < network->added_count && !all; i++)
        text_print(summary, "%s%s", i ? ", " : "new: ", network->added[i]);
    if (all) text_print(summary, "new: all %zu weights", network->added_count);
    if (network->added_count) fputc('\n', summary);
    if (!all) print_weights(network, summary);
    print_unused(folder, summary);
}

/* ---- The graph ---- */

static void add_properties(Network *network, const HuggingFaceFolder *folder, const Head *head)
{
    FREED_WITH(buffer_free) Buffer config = {0};
    config_print(network->config, head, &config);
    onnx_builder_property(&network->builder, PROPERTY_CONFIG, buffer_text(&config));
    onnx_builder_property(&network->builder, PROPERTY_FOLDER, folder->path);
    const char *tokenizers = folder_tokenizers(folder->path, &network->builder.arena);
    if (*tokenizers) onnx_builder_property(&network->builder, PROPERTY_TOKENIZERS, tokenizers);
    onnx_builder_property(&network->builder, PROPERTY_HEAD, head_text(&network->builder.arena, head));
    onnx_builder_property(&network->builder, PROPERTY_PARAMETERS, PARAMETERS_ARE_INITIALIZERS);
}

/* Heads of DeBERTa's masked language models have the names of one of two classes, which not all files tell. */
static void choose_deberta_head(HuggingFaceFolder *folder)
{
    HuggingFaceConfig *config = &folder->config;
    if (config->type->family != FAMILY_DEBERTA || json_object_get(config->json, "legacy")) return;
    config->deberta.legacy_head = folder_tensor(folder, "cls.predictions.transform.dense.weight") ||
                                  !folder_tensor(folder, "lm_predictions.lm_head.dense.weight");
}

static bool build(Network *network, const Head *wanted, const Head *head)
{
    bool alone = head->kind == HEAD_NONE || head->kind == HEAD_MEAN || head->kind == HEAD_FIRST;
    network->prefix = alone ? "" : arena_format(&network->builder.arena, "%s.", network->config->type->base);
    network->pairs = head->pairs;
    const char *x = encoder_build(network);
    if (network->diagnostics->errors) return false; /* so that what heads are drawn for is there */
    network->draws |= wanted->kind != HEAD_FROM_FOLDER;
    head_build(network, head, x);
    return network->diagnostics->errors == 0;
}

/* Whether the file is to be in the folder itself. */
static bool is_inside(const char *folder, const char *output)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const char *slash = strrchr(output, '/');
    const char *parent = slash == output ? "/" : slash ? arena_string_n(&arena, output, (size_t)(slash - output)) : ".";
    struct stat in, of;
    return strcmp(output, "-") != 0 && stat(folder, &in) == 0 && stat(parent, &of) == 0 && in.st_dev == of.st_dev &&
           in.st_ino == of.st_ino;
}

static bool import_graph(const char *path, const char *output, const Head *wanted, WeightSource source, uint64_t seed,
                         int64_t room, FILE *summary, Diagnostics *diagnostics)
{
    FREED_WITH(folder_close) HuggingFaceFolder folder = {0};
    Head head;
    bool ok = folder_open(&folder, path, source == WEIGHTS_FOLDER, diagnostics) &&
              choose_head(&folder.config, wanted, &head, diagnostics);
    if (ok) {
        Network network = {.config = &folder.config,
                           .folder = &folder,
                           .room = room,
                           .diagnostics = diagnostics,
                           .draws = source != WEIGHTS_FOLDER,
                           .batch = {0, "batch"},
                           .sequence = {0, "seq"}};
        choose_deberta_head(&folder);
        folder.refers = is_inside(path, output);
        onnx_builder_open(&network.builder, folder.config.type->name, folder.config.type->form ? DECODER_OPSET : OPSET);
        ok = build(&network, wanted, &head);
        if (ok) warn_of_unused(&network, &folder);
        add_properties(&network, &folder, &head);
        const InitialWeights weights = {.present = source != WEIGHTS_NONE,
                                        .seed = seed,
                                        .deviation = folder.config.initial_deviation,
                                        .most_inside = MOST_INSIDE};
        ok = ok && onnx_builder_write(&network.builder, output, &weights, diagnostics);
        if (ok && summary) print_summary(&network, &folder, &head, summary);
        string_map_free(&network.parameters);
        free(network.added);
        free(network.widened);
        onnx_builder_close(&network.builder);
    }
    return ok;
}

bool folder_import(const char *path, const char *output, const Head *wanted, WeightSource source, uint64_t seed,
                   FILE *summary, Diagnostics *diagnostics)
{
    return import_graph(path, output, wanted, source, seed, 0, summary, diagnostics);
}

bool folder_import_step(const char *path, const char *output, int64_t room, Diagnostics *diagnostics)
{
    return import_graph(path, output, &(Head){.kind = HEAD_FROM_FOLDER}, WEIGHTS_FOLDER, 0, room, NULL, diagnostics);
}
