#include "runtime/train/labelled_rows.h"

#include <stdlib.h>

/* Whether any label of the row counts, even if its class has weight 0. */
static bool has_label(const Dataset *dataset, const SkyProgram *program, uint32_t row)
{
    LabelCount labels[SKY_MOST_LABELS];
    dataset_count_labels(dataset, program, &row, 1, labels);
    for (uint32_t l = 0; l < program->label_count; l++)
        if (labels[l].weight > 0) return true;
    return false;
}

static int64_t count_lacking(LabelledRows *labelled, const Dataset *dataset, const SkyProgram *program, int64_t rows)
{
    int64_t lacking = 0;
    for (int64_t r = 0; r < rows; r++) lacking += labelled->lacking[r] = !has_label(dataset, program, (uint32_t)r);
    return lacking;
}

static void take_from(LabelledRows *labelled, World *world, int64_t rows, int source)
{
    enum { PIECE = 1 << 22 };
    for (int64_t first = 0; first < rows; first += PIECE)
        world_broadcast(world, WIRE_LENGTHS, labelled->lacking + first,
                        (size_t)(rows - first < PIECE ? rows - first : PIECE), source, "which rows have labels");
}

bool labelled_rows_open(LabelledRows *labelled, World *world, const SkyProgram *program, const Dataset *dataset,
                        const char *path, int64_t rows, Diagnostics *diagnostics)
{
    *labelled = (LabelledRows){0};
    if (!program->label_count || !program->loss_is_summed) return true;
    bool reads = false;
    for (uint32_t l = 0; l < program->label_count; l++) reads |= dataset->labels[l] != NULL;
    labelled->lacking = memory_allocate((size_t)rows + 1);
    int64_t mine = reads ? count_lacking(labelled, dataset, program, rows) : -1;
    FREED int64_t *all = memory_allocate((size_t)world->size * sizeof *all);
    world_allgather(world, &mine, sizeof mine, all, "agreement on labels");
    int source = 0;
    while (source < world->size - 1 && all[source] < 0) source++;
    int64_t lacking = all[source];
    if (lacking > 0 && lacking < rows) take_from(labelled, world, rows, source);
    if (lacking <= 0 || lacking == rows) labelled_rows_close(labelled);
    if (lacking != rows || rows == 0) return true;
    return input_error(diagnostics, path, "is this the labelled part of the data? -100 marks labels that do not count",
                       "no row has a label that counts");
}

void labelled_rows_close(LabelledRows *labelled)
{
    free(labelled->lacking);
    labelled->lacking = NULL;
}

bool labelled_rows_any(const LabelledRows *labelled, const uint32_t *rows, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (rows[i] != DATASET_NO_ROW && (!labelled->lacking || !labelled->lacking[rows[i]])) return true;
    return false;
}
