#include "driver/compile/packed_model.h"

#include <string.h>

#include "graph/passes/pack_rows.h"

static bool read_lengths(RowLengths *lengths, const LengthOptions *options, Diagnostics *diagnostics)
{
    FREED_WITH(safetensors_close) SafeTensors file = {0};
    int64_t longest = options->list[options->count - 1];
    Place place = PLACE_FILE(options->data);
    if (!safetensors_open(&file, options->data, diagnostics)) return false;
    bool ok = row_lengths_read(lengths, &file, options->data, diagnostics);
    if (!ok) return false;
    if (!lengths->rows)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "make the data set with skycc tokenize",
                                 "has no rows with lengths or an attention_mask");
    if (lengths->longest > longest)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "bind the dimension to at least that",
                                 "has rows of %lld tokens, more than --dim %s=%lld", (long long)lengths->longest,
                                 options->dimension, (long long)longest);
    if (lengths->irregular)
        diagnostics_warning(diagnostics, place, NULL,
                            "the masks of %lld rows are not ones followed by zeros: these rows take their full length",
                            (long long)lengths->irregular);
    return true;
}

/* Without data: the lengths of the list, one as often as the other. */
static void spread_lengths(RowLengths *lengths, const LengthOptions *options)
{
    *lengths = (RowLengths){.rows = (int64_t)options->count, .longest = options->list[options->count - 1]};
    lengths->lengths = memory_allocate(options->count * sizeof *lengths->lengths);
    for (size_t i = 0; i < options->count; i++) lengths->lengths[i] = (int32_t)options->list[i];
}

bool packed_lengths_read(RowLengths *lengths, const LengthOptions *options, Diagnostics *diagnostics)
{
    *lengths = (RowLengths){0};
    if (!options->data && options->count == 1)
        return usage_error(diagnostics, "give one with --lengths DATA.safetensors",
                           "--dim %s=auto: needs a data set with typical row lengths", options->dimension);
    if (options->data) return read_lengths(lengths, options, diagnostics);
    spread_lengths(lengths, options);
    return true;
}

bool packed_model_import(TrainingModel *model, const char *path, const ModelOptions *load, Diagnostics *diagnostics)
{
    enum { MOST_ROWS = 1 << 20, MOST_LENGTH = 1 << 20 };
    ModelOptions two_rows = *load;
    const LengthOptions *lengths = &load->lengths;
    two_rows.import.batch_rows = PACKING_GRAPH_ROWS;
    if (!training_model_import(model, path, &two_rows, diagnostics)) return false;
    const ImportedModel *imported = &model->imported;
    const char *batch = imported->batch_dimension;
    bool has_length = false;
    for (size_t i = 0; i < imported->dimension_count; i++)
        has_length |= strcmp(imported->dimensions[i].name, lengths->dimension) == 0;
    if (!batch || !has_length || strcmp(batch, lengths->dimension) == 0)
        return input_error(diagnostics, path, "export it with open dimensions for rows and tokens",
                           "rows of several lengths cannot be packed: %s",
                           batch ? "the model has no such open dimension for tokens"
                                 : "the first dimension of its first input is fixed");
    return (imported->batch_size <= MOST_ROWS && lengths->list[lengths->count - 1] <= MOST_LENGTH) ||
           usage_error(diagnostics, NULL, "the rows to pack are too many or too long");
}
