#include "runtime/storage/packed_batch.h"

#include <stdlib.h>

void packed_batch_open(PackedBatch *batch, const SkyProgram *program)
{
    const SkyPacking *packing = &program->packing;
    size_t slots = (size_t)program->microbatch_count * packing->lines * packing->slots;
    *batch = (PackedBatch){0};
    row_packer_open(&batch->packer, packing);
    batch->lengths = arena_new_array(&batch->packer.arena, int32_t, packing->rows);
    batch->row_in_slot = arena_new_array(&batch->packer.arena, uint32_t, slots);
}

void packed_batch_close(PackedBatch *batch)
{
    row_packer_close(&batch->packer);
    *batch = (PackedBatch){0};
}

void packed_batch_place(PackedBatch *batch, const int32_t *lengths, const uint32_t *rows)
{
    const SkyPacking *packing = &batch->packer.packing;
    batch->tokens = 0;
    for (uint32_t r = 0; r < packing->rows; r++) {
        batch->lengths[r] = rows[r] == DATASET_NO_ROW ? 0 : lengths[rows[r]];
        batch->tokens += batch->lengths[r];
    }
    batch->microbatches = row_packer_place(&batch->packer, batch->lengths);
    size_t slots = (size_t)batch->microbatches * packing->lines * packing->slots;
    for (size_t s = 0; s < slots; s++) batch->row_in_slot[s] = PACKED_NO_ROW;
    for (uint32_t r = 0; r < packing->rows; r++) {
        const RowPlace *place = &batch->packer.places[r];
        if (batch->lengths[r]) batch->row_in_slot[(size_t)place->line * packing->slots + place->slot] = r;
    }
}

/* ---- Filling ---- */

/* One input of one micro-batch. */
typedef struct Filling {
    const PackedBatch *batch;
    const SkyPacking *packing;
    const SafeTensor *tensor; /* of the data set; NULL for inputs that only describe the packing */
    const SkyTensor *input;
    const SkyLabels *labels;
    const uint32_t *rows;        /* of the data set, per row of the batch */
    const uint32_t *row_in_slot; /* of the micro-batch */
    void *destination;
    int64_t per_row, per_token; /* elements in the data set */
} Filling;

static void ignore(const Filling *f, int64_t index, int64_t elements)
{
    labels_ignore(f->labels, (DType)f->input->dtype, f->destination, index, elements);
}

/* Fills the tokens of the line from `token` on, which belong to no row. */
static void fill_rest(const Filling *f, uint32_t line, uint32_t token)
{
    for (; token < f->packing->length; token++) {
        int64_t to = ((int64_t)line * f->packing->length + token) * f->per_token;
        if (f->labels)
            ignore(f, to, f->per_token);
        else
            dataset_convert(f->tensor, 0, f->input, f->destination, to, f->per_token);
    }
}

static void fill_tokens(const Filling *f)
{
    for (uint32_t line = 0; line < f->packing->lines; line++) {
        uint32_t token = 0;
        for (uint32_t slot = 0; slot < f->packing->slots; slot++) {
            uint32_t row = f->row_in_slot[line * f->packing->slots + slot];
            if (row == PACKED_NO_ROW) break;
            int64_t to = ((int64_t)line * f->packing->length + token) * f->per_token;
            dataset_convert(f->tensor, f->rows[row] * f->per_row, f->input, f->destination, to,
                            f->batch->lengths[row] * f->per_token);
            /* No earlier token of its row predicts it, and the one before it in the line is another row's. */
            if (f->labels && f->labels->shifted) ignore(f, to, f->per_token);
            token += (uint32_t)f->batch->lengths[row];
        }
        fill_rest(f, line, token);
    }
}

static void fill_slots(const Filling *f)
{
    for (uint32_t slot = 0; slot < f->packing->lines * f->packing->slots; slot++) {
        uint32_t row = f->row_in_slot[slot];
        int64_t to = slot * f->per_row;
        if (row == PACKED_NO_ROW && f->labels)
            ignore(f, to, f->per_row);
        else
            dataset_convert(f->tensor, row == PACKED_NO_ROW ? 0 : f->rows[row] * f->per_row, f->input, f->destination,
                            to, f->per_row);
    }
}

/* Slot, position or row of every token. */
static void fill_places(const Filling *f)
{
    const SkyPacking *packing = f->packing;
    int32_t *to = f->destination,
            none = f->input->fill == SKY_FILL_SLOT ? (int32_t)(packing->lines * packing->slots) : 0;
    for (uint32_t line = 0; line < packing->lines; line++) {
        uint32_t token = 0;
        for (uint32_t slot = 0; slot < packing->slots; slot++) {
            uint32_t number = line * packing->slots + slot, row = f->row_in_slot[number];
            if (row == PACKED_NO_ROW) break;
            for (int32_t i = 0; i < f->batch->lengths[row]; i++)
                to[line * packing->length + token++] = f->input->fill == SKY_FILL_SLOT       ? (int32_t)number
                                                       : f->input->fill == SKY_FILL_POSITION ? i
                                                                                             : (int32_t)row;
        }
        for (; token < packing->length; token++) to[line * packing->length + token] = none;
    }
}

static void fill_first(const Filling *f)
{
    const SkyPacking *packing = f->packing;
    int32_t *to = f->destination;
    for (uint32_t slot = 0; slot < packing->lines * packing->slots; slot++) {
        uint32_t row = f->row_in_slot[slot], line = slot / packing->slots;
        to[slot] = (int32_t)(line * packing->length + (row == PACKED_NO_ROW ? 0 : f->batch->packer.places[row].offset));
    }
}

void packed_batch_fill(const PackedBatch *batch, const Dataset *dataset, const SkyProgram *program,
                       const SkyTensor *input, const uint32_t *rows, uint32_t microbatch, void *destination)
{
    if (!batch) {
        dataset_fill(dataset, program, input, rows + (size_t)microbatch * program->microbatch_size, destination);
        return;
    }
    const SkyPacking *packing = &batch->packer.packing;
    bool of_data = input->fill == SKY_FILL_TOKENS || input->fill == SKY_FILL_SLOTS;
    Filling filling = {.batch = batch,
                       .packing = packing,
                       .tensor = of_data ? safetensors_find(&dataset->file, input->name) : NULL,
                       .input = input,
                       .labels = of_data ? labels_of_input(program, input->name, NULL) : NULL,
                       .rows = rows,
                       .row_in_slot = batch->row_in_slot + (size_t)microbatch * packing->lines * packing->slots,
                       .destination = destination};
    if (of_data) {
        filling.per_row = shape_elements(&filling.tensor->shape) / dataset->rows;
        filling.per_token = filling.tensor->shape.rank > 1 ? filling.per_row / filling.tensor->shape.dim[1] : 1;
    }
    switch ((SkyFill)input->fill) {
    case SKY_FILL_TOKENS: fill_tokens(&filling); break;
    case SKY_FILL_SLOTS: fill_slots(&filling); break;
    case SKY_FILL_FIRST: fill_first(&filling); break;
    default: fill_places(&filling); break;
    }
}
