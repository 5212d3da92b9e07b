#include "runtime/train/gradient_rows.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/program/subnormals.h"

enum { BITS = 32 };

static size_t words_of(size_t rows) { return (rows + BITS - 1) / BITS; }

static bool has_row(const float *message, size_t row)
{
    uint32_t word;
    memcpy(&word, message + row / BITS, sizeof word);
    return word >> row % BITS & 1;
}

/* By its bits: -0 is not 0, whose sum with 0 is. Without a way out, so that it vectorises: most rows are 0. */
static bool is_zero(const float *values, size_t count)
{
    uint32_t word, any = 0;
    for (size_t i = 0; i < count; i++) {
        memcpy(&word, values + i, sizeof word);
        any |= word;
    }
    return !any;
}

size_t gradient_rows_room(size_t rows, size_t row) { return words_of(rows) + rows * row; }

size_t gradient_rows_pack(const float *from, size_t rows, size_t row, float *message)
{
    float *to = message + words_of(rows);
    for (size_t first = 0; first < rows; first += BITS) {
        uint32_t word = 0;
        for (size_t r = first; r < rows && r < first + BITS; r++) {
            if (is_zero(from + r * row, row)) continue;
            word |= (uint32_t)1 << (r - first);
            memcpy(to, from + r * row, row * sizeof *to);
            to += row;
        }
        memcpy(message + first / BITS, &word, sizeof word);
    }
    return (size_t)(to - message);
}

/* A row that a term lacks is 0. */
static void add_row(float *sum, const float *term, size_t row)
{
    for (size_t i = 0; i < row; i++) sum[i] += term ? term[i] : 0;
}

void gradient_rows_add(float *target, const float *const *terms, int count, size_t rows, size_t row)
{
    uint64_t before = subnormals_flush();
    FREED float *sum = memory_allocate(row * sizeof *sum);
    FREED const float **next = memory_allocate((size_t)count * sizeof *next),
                      **here = memory_allocate((size_t)count * sizeof *here);
    for (int t = 0; t < count; t++) next[t] = terms[t] ? terms[t] + words_of(rows) : NULL;
    for (size_t r = 0; r < rows; r++) {
        float *own = target + r * row;
        bool any = false;
        for (int t = 0; t < count; t++) {
            here[t] = terms[t] ? NULL : own;
            if (!terms[t] || !has_row(terms[t], r)) continue;
            here[t] = next[t];
            next[t] += row;
            any = true;
        }
        if (!any && is_zero(own, row)) continue;
        memset(sum, 0, row * sizeof *sum);
        if (here[0]) memcpy(sum, here[0], row * sizeof *sum);
        for (int t = 1; t < count; t++) add_row(sum, here[t], row);
        memcpy(own, sum, row * sizeof *sum);
    }
    subnormals_restore(before);
}

void gradient_rows_unpack(float *to, size_t rows, size_t row, const float *message)
{
    const float *from = message + words_of(rows);
    for (size_t r = 0; r < rows; r++) {
        float *own = to + r * row;
        if (has_row(message, r)) {
            memcpy(own, from, row * sizeof *own);
            from += row;
        } else if (!is_zero(own, row)) {
            memset(own, 0, row * sizeof *own);
        }
    }
}
