#include "runtime/program/row_packer.h"

#include <string.h>

void row_packer_open(RowPacker *packer, const SkyPacking *packing)
{
    size_t rows = packing->rows;
    *packer = (RowPacker){.packing = *packing};
    packer->places = arena_new_array(&packer->arena, RowPlace, rows);
    packer->order = arena_new_array(&packer->arena, uint32_t, rows);
    packer->tokens = arena_new_array(&packer->arena, uint32_t, rows);
    packer->row_count = arena_new_array(&packer->arena, uint32_t, rows);
    packer->begin = arena_new_array(&packer->arena, uint32_t, (size_t)packing->longest + 1);
}

void row_packer_close(RowPacker *packer)
{
    arena_free(&packer->arena);
    *packer = (RowPacker){0};
}

/* Counting sort, longest row first. Returns how many rows have tokens. */
static uint32_t sort_rows(RowPacker *packer, const int32_t *lengths)
{
    uint32_t *begin = packer->begin, length = packer->packing.longest, count = 0;
    memset(begin, 0, (length + 1) * sizeof *begin);
    for (uint32_t r = 0; r < packer->packing.rows; r++) begin[lengths[r]]++;
    for (uint32_t l = length; l > 0; l--) {
        uint32_t rows = begin[l];
        begin[l] = count;
        count += rows;
    }
    for (uint32_t r = 0; r < packer->packing.rows; r++)
        if (lengths[r] > 0) packer->order[begin[lengths[r]]++] = r;
    return count;
}

uint32_t row_packer_place(RowPacker *packer, const int32_t *lengths)
{
    const SkyPacking *packing = &packer->packing;
    uint32_t count = sort_rows(packer, lengths), line = 0, last = 0;
    packer->lines = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = packer->order[i], length = (uint32_t)lengths[row];
        if (length != last) line = 0; /* shorter rows may fit where longer ones did not */
        last = length;
        while (line < packer->lines &&
               (packer->tokens[line] + length > packing->length || packer->row_count[line] == packing->slots))
            line++;
        if (line == packer->lines) packer->tokens[line] = packer->row_count[line] = 0, packer->lines++;
        packer->places[row] = (RowPlace){line, packer->tokens[line], packer->row_count[line]};
        packer->tokens[line] += length;
        packer->row_count[line]++;
    }
    return (packer->lines + packing->lines - 1) / packing->lines;
}
