#include "partitioner/solve/master.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "partitioner/solve/arcs.h"

typedef enum ColumnKind { COLUMN_PATH, COLUMN_SLACK, COLUMN_EXCESS } ColumnKind;

typedef struct Column {
    ColumnKind kind;
    int index;        /* of a slack: its class */
    int first, count; /* of a path: its classes in `uses` */
    double cost;
} Column;

enum { MANY_PIVOTS = 300 }; /* after this many the inverse is computed again */

struct Master {
    const Relaxation *relaxation;
    int rows;
    double scale; /* a unit of cost, in integers of the relaxation */
    double penalty;
    Column *columns; /* slacks 0 ... classes - 1, the excess, paths */
    int column_count, column_capacity;
    int *uses, *ends; /* classes and end cuts of all paths */
    int use_count, use_capacity, end_count, end_capacity;
    int *basis;      /* [row]: column */
    double *inverse; /* [column of the inverse][row] */
    double *value;   /* [row] */
    double *right;   /* [row] */
    double *dual;    /* [row] */
    double *alpha;   /* scratch [row] */
    int pivots;      /* since master_settle last computed the inverse */
};

static int add_column(Master *m, Column column)
{
    array_push(m->columns, m->column_count, m->column_capacity, column);
    return m->column_count - 1;
}

/* `uses` and `ends` are copied. */
static int add_path(Master *m, const int *uses, const int *ends, int count, double cost)
{
    Column column = {COLUMN_PATH, 0, m->use_count, count, cost};
    for (int k = 0; k < count; k++) {
        array_push(m->uses, m->use_count, m->use_capacity, uses[k]);
        array_push(m->ends, m->end_count, m->end_capacity, ends[k]);
    }
    return add_column(m, column);
}

/* alpha = inverse x column. */
static void transform(Master *m, const Column *column)
{
    size_t rows = (size_t)m->rows;
    memset(m->alpha, 0, rows * sizeof *m->alpha);
    if (column->kind == COLUMN_SLACK) {
        memcpy(m->alpha, m->inverse + (size_t)(column->index + 1) * rows, rows * sizeof *m->alpha);
    } else if (column->kind == COLUMN_EXCESS) {
        for (int c = 0; c + 1 < m->rows; c++) {
            const double *from = m->inverse + (size_t)(c + 1) * rows;
            double size = m->relaxation->class_size[c];
            for (size_t i = 0; i < rows; i++) m->alpha[i] -= size * from[i];
        }
    } else {
        memcpy(m->alpha, m->inverse, rows * sizeof *m->alpha);
        for (int k = 0; k < column->count; k++) {
            const double *from = m->inverse + (size_t)(m->uses[column->first + k] + 1) * rows;
            for (size_t i = 0; i < rows; i++) m->alpha[i] += from[i];
        }
    }
}

static double reduced_cost(const Master *m, const Column *column)
{
    if (column->kind == COLUMN_SLACK) return -m->dual[column->index + 1];
    double cost = column->cost;
    if (column->kind == COLUMN_EXCESS) {
        for (int c = 0; c + 1 < m->rows; c++) cost += m->dual[c + 1] * m->relaxation->class_size[c];
        return cost;
    }
    cost -= m->dual[0];
    for (int k = 0; k < column->count; k++) cost -= m->dual[m->uses[column->first + k] + 1];
    return cost;
}

/* Brings `entering`, whose transform is in alpha and whose reduced cost is given, into the basis at `row`. */
static void pivot(Master *m, int entering, int row, double reduced)
{
    size_t rows = (size_t)m->rows, r = (size_t)row;
    double at = m->alpha[r], step = m->value[r] / at;
    for (size_t i = 0; i < rows; i++) m->value[i] -= m->alpha[i] * step;
    m->value[r] = step;
    size_t changed = 0;
    for (size_t j = 0; j < rows; j++) {
        double *column = m->inverse + j * rows, t = column[r] / at;
        if (t == 0) continue;
        changed++;
        m->dual[j] += reduced * t;
        for (size_t i = 0; i < rows; i++) column[i] -= m->alpha[i] * t;
        column[r] = t;
    }
    watch_count(m->relaxation->problem->watch, WATCH_ENTRY, (int64_t)(rows * changed));
    m->basis[r] = entering;
    m->pivots++;
}

/* The row that leaves: least ratio, among near ties the largest pivot. -1: none (unbounded, impossible in theory). */
static int leaving_row(const Master *m)
{
    int best = -1;
    double least = RELAXATION_INFINITY;
    for (int i = 0; i < m->rows; i++) {
        if (m->alpha[i] <= 1e-9) continue;
        double ratio = (m->value[i] > 0 ? m->value[i] : 0) / m->alpha[i];
        bool tie = ratio < least + 1e-12 && best >= 0;
        if (ratio >= least - 1e-12 && !(tie && m->alpha[i] > m->alpha[best])) continue;
        best = i;
        if (ratio < least) least = ratio;
    }
    return best;
}

static bool enter(Master *m, int column)
{
    double reduced = reduced_cost(m, &m->columns[column]);
    if (reduced > -1e-10) return false;
    transform(m, &m->columns[column]);
    int row = leaving_row(m);
    if (row < 0) return false;
    pivot(m, column, row, reduced);
    return true;
}

/* The basis of slacks alone, all of which cost nothing; `basis` is for the caller to fill. */
static void reset(Master *m)
{
    size_t rows = (size_t)m->rows;
    memset(m->inverse, 0, rows * rows * sizeof *m->inverse);
    for (size_t i = 0; i < rows; i++) m->inverse[i * rows + i] = 1;
    memcpy(m->value, m->right, rows * sizeof *m->value);
    memset(m->dual, 0, rows * sizeof *m->dual);
}

/* dual = costs of the basis x inverse. */
static void compute_duals(Master *m)
{
    size_t rows = (size_t)m->rows;
    memset(m->dual, 0, rows * sizeof *m->dual);
    for (size_t i = 0; i < rows; i++) {
        double cost = m->columns[m->basis[i]].cost;
        for (size_t j = 0; j < rows && cost != 0; j++) m->dual[j] += cost * m->inverse[j * rows + i];
    }
}

/* Recomputes inverse, values and duals from the basis, so that rounding errors do not accumulate. */
static void refactor(Master *m)
{
    size_t rows = (size_t)m->rows;
    FREED int *basis = memory_allocate(rows * sizeof *basis);
    FREED bool *taken = memory_allocate(rows * sizeof *taken);
    memcpy(basis, m->basis, rows * sizeof *basis);
    reset(m);
    for (size_t k = 0; k < rows; k++) { /* slacks first: they cost nothing to bring in */
        const Column *column = &m->columns[basis[k]];
        if (column->kind == COLUMN_SLACK) taken[column->index + 1] = true, m->basis[column->index + 1] = basis[k];
    }
    for (size_t k = 0; k < rows; k++) {
        if (m->columns[basis[k]].kind == COLUMN_SLACK) continue;
        transform(m, &m->columns[basis[k]]);
        int row = -1;
        for (int i = 0; i < m->rows; i++)
            if (!taken[i] && (row < 0 || fabs(m->alpha[i]) > fabs(m->alpha[row]))) row = i;
        taken[row] = true;
        pivot(m, basis[k], row, 0);
    }
    compute_duals(m);
}

/* ---- Interface ---- */

Master *master_create(const Relaxation *r, double scale, Arena *arena)
{
    Master *m = arena_new(arena, Master);
    size_t rows = (size_t)r->class_count + 1, entries = rows * rows;
    m->relaxation = r;
    m->rows = (int)rows;
    m->scale = scale;
    m->penalty = r->costed ? 1e4 : 1;
    m->basis = arena_new_array(arena, int, rows);
    m->inverse = arena_new_array(arena, double, entries);
    m->value = arena_new_array(arena, double, rows);
    m->right = arena_new_array(arena, double, rows);
    m->dual = arena_new_array(arena, double, rows);
    m->alpha = arena_new_array(arena, double, rows);
    uint64_t random = 0x9e3779b97f4a7c15u;
    m->right[0] = 1;
    for (int c = 0; c < r->class_count; c++) {
        m->right[c + 1] =
            (r->costed ? r->class_size[c] : 0) + 1e-7 * (1 + (double)(random_draw(&random) >> 40) / (1 << 24));
    }
    for (int c = 0; c < r->class_count; c++) add_column(m, (Column){.kind = COLUMN_SLACK, .index = c});
    add_column(m, (Column){.kind = COLUMN_EXCESS, .cost = m->penalty});
    return m;
}

void master_free(Master *m)
{
    free(m->columns);
    free(m->uses);
    free(m->ends);
}

/* The first basis: the path, the slacks and the excess that makes it feasible. */
void master_start(Master *m, const Path *first)
{
    int path = add_path(m, first->class_used, first->end, first->stage_count, first->cost / m->scale);
    int excess = m->rows - 1;
    reset(m);
    for (int c = 0; c + 1 < m->rows; c++) m->basis[c + 1] = c;
    transform(m, &m->columns[path]);
    pivot(m, path, 0, 0);
    transform(m, &m->columns[excess]);
    int worst = -1;
    for (int i = 1; i < m->rows; i++)
        if (m->value[i] < 0 && (worst < 0 || m->value[i] / m->alpha[i] > m->value[worst] / m->alpha[worst])) worst = i;
    if (worst > 0) pivot(m, excess, worst, 0);
    m->dual[0] = m->columns[path].cost;
    if (worst > 0) refactor(m);
}

static void settle_slacks(Master *m)
{
    /* A path changes only the prices it uses, so a few pivots suffice. */
    for (int round = 0; round < 4 * m->rows; round++) {
        int best = -1;
        double least = -1e-9;
        for (int c = 0; c < m->rows; c++) {
            double reduced = reduced_cost(m, &m->columns[c]);
            if (reduced < least) least = reduced, best = c;
        }
        if (best < 0 || !enter(m, best)) return;
    }
}

void master_settle(Master *m)
{
    settle_slacks(m);
    if (m->pivots <= MANY_PIVOTS) return;
    refactor(m);
    m->pivots = 0;
}

bool master_enter(Master *m, const Path *path)
{
    if (enter(m, add_path(m, path->class_used, path->end, path->stage_count, path->cost / m->scale))) return true;
    m->column_count--;
    m->use_count -= path->stage_count;
    m->end_count -= path->stage_count;
    return false;
}

void master_prices(const Master *m, double *price)
{
    for (int c = 0; c + 1 < m->rows; c++) price[c] = m->dual[c + 1] < 0 ? -m->dual[c + 1] : 0;
}

double master_cost(const Master *m)
{
    double cost = 0;
    for (int i = 0; i < m->rows; i++) cost += m->columns[m->basis[i]].cost * m->value[i];
    return cost * m->scale;
}

void master_add_mixture(const Master *m, double *mixture)
{
    size_t cuts = (size_t)m->relaxation->problem->layer_count + 1;
    for (int i = 0; i < m->rows; i++) {
        const Column *column = &m->columns[m->basis[i]];
        if (column->kind != COLUMN_PATH || m->value[i] <= 0) continue;
        for (int k = 0, start = 0; k < column->count; start = m->ends[column->first + k++])
            mixture[(size_t)m->uses[column->first + k] * cuts + (size_t)start] += m->value[i];
    }
}

/* ---- bases ---- */

struct PricesBasis {
    int rows, use_count;
    double scale;
    Column *columns; /* [row] */
    int *uses, *ends;
    double *inverse, *value;
};

PricesBasis *master_save_basis(const Master *m)
{
    size_t rows = (size_t)m->rows;
    PricesBasis *b = memory_allocate(sizeof *b);
    b->rows = m->rows;
    b->scale = m->scale;
    b->columns = memory_allocate(rows * sizeof *b->columns);
    b->inverse = memory_allocate(rows * rows * sizeof *b->inverse);
    b->value = memory_allocate(rows * sizeof *b->value);
    memcpy(b->inverse, m->inverse, rows * rows * sizeof *b->inverse);
    memcpy(b->value, m->value, rows * sizeof *b->value);
    for (size_t i = 0; i < rows; i++) b->use_count += m->columns[m->basis[i]].count;
    b->uses = memory_allocate(((size_t)b->use_count + 1) * sizeof *b->uses);
    b->ends = memory_allocate(((size_t)b->use_count + 1) * sizeof *b->ends);
    for (size_t i = 0, at = 0; i < rows; i++) {
        Column *column = &b->columns[i];
        *column = m->columns[m->basis[i]];
        if (column->kind != COLUMN_PATH) continue;
        size_t count = (size_t)column->count;
        memcpy(b->uses + at, m->uses + column->first, count * sizeof *b->uses);
        memcpy(b->ends + at, m->ends + column->first, count * sizeof *b->ends);
        column->first = (int)at;
        at += count;
    }
    return b;
}

double master_basis_scale(const PricesBasis *basis) { return basis->scale; }

void master_basis_free(PricesBasis *basis)
{
    if (!basis) return;
    free(basis->columns);
    free(basis->uses);
    free(basis->ends);
    free(basis->inverse);
    free(basis->value);
    free(basis);
}

/* Only for relaxations without arcs, which differ only in their cap. */
static bool is_possible(const Relaxation *r, const PricesBasis *b, const Column *column)
{
    for (int k = 0, start = 0; k < column->count; start = b->ends[column->first + k++]) {
        int c = b->uses[column->first + k], end = b->ends[column->first + k];
        if (r->arcs ? !arcs_contain(r, c, start, end) : relaxation_low(r, r->levels, c)[end] > start) return false;
    }
    return true;
}

bool master_start_from(Master *m, const PricesBasis *b)
{
    size_t rows = (size_t)m->rows;
    if (b->rows != m->rows || b->scale != m->scale) return false;
    memcpy(m->inverse, b->inverse, rows * rows * sizeof *m->inverse);
    memcpy(m->value, b->value, rows * sizeof *m->value);
    for (size_t i = 0; i < rows; i++) {
        const Column *from = &b->columns[i];
        if (from->kind != COLUMN_PATH) {
            m->basis[i] = from->kind == COLUMN_SLACK ? from->index : m->rows - 1;
        } else {
            double cost = is_possible(m->relaxation, b, from) ? from->cost : from->cost + m->penalty;
            m->basis[i] = add_path(m, b->uses + from->first, b->ends + from->first, from->count, cost);
        }
    }
    compute_duals(m);
    return true;
}
