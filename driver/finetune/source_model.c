#include "driver/finetune/source_model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/parts.h"
#include "frontend/huggingface/config.h"
#include "frontend/huggingface/folder.h"
#include "frontend/huggingface/import_folder.h"
#include "frontend/huggingface/tokenizers.h"

static const char *absolute(Arena *arena, const char *path)
{
    FREED char *resolved = realpath(path, NULL);
    return resolved ? arena_string(arena, resolved) : path;
}

static bool is_there(Arena *arena, const char *folder, const char *name)
{
    return access(arena_format(arena, "%s/%s", folder, name), F_OK) == 0;
}

/* ---- The tokenizer ---- */

static bool find_tokenizer(SourceModel *model, const char *folder, Arena *arena, Diagnostics *diagnostics)
{
    const char *config = arena_format(arena, "%s/tokenizer_config.json", folder);
    if (is_there(arena, folder, "tokenizer.json")) {
        model->tokenizer = arena_format(arena, "%s/tokenizer.json", folder);
        return true;
    }
    if (!is_there(arena, folder, "vocab.txt"))
        return input_error(diagnostics, model->path, "give its tokenizer.json or vocabulary with --tokenizer FILE",
                           "has no tokenizer: there is neither tokenizer.json nor vocab.txt in %s", folder);
    model->tokenizer = arena_format(arena, "%s/vocab.txt", folder);
    if (access(config, F_OK) != 0) return true;
    json_auto_t *root = json_read_reals(config, diagnostics);
    model->cased = json_is_false(json_object_get(root, "do_lower_case"));
    return root != NULL;
}

/* ---- The model ---- */

static bool take_config(SourceModel *model, const HuggingFaceConfig *config, Arena *arena)
{
    const char *const dropouts[] = {"hidden_dropout_prob", "dropout", "mlp_dropout", "resid_pdrop"};
    model->positions = encoder_most_positions(config);
    model->decoder = config_is_decoder(config);
    model->kind = arena_format(arena, "%s, %lld layers, hidden size %lld", config->type->name,
                               (long long)config->layers, (long long)config->hidden);
    for (size_t i = 0; i < sizeof dropouts / sizeof *dropouts; i++)
        if (json_is_number(json_object_get(config->json, dropouts[i])))
            model->dropout = json_number_value(json_object_get(config->json, dropouts[i]));
    return true;
}

static bool read_folder(SourceModel *model, Arena *arena, Diagnostics *diagnostics)
{
    FREED_WITH(config_free) HuggingFaceConfig config = {0};
    bool ok = config_read(&config, arena_format(arena, "%s/config.json", model->path), arena, diagnostics) &&
              take_config(model, &config, arena);
    model->batch = "batch", model->length = "seq";
    return ok;
}

/* The name of a dimension of (batch, seq); NULL: it is fixed, then with its size. */
static const char *dimension_name(const Onnx__ValueInfoProto *input, size_t dimension, int64_t *size, Arena *arena)
{
    const Onnx__TensorShapeProto *shape = onnx_value_shape(input);
    if (!shape || shape->n_dim != 2) return NULL;
    const Onnx__TensorShapeProto__Dimension *found = shape->dim[dimension];
    if (found->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) *size = found->dim_value;
    return found->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
               ? arena_string(arena, found->dim_param)
               : NULL;
}

/* Inputs have to be what data sets hold. */
static bool read_inputs(SourceModel *model, const Onnx__GraphProto *graph, Arena *arena, Diagnostics *diagnostics)
{
    static const char known[] =
        " input_ids attention_mask token_type_ids labels start_positions end_positions input_ids_2 attention_mask_2 "
        "token_type_ids_2 ";
    bool reads = false;
    for (size_t i = 0; i < graph->n_input; i++) {
        const char *name = graph->input[i]->name;
        bool weighs = !name;
        for (size_t k = 0; name && k < graph->n_initializer && !weighs; k++)
            weighs = strcmp(graph->initializer[k]->name, name) == 0;
        if (weighs) continue;
        if (!text_has_part(known, name, " "))
            return input_error(diagnostics, model->path,
                               "export it with the inputs input_ids, attention_mask and token_type_ids, by these names",
                               "has an input '%s', which skycc tokenize does not make", name);
        model->has_mask |= strcmp(name, "attention_mask") == 0;
        if (strcmp(name, "input_ids") != 0) continue;
        reads = true;
        model->batch = dimension_name(graph->input[i], 0, &model->rows, arena);
        model->length = dimension_name(graph->input[i], 1, &model->width, arena);
    }
    return reads || input_error(diagnostics, model->path, "export it with an input of that name",
                                "has no input 'input_ids' to put tokens in");
}

static const char *describe(const FoundHead *found, Arena *arena)
{
    if (found->head.kind == HEAD_NONE)
        return arena_format(arena, "an ONNX encoder, hidden size %lld", (long long)found->hidden);
    return found->head.kind == HEAD_FROM_FOLDER
               ? "an ONNX graph"
               : arena_format(arena, "an ONNX graph with the head %s", head_text(arena, &found->head));
}

/* Sets *folder to the one with the tokenizer; NULL: there is none. */
static bool read_graph(SourceModel *model, const char **folder, Arena *arena, Diagnostics *diagnostics)
{
    FREED_WITH(onnx_model_close) OnnxModel onnx = {0};
    FoundHead *found = &model->found;
    if (!found_head_read(found, model->path, arena, diagnostics) ||
        !onnx_model_open(&onnx, model->path, true, diagnostics))
        return false;
    FREED_WITH(config_free) HuggingFaceConfig config = {0};
    FREED_WITH(diagnostics_free) Diagnostics unused = {0}; /* a graph of an unknown kind is of use all the same */
    *folder = tokenizer_folder(model->path, onnx_model_property(&onnx, PROPERTY_FOLDER), arena);
    bool ok = read_inputs(model, onnx.proto->graph, arena, diagnostics);
    if (found->config && config_parse(&config, found->config, model->path, arena, &unused))
        take_config(model, &config, arena);
    else
        model->positions = found->positions;
    if (!found->imported) model->kind = describe(found, arena);
    model->decoder |= found->head.kind == HEAD_NEXT;
    return ok;
}

/* The most common mistake: a name of the Hugging Face hub. */
static bool refuse_absent(const char *path, Arena *arena, Diagnostics *diagnostics)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool local = slash && access(arena_string_n(arena, path, (size_t)(slash - path)), F_OK) == 0;
    bool hub = path[0] != '/' && path[0] != '.' && !strstr(path, ".onnx") && !local;
    return input_error(diagnostics, path,
                       hub ? arena_format(arena,
                                          "skycc downloads nothing; if this is a name of the Hugging Face hub: "
                                          "hf download %s --local-dir %s, then give the folder %s",
                                          path, name, name)
                           : "give a Hugging Face folder, or an ONNX file of a model",
                       "there is no such folder or ONNX file");
}

/* Its weights, say. */
static bool check_no_part_of_folder(const char *path, Arena *arena, Diagnostics *diagnostics)
{
    const char *slash = strrchr(path, '/');
    const char *folder = slash ? arena_string_n(arena, path, (size_t)(slash - path + (slash == path))) : ".";
    return access(arena_format(arena, "%s/config.json", folder), F_OK) != 0 ||
           input_error(diagnostics, path, arena_format(arena, "give the folder: %s", folder),
                       "is a file of a model's folder, not the model");
}

bool source_model_read(SourceModel *model, const char *path, const char *tokenizer, Arena *arena,
                       Diagnostics *diagnostics)
{
    struct stat status;
    if (stat(path, &status) != 0) return refuse_absent(path, arena, diagnostics);
    static const char *const tables[] = {".csv", ".tsv", ".jsonl", ".conll"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (text_ends_with(path, tables[i]))
            return usage_error(diagnostics, "the model comes first: skycc finetune FOLDER TABLE",
                               "'%s' is a table, not a model", path);
    bool graph = S_ISDIR(status.st_mode) || text_ends_with(path, ".onnx");
    if (!graph && !check_no_part_of_folder(path, arena, diagnostics)) return false;
    *model = (SourceModel){.path = absolute(arena, path), .is_folder = S_ISDIR(status.st_mode), .positions = INT64_MAX};
    const char *folder = model->is_folder ? model->path : NULL;
    if (!(model->is_folder ? read_folder(model, arena, diagnostics) : read_graph(model, &folder, arena, diagnostics)))
        return false;
    if (tokenizer) {
        model->tokenizer = absolute(arena, tokenizer);
        return access(tokenizer, R_OK) == 0 || file_error(diagnostics, tokenizer, "cannot open");
    }
    return folder ? find_tokenizer(model, folder, arena, diagnostics)
                  : input_error(diagnostics, path, "give its tokenizer.json or vocabulary with --tokenizer FILE",
                                "has no tokenizer next to it, and the folder that it was imported from is gone");
}

/* ---- Whether it is still the same ---- */

static bool hash_folder(const char *path, Hash *hash, Diagnostics *diagnostics)
{
    FREED_WITH(folder_close) HuggingFaceFolder folder = {0};
    bool ok = folder_open(&folder, path, true, diagnostics);
    FREED char *config = ok ? json_dumps(folder.config.json, JSON_SORT_KEYS) : NULL;
    if (config) *hash = hash_bytes(config, strlen(config));
    for (size_t i = 0; ok && i < folder.file_count; i++) {
        const MappedFile *file = &folder.files[i].tensors.file;
        *hash = hash_extend(*hash, file->bytes, file->size);
        file_forget(file, 0, file->size);
    }
    return ok;
}

static bool hash_graph(const char *path, Hash *hash, Diagnostics *diagnostics)
{
    FREED_WITH(onnx_model_close) OnnxModel model = {0};
    if (!onnx_model_open(&model, path, true, diagnostics)) return false;
    const Onnx__GraphProto *graph = model.proto->graph;
    bool ok = true;
    *hash = model.hash;
    for (size_t i = 0; ok && i < graph->n_initializer; i++) {
        const Onnx__TensorProto *initializer = graph->initializer[i];
        OnnxTensor tensor;
        if (initializer->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) continue;
        ok = onnx_tensor_elements(&model, initializer, NULL, initializer->name, &tensor, diagnostics);
        if (ok && tensor.data) *hash = hash_extend(*hash, tensor.data, tensor.bytes);
    }
    return ok;
}

static bool hash_model(const char *path, Hash *hash, Diagnostics *diagnostics)
{
    struct stat status;
    bool is_folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    return (is_folder ? hash_folder : hash_graph)(path, hash, diagnostics);
}

bool source_model_remember(Settings *settings, Diagnostics *diagnostics)
{
    Hash hash;
    char content[33], name[33];
    const char *path = settings->of[SETTING_MODEL].value;
    if (!hash_model(path, &hash, diagnostics)) return false;
    settings_set(settings, SETTING_MODEL_HASH,
                 arena_format(&settings->arena, "%s %s", hash_format(hash, content),
                              hash_format(hash_bytes(path, strlen(path)), name)),
                 NULL);
    return true;
}

bool source_model_check(const Settings *settings, bool reads, Diagnostics *diagnostics)
{
    Hash hash;
    char text[33];
    const char *path = settings->of[SETTING_MODEL].value, *kept = settings->of[SETTING_MODEL_HASH].value;
    if (!kept) return true; /* of a former version */
    bool renamed = !strstr(kept, hash_format(hash_bytes(path, strlen(path)), text));
    if (!renamed && !reads) return true;
    return hash_model(path, &hash, diagnostics) &&
           (strncmp(kept, hash_format(hash, text), 32) == 0 ||
            input_error(diagnostics, path,
                        renamed ? "put the line `model:` in the run's settings.yaml back, or begin another run with -o"
                                : "put its files back as they were, or begin another run with -o",
                        "is not the model that this run began with"));
}
