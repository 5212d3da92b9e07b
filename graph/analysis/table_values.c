/* What the elements of a tensor give away about it. */
#include <math.h>

#include "graph/analysis/choose_trained.h"

/* The elements as [slices, rows, columns], dimensions of extent 1 left out. */
/* Frozen tables hold positions and are small. Larger weights are not read, because a sparse file can claim any size. */
enum { MOST_TABLE_ELEMENTS = 1 << 28 };

typedef struct Table {
    DType dtype;
    const void *data;
    int64_t slices, rows, columns;
} Table;

static Table table_of(DType dtype, const Shape *shape, const void *data)
{
    Table table = {dtype, data, 1, 1, 1};
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] == 1) continue;
        table.slices *= table.rows;
        table.rows = table.columns;
        table.columns = shape->dim[i];
    }
    return table;
}

static double element(const Table *table, int64_t slice, int64_t row, int64_t column)
{
    return element_as_double(table->dtype, table->data, (slice * table->rows + row) * table->columns + column);
}

typedef enum Course { COURSE_OTHER, COURSE_CONSTANT, COURSE_WAVE } Course;

/* Samples of one sinusoid at equal distances obey x[p - 1] + x[p + 1] = 2 cos(w) x[p], and nothing else does for
 * long. */
static Course course_of(const Table *table, int64_t slice, int64_t column)
{
    enum { MOST_ROWS = 64 };
    int64_t rows = table->rows < MOST_ROWS ? table->rows : MOST_ROWS;
    double product = 0, square = 0, least = INFINITY, most = -INFINITY;
    for (int64_t p = 0; p < rows; p++) {
        double x = element(table, slice, p, column);
        least = fmin(least, x);
        most = fmax(most, x);
        if (p == 0 || p == rows - 1) continue;
        product += x * (element(table, slice, p - 1, column) + element(table, slice, p + 1, column));
        square += x * x;
    }
    double largest = fmax(fabs(least), fabs(most)), twice_cosine = square > 0 ? product / square : 0;
    if (!isfinite(largest)) return COURSE_OTHER;
    if (most - least <= 1e-3 * largest) return COURSE_CONSTANT;
    if (fabs(twice_cosine) > 2 + 1e-3) return COURSE_OTHER;
    /* Half-precision tables have three digits. */
    double precision = table->dtype == DTYPE_F32 || table->dtype == DTYPE_F64 ? 1e-4 : 2e-2;
    for (int64_t p = 1; p + 1 < rows; p++) {
        double sum = element(table, slice, p - 1, column) + element(table, slice, p + 1, column);
        if (fabs(sum - twice_cosine * element(table, slice, p, column)) > precision * largest) return COURSE_OTHER;
    }
    return COURSE_WAVE;
}

bool elements_are_sinusoids(DType dtype, const Shape *shape, const void *data)
{
    enum { LEAST_ROWS = 4 };
    Table table = table_of(dtype, shape, data);
    if (!data || shape_elements(shape) > MOST_TABLE_ELEMENTS || table.rows < LEAST_ROWS || table.columns < 2)
        return false;
    int64_t waves = 0, columns = table.slices * table.columns;
    for (int64_t s = 0; s < table.slices; s++)
        for (int64_t c = 0; c < table.columns; c++) {
            Course course = course_of(&table, s, c);
            if (course == COURSE_OTHER) return false;
            waves += course == COURSE_WAVE;
        }
    return waves * 4 >= columns; /* the lowest frequencies may hardly move */
}

bool elements_are_mask(DType dtype, const Shape *shape, const void *data)
{
    enum { VERY_LOW = -1000 };
    int64_t count = shape_elements(shape), zeros = 0;
    double other = 0;
    if (count > MOST_TABLE_ELEMENTS) return false;
    for (int64_t i = 0; data && i < count; i++) {
        double x = element_as_double(dtype, data, i);
        if (x == 0)
            zeros++;
        else if (other == 0)
            other = x;
        else if (x != other)
            return false;
    }
    if (!data || other == 0 || isnan(other)) return false;
    if (other <= VERY_LOW) return true;
    Table table = table_of(dtype, shape, data);
    return zeros > 0 && zeros < count && other == 1 && table.rows > 1;
}

/* Whether the row is linear in positions, or in distances from one of them. */
static bool row_is_linear(const Value *value, int64_t first, int64_t columns, int64_t *seen)
{
    enum { HIDDEN = -9000 }; /* of a mask */
    double before = 0, step = 0;
    bool bent = false;
    int64_t last = 0;
    *seen = 0;
    for (int64_t k = 0; k < columns; k++) {
        double x = element_as_double(value->dtype, value->data, first + k);
        if (x <= HIDDEN) continue;
        double slope = *seen ? (x - before) / (double)(k - last) : 0, tolerance = 1e-5 * fabs(step) * (double)columns;
        if (*seen > 1 && !(fabs(slope - step) <= tolerance)) {
            if (bent || !(fabs(slope + step) <= tolerance)) return false;
            bent = true;
        }
        if (*seen == 1 || bent) step = slope;
        before = x;
        last = k;
        ++*seen;
    }
    return true;
}

bool elements_are_linear(const Value *value)
{
    int64_t count = shape_elements(&value->shape), columns = value->shape.dim[value->shape.rank - 1], most = 0, seen;
    for (int64_t i = 0; value->data && columns > 2 && i < count; i += columns) {
        if (!row_is_linear(value, i, columns, &seen)) return false;
        if (seen > most) most = seen;
    }
    return most > 2;
}
