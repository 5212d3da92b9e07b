/* skycc import: a Hugging Face folder becomes an ONNX graph. skycc head: an encoder that is an ONNX graph gets a
 * head. */
#include "driver/commands/commands.h"
#include "frontend/huggingface/add_head.h"
#include "frontend/huggingface/import_folder.h"
#include "frontend/huggingface/tokenizers.h"
#include "frontend/text/labels.h"

/* The head with the names of --labels. */
static bool name_labels(Head *head, const Options *options, Arena *arena, Diagnostics *diagnostics)
{
    DataLabels labels;
    *head = options->head;
    if (!options->labels) return true;
    if (!head->labels || head->kind == HEAD_REGRESSION)
        return usage_error(diagnostics, "give --head seqcls:N, multilabel:N or tokcls:N",
                           "--labels names the labels of a head that has some");
    if (!data_labels_read(&labels, options->labels, arena, diagnostics)) return false;
    head->names = labels.names;
    return (int64_t)labels.count == head->labels ||
           input_error(diagnostics, options->labels, NULL, "names %zu labels, but the head has %lld", labels.count,
                       (long long)head->labels);
}

/* Imports a folder, or puts a head on a graph. */
static bool run(const Options *options, bool imports, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Head head;
    FILE *summary = options->quiet ? NULL : stderr;
    bool ok =
        name_labels(&head, options, &arena, diagnostics) &&
        (imports ? folder_import(options->folder, options->output, &head, (WeightSource)options->import_weights,
                                 options->seed, summary, diagnostics)
         : options->as_is ? head_keep(options->model, options->output, &head, diagnostics)
                          : head_add(options->model, options->output, &head, options->seed, summary, diagnostics));
    return ok;
}

bool import_command(const Options *options, Diagnostics *diagnostics)
{
    if (!run(options, true, diagnostics)) return false;
    tokenizer_keep(options->folder, options->output, diagnostics); /* the folder may move, or change */
    return true;
}

bool head_command(const Options *options, Diagnostics *diagnostics) { return run(options, false, diagnostics); }
