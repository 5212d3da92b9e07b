#include "driver/compile/training_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/safetensors.h"
#include "driver/compile/model_origin.h"
#include "driver/compile/head_loss.h"
#include "frontend/huggingface/config.h"
#include "frontend/huggingface/import_folder.h"
#include "graph/passes/gradient_rows.h"
#include "graph/passes/passes.h"
#include "graph/analysis/parameters.h"

static const ImportedParameter *find_parameter(const ImportedModel *model, const char *name, size_t length)
{
    for (size_t i = 0; i < model->parameter_count; i++) {
        const ImportedParameter *parameter = &model->parameters[i];
        const char *names[] = {parameter->name, parameter->alias};
        for (int k = 0; k < 2; k++)
            if (names[k] && strlen(names[k]) == length && memcmp(names[k], name, length) == 0) return parameter;
    }
    return NULL;
}

/* --no-gradient-row NAME=INDEX */
static bool leave_out_row(TrainingModel *model, const char *text, Diagnostics *diagnostics)
{
    Graph *graph = &model->source;
    const char *equals = strrchr(text, '='), *problem = NULL;
    char *end = NULL;
    long long row = equals ? strtoll(equals + 1, &end, 10) : 0;
    if (!equals || end == equals + 1 || *end)
        return usage_error(diagnostics,
                           "write, for example, --no-gradient-row bert.embeddings.word_embeddings.weight=0",
                           "malformed row '%s'", text);
    const ImportedParameter *parameter = find_parameter(&model->imported, text, (size_t)(equals - text));
    const Shape *shape = parameter ? &graph_value(graph, parameter->value)->shape : NULL;
    int64_t rows = shape && shape->rank ? shape->dim[parameter->transposed ? 1 : 0] : 0;
    bool known = parameter && row >= -rows && row < rows;
    int marked = known ? gradient_rows_leave_out(graph, parameter->value, rows, row < 0 ? row + rows : row) : 0;
    if (!parameter)
        problem = "is not a parameter of the model";
    else if (!known)
        problem = "does not have this row";
    else if (marked == 0)
        problem = "is not a table in which the model looks up rows";
    else if (marked < 0)
        problem = "has as many rows without a gradient as a table may have";
    return !problem ||
           diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(graph->file), "skycc check lists the parameters",
                             "--no-gradient-row %s: '%.*s' %s", text, (int)(equals - text), text, problem);
}

/* The library's embeddings of padding tokens take no gradient (padding_idx). That shows where a loss reads the scores
 * of all tokens, padding too, as where an answer begins and ends, and where texts hold the padding token, as those of
 * decoders do that end with it. Tables of other names have no such row. */
static bool leave_out_padding(TrainingModel *model, Diagnostics *diagnostics)
{
    const OnnxModel *onnx = &model->imported.onnx;
    const char *text = onnx_model_property(onnx, PROPERTY_CONFIG);
    if (!text || !onnx_model_is_distinct(onnx)) return true;
    FREED_WITH(config_free) HuggingFaceConfig config = {0};
    Graph *graph = &model->source;
    bool ok = config_parse(&config, text, graph->file, &graph->arena, diagnostics);
    bool counts = ok && (config.type->family == FAMILY_ROBERTA || config.type->family == FAMILY_MPNET);
    const char *const tables[] = {"word_embeddings.weight", "tok_embeddings.weight", "embed_tokens.weight",
                                  counts ? "position_embeddings.weight" : NULL};
    /* Without the member, decoders have no such row; encoders have their usual one. */
    bool pads = ok && (!config.type->form || json_is_integer(json_object_get(config.json, "pad_token_id")));
    for (size_t i = 0; pads && config.padding >= 0 && i < model->imported.parameter_count; i++) {
        const ImportedParameter *parameter = &model->imported.parameters[i];
        const Shape *shape = &graph_value(graph, parameter->value)->shape;
        for (int k = 0; k < 4 && tables[k]; k++) {
            size_t length = strlen(parameter->name), end = strlen(tables[k]);
            if (length >= end && strcmp(parameter->name + length - end, tables[k]) == 0 && shape->rank == 2 &&
                config.padding < shape->dim[0])
                gradient_rows_leave_out(graph, parameter->value, shape->dim[0], config.padding);
        }
    }
    return ok;
}

static const ImportedParameter *trained_table(const ImportedModel *imported, ValueId table)
{
    for (size_t i = 0; i < imported->parameter_count; i++) {
        const ImportedParameter *parameter = &imported->parameters[i];
        if (parameter->value == table && parameter->trained) return parameter;
    }
    return NULL;
}

static void warn_of_row(const char *file, PaddingRow padding, const char *table, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer hint = {0};
    buffer_print(&hint, "--no-gradient-row %s=%lld does the same; it matters only where padding reaches the loss",
                 table, (long long)padding.row);
    diagnostics_warning(diagnostics, PLACE_FILE(file), buffer_text(&hint),
                        "row %lld of '%s' is trained; in PyTorch it is not where it stands for padding (padding_idx)%s",
                        (long long)padding.row, table,
                        padding.guessed ? ", which this export does not say: it is the only row of zeros" : "");
}

/* What the exporter tells of padding_idx is said, not obeyed: other exports of the same model do not tell, and train
 * the row. Of TorchScript's, warnings name the only row of zeros, or the tables without one. */
static void warn_of_padding(const TrainingModel *model, Diagnostics *diagnostics)
{
    const ImportedModel *imported = &model->imported;
    FREED_WITH(buffer_free) Buffer open = {0};
    for (size_t p = 0; p < imported->padding_count; p++) {
        PaddingRow padding = imported->padding_rows[p];
        const ImportedParameter *table = trained_table(imported, padding.table);
        if (!table || gradient_rows_left_out(&model->source, padding.table, padding.row)) continue;
        if (padding.row >= 0)
            warn_of_row(model->source.file, padding, table->name, diagnostics);
        else
            buffer_print(&open, "%s'%s'", open.size ? ", " : "", table->name);
    }
    if (open.size)
        diagnostics_warning(diagnostics, PLACE_FILE(model->source.file),
                            "--no-gradient-row NAME=INDEX leaves one out; it matters only where padding reaches the "
                            "loss",
                            "the TorchScript exporter does not say which row is padding (padding_idx), so skycc trains "
                            "all rows of %s",
                            buffer_text(&open));
}

/* One line an option. The hashes of recipe.h say whether two models differ; these lines only say in what. */
static const char *describe_settings(Arena *arena, const ModelOptions *options)
{
    const ImportOptions *import = &options->import;
    FREED_WITH(buffer_free) Buffer text = {0};
    buffer_print(&text, "--loss %s\n--lora %s\n--dropout ", options->loss ? options->loss : "(default)",
                 options->low_rank.text ? options->low_rank.text : "(not given)");
    if (import->dropout_given)
        buffer_print(&text, "%.15g\n", import->dropout);
    else
        buffer_print(&text, import->dropout_off ? "off\n" : "(not given)\n");
    buffer_print(&text, "--no-gradient-row");
    for (size_t i = 0; i < options->no_gradient_rows.count; i++)
        buffer_print(&text, " %s", options->no_gradient_rows.items[i]);
    buffer_print(&text, "\n--freeze or --train");
    for (size_t i = 0; i < import->rule_count; i++)
        buffer_print(&text, " %s%s", import->rules[i].train ? "+" : "-", import->rules[i].glob);
    buffer_print(&text, "\n--keep-ties %s\n--untie %s\n--no-prune %s\n", import->keep_ties ? "given" : "not given",
                 import->untie ? "given" : "not given", options->no_pruning ? "given" : "not given");
    static const char *const forms[] = {"whole", "auto", "sliced"};
    buffer_print(&text, "--logits %s\n--frozen-weights %s\n", forms[options->logits],
                 options->frozen_weights ? dtype_name(options->frozen_weights) : "(not given)");
    return arena_string(arena, buffer_text(&text));
}

/* ---- Names that files can hold ---- */

static bool refuse_name(const Graph *graph, const char *what, const char *name, const char *problem,
                        Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer object = {0};
    buffer_print(&object, "%s '%s'", what, name);
    Place place = {.file = graph->file, .object = buffer_text(&object)};
    diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "rename it in the model", "%s", problem);
    return false;
}

/* Checkpoints hold the parameters, data sets the inputs. */
static bool check_names(const TrainingModel *model, Diagnostics *diagnostics)
{
    static const char reserved[] = "has a name that safetensors files, and so data sets and checkpoints, cannot hold";
    const Graph *graph = &model->source;
    const ImportedModel *imported = &model->imported;
    bool ok = true;
    for (size_t i = 0; i < graph->input_count; i++)
        if (safetensors_name_is_reserved(graph_value(graph, graph->inputs[i])->name))
            ok = refuse_name(graph, "input", graph_value(graph, graph->inputs[i])->name, reserved, diagnostics);
    for (size_t i = 0; i < imported->parameter_count; i++) {
        const char *name = imported->parameters[i].name;
        if (safetensors_name_is_reserved(name)) ok = refuse_name(graph, "parameter", name, reserved, diagnostics);
    }
    return ok;
}

/* Whether the data set of --lengths could be trained on: what training only warns of is no news yet. */
static bool check_lengths_data(const TrainingModel *model, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(safetensors_close) SafeTensors data = {0};
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(diagnostics_free) Diagnostics found = {0};
    if (!safetensors_open(&data, path, diagnostics)) return false;
    const DataOrigin origin = model_origin(&model->imported.onnx, model->source.file, &arena);
    bool ok = data_origin_match(&data, path, &origin, NULL, &found);
    if (!ok) diagnostics_append(diagnostics, &found);
    return ok;
}

bool training_model_import(TrainingModel *model, const char *path, const ModelOptions *options,
                           Diagnostics *diagnostics)
{
    *model = (TrainingModel){.precision = options->precision, .low_rank_text = options->low_rank.text};
    Graph *source = &model->source;
    graph_init(source, path);
    model->settings = describe_settings(&source->arena, options);
    if (!optimizer_parse(&model->optimizer, options->optimizer ? options->optimizer : "adamw", diagnostics) ||
        !import_onnx(source, &model->imported, path, &options->import, diagnostics))
        return false;
    if (options->lengths.data && !check_lengths_data(model, options->lengths.data, diagnostics)) return false;
    bool trains = options->train || options->differentiate || options->want_loss;
    if (trains && !options->loss && !head_loss(&model->imported.onnx, &model->loss, diagnostics)) return false;
    if (trains && options->loss) head_loss_check(&model->imported.onnx, options->loss, diagnostics);
    graph_verify(source);
    if (options->train && !check_names(model, diagnostics)) return false;
    if (trains && !leave_out_padding(model, diagnostics)) return false;
    for (size_t i = 0; i < options->no_gradient_rows.count; i++)
        if (!leave_out_row(model, options->no_gradient_rows.items[i], diagnostics)) return false;
    if (options->train || options->differentiate) warn_of_padding(model, diagnostics);
    if (!options->import.untie && !onnx_model_is_distinct(&model->imported.onnx))
        warn_of_untied_decoders(source, diagnostics);
    model->imported_parameters = model->imported.parameter_count;
    return !options->low_rank.rank ||
           low_rank_choose(&model->low_rank, &options->low_rank, options->seed, source, &model->imported, diagnostics);
}

bool training_model_make(TrainingModel *model, const ModelOptions *options, Diagnostics *diagnostics)
{
    bool differentiates = options->differentiate || options->train;
    const PassOptions wanted = {.want_loss = options->want_loss || differentiates,
                                .loss = options->loss ? options->loss : model->loss,
                                .packing = options->packing,
                                .dropout = options->import.dropout_given ? options->import.dropout : 0,
                                .low_rank = options->low_rank.rank ? &model->low_rank : NULL,
                                .logits = options->logits,
                                .frozen_weights = options->frozen_weights,
                                .no_pruning = options->no_pruning,
                                .differentiate = differentiates,
                                .recompute_layers = options->recompute_layers,
                                .bf16 = options->precision == PRODUCTS_BF16,
                                .bf16_cuts = options->precision == PRODUCTS_BF16 && !options->coded_cuts,
                                .optimizer = options->train ? &model->optimizer : NULL};
    Folding folding = model->imported.folding;
    if (model->graph.values) graph_free(&model->graph);
    graph_copy(&model->graph, &model->source);
    for (size_t i = 0; i < model->low_rank.count; i++)
        model->low_rank.branches[i].a = model->low_rank.branches[i].b = 0;
    model->imported.parameter_count = model->imported_parameters;
    if (!passes_run(&model->graph, &wanted, options->last_pass, &folding, diagnostics)) return false;
    low_rank_list_parameters(&model->low_rank, &model->imported, &model->graph);
    return true;
}

bool training_model_load(TrainingModel *model, const char *path, const ModelOptions *options, Diagnostics *diagnostics)
{
    return training_model_import(model, path, options, diagnostics) && training_model_make(model, options, diagnostics);
}

void training_model_free(TrainingModel *model)
{
    if (model->graph.values) graph_free(&model->graph);
    graph_free(&model->source);
    imported_model_free(&model->imported);
}
