#include "runtime/program/row_packer.h"

#include <string.h>

void row_packer_open(RowPacker *packer, const SkyPacking *packing)
{
    size_t rows = packing->rows;
    *packer = (RowPacker){.packing = *packing};
    packer->places = arena_new_array(&packer->arena, RowPlace, rows);
    packer->order = arena_new_array(&packer->arena, uint32_t, rows);
    packer->filled = arena_new_array(&packer->arena, uint32_t, rows);
    packer->row_count = arena_new_array(&packer->arena, uint32_t, rows);
    packer->moved = arena_new_array(&packer->arena, uint32_t, rows);
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

uint32_t row_packer_lines(const RowPacker *packer, uint32_t microbatch)
{
    uint32_t each = packer->packing.lines, before = microbatch * each;
    uint32_t rest = before < packer->lines ? packer->lines - before : 0;
    return rest < each ? rest : each;
}

uint32_t row_packer_tokens(const RowPacker *packer, uint32_t microbatch)
{
    uint32_t lines = row_packer_lines(packer, microbatch), first = microbatch * packer->packing.lines;
    return lines ? (lines - 1) * packer->packing.length + packer->filled[first + lines - 1] : 0;
}

int64_t row_packer_all_tokens(const RowPacker *packer)
{
    int64_t tokens = 0;
    for (uint32_t m = 0; m < row_packer_microbatches(packer); m++) tokens += row_packer_tokens(packer, m);
    return tokens;
}

enum { NOWHERE = UINT32_MAX };

/* The line with the fewest tokens of those that go nowhere yet. */
static uint32_t emptiest_line(const RowPacker *packer)
{
    uint32_t best = NOWHERE;
    for (uint32_t l = 0; l < packer->lines; l++)
        if (packer->moved[l] == NOWHERE && (best == NOWHERE || packer->filled[l] <= packer->filled[best])) best = l;
    return best;
}

/* Has the emptiest lines be the last ones of the micro-batches; the others keep their order. */
static void move_lines(RowPacker *packer)
{
    uint32_t each = packer->packing.lines, *filled = packer->row_count, next = 0;
    if (each == 1) return;
    for (uint32_t l = 0; l < packer->lines; l++) packer->moved[l] = NOWHERE;
    for (uint32_t m = row_packer_microbatches(packer); m-- > 0;)
        packer->moved[emptiest_line(packer)] = m * each + row_packer_lines(packer, m) - 1;
    for (uint32_t l = 0; l < packer->lines; l++) {
        if (packer->moved[l] != NOWHERE) continue;
        if (next % each == each - 1) next++;
        packer->moved[l] = next++;
    }
    memcpy(filled, packer->filled, packer->lines * sizeof *filled);
    for (uint32_t l = 0; l < packer->lines; l++) packer->filled[packer->moved[l]] = filled[l];
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
               (packer->filled[line] + length > packing->length || packer->row_count[line] == packing->slots))
            line++;
        if (line == packer->lines) packer->filled[line] = packer->row_count[line] = 0, packer->lines++;
        packer->places[row] = (RowPlace){line, packer->filled[line], packer->row_count[line]};
        packer->filled[line] += length;
        packer->row_count[line]++;
    }
    move_lines(packer);
    for (uint32_t i = 0; i < count && packing->lines > 1; i++) {
        RowPlace *place = &packer->places[packer->order[i]];
        place->line = packer->moved[place->line];
    }
    return row_packer_microbatches(packer);
}
