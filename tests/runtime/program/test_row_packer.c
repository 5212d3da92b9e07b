/* Every row of a batch gets a place of its own, whatever the lengths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/random.h"
#include "runtime/program/row_packer.h"

/* Rows lie inside their lines and do not overlap; they follow each other in the order of their slots. */
static void check_places(const RowPacker *packer, const int32_t *lengths)
{
    const SkyPacking *packing = &packer->packing;
    bool *taken = memory_allocate((size_t)packing->rows * packing->length);
    uint32_t *rows = memory_allocate(packing->rows * sizeof *rows),
             *tokens = memory_allocate(packing->rows * sizeof *tokens);
    for (uint32_t r = 0; r < packing->rows; r++) {
        const RowPlace *place = &packer->places[r];
        if (!lengths[r]) continue;
        assert_in_range(place->line, 0, packer->lines - 1);
        assert_in_range(place->slot, 0, packing->slots - 1);
        assert_in_range(place->offset + (uint32_t)lengths[r], 1, packing->length);
        for (int32_t i = 0; i < lengths[r]; i++) {
            bool *token = &taken[place->line * packing->length + place->offset + (uint32_t)i];
            assert_false(*token);
            *token = true;
        }
        rows[place->line]++;
        tokens[place->line] += (uint32_t)lengths[r];
    }
    for (uint32_t line = 0; line < packer->lines; line++) {
        assert_in_range(rows[line], 1, packing->slots);
        for (uint32_t i = 0; i < tokens[line]; i++) assert_true(taken[line * packing->length + i]);
        assert_int_equal(tokens[line], packer->filled[line]);
    }
    free(taken);
    free(rows);
    free(tokens);
}

/* No line that has one after it in its micro-batch has fewer tokens than the last line of any. */
static void check_last_lines(const RowPacker *packer)
{
    uint32_t each = packer->packing.lines, most = 0, least = UINT32_MAX, tokens = 0;
    for (uint32_t line = 0; line < packer->lines; line++) {
        bool last = line % each == each - 1 || line == packer->lines - 1;
        if (last && packer->filled[line] > most) most = packer->filled[line];
        if (!last && packer->filled[line] < least) least = packer->filled[line];
        tokens += last ? packer->filled[line] : packer->packing.length;
    }
    assert_true(most <= least);
    assert_int_equal(row_packer_all_tokens(packer), tokens);
}

static void rows_get_places(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int trial = 0; trial < 300; trial++) {
        SkyPacking packing = {.lines = 1 + (uint32_t)(random_draw(&seed) >> 33) % 5,
                              .length = 1 + (uint32_t)(random_draw(&seed) >> 33) % 40,
                              .slots = 1 + (uint32_t)(random_draw(&seed) >> 33) % 6,
                              .rows = 1 + (uint32_t)(random_draw(&seed) >> 33) % 50};
        packing.longest = trial % 2 ? packing.length : packing.length - packing.length / 3;
        int32_t lengths[50];
        for (uint32_t r = 0; r < packing.rows; r++)
            lengths[r] = (int32_t)((random_draw(&seed) >> 33) % (packing.longest + 1));
        RowPacker packer;
        row_packer_open(&packer, &packing);
        uint32_t microbatches = row_packer_place(&packer, lengths);
        assert_in_range(packer.lines, 0, packing.rows);
        assert_int_equal(microbatches, (packer.lines + packing.lines - 1) / packing.lines);
        assert_true(microbatches <= packing_most_microbatches(&packing));
        check_places(&packer, lengths);
        check_last_lines(&packer);
        row_packer_close(&packer);
    }
}

static void short_rows_fill_up_lines(void **state)
{
    (void)state;
    const SkyPacking packing = {.lines = 2, .length = 10, .slots = 3, .rows = 6, .longest = 10};
    const int32_t lengths[] = {3, 6, 10, 4, 0, 7};
    RowPacker packer;
    row_packer_open(&packer, &packing);
    assert_int_equal(row_packer_place(&packer, lengths), 2);
    assert_int_equal(packer.lines, 3); /* 10; 7 and 3; 6 and 4 */
    assert_int_equal(packer.places[2].line, 0);
    assert_int_equal(packer.places[5].line, packer.places[0].line);
    assert_int_equal(packer.places[0].offset, 7);
    assert_int_equal(packer.places[1].line, packer.places[3].line);
    row_packer_close(&packer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_get_places),
        cmocka_unit_test(short_rows_fill_up_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
