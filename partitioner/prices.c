#include "partitioner/prices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/arcs.h"

/* The master program, rows 0 ... classes:
 *     minimise    sum cost_p x_p + penalty * excess
 *     row 0       sum x_p = 1
 *     row c + 1   sum uses_pc x_p - size_c * excess + slack_c = size_c (sums) or 0 (feasibility), perturbed
 * In the feasibility form costs are 0 and the penalty 1: `excess` is the least multiple of the cluster that suffices.
 */
/* From the first number on the simplex is given a better start, from the second on it would stall and is left out. */
enum { MANY_CLASSES = 100, TOO_MANY_CLASSES = 200 };

typedef enum ColumnKind { COLUMN_PATH, COLUMN_SLACK, COLUMN_EXCESS } ColumnKind;

typedef struct Column {
    ColumnKind kind;
    int index;        /* of a slack: its class */
    int first, count; /* of a path: its classes in `uses` */
    double cost;
} Column;

typedef struct Master {
    Relaxation *relaxation;
    int rows;
    double scale; /* a unit of cost in the master, in integers of the relaxation */
    double penalty;
    Column *columns;
    int column_count, column_capacity;
    int *uses, *ends; /* classes and end cuts of all paths */
    int use_count, use_capacity, end_count, end_capacity;
    int *basis;      /* [row]: column */
    double *inverse; /* [column of the inverse][row] */
    double *value;   /* [row] */
    double *right;   /* [row] */
    double *dual;    /* [row] */
    double *alpha;   /* scratch [row] */
    double *trial;   /* scratch [class] */
    int *used;       /* scratch [class], all 0 */
    Path path;
    int pivots;
} Master;

static void master_create(Master *m, Relaxation *r, Arena *arena)
{
    memset(m, 0, sizeof *m);
    size_t rows = (size_t)r->class_count + 1, stages = (size_t)r->problem->layer_count;
    m->relaxation = r;
    m->rows = (int)rows;
    m->basis = arena_new_array(arena, int, rows);
    m->inverse = arena_new_array(arena, double, rows *rows);
    m->value = arena_new_array(arena, double, rows);
    m->right = arena_new_array(arena, double, rows);
    m->dual = arena_new_array(arena, double, rows);
    m->alpha = arena_new_array(arena, double, rows);
    m->trial = arena_new_array(arena, double, rows);
    m->used = arena_new_array(arena, int, rows);
    m->path = (Path){0, arena_new_array(arena, int, stages), arena_new_array(arena, int, stages), 0};
    uint64_t random = 0x9e3779b97f4a7c15u;
    m->right[0] = 1;
    for (int c = 0; c < r->class_count; c++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        m->right[c + 1] = (r->costed ? r->class_size[c] : 0) + 1e-7 * (1 + (double)(random >> 40) / (1 << 24));
    }
}

static void master_free(Master *m)
{
    free(m->columns);
    free(m->uses);
    free(m->ends);
}

static int add_column(Master *m, Column column)
{
    array_push(m->columns, m->column_count, m->column_capacity, column);
    return m->column_count - 1;
}

static int add_path(Master *m, const Path *path)
{
    Column column = {COLUMN_PATH, 0, m->use_count, path->stage_count, path->cost / m->scale};
    for (int k = 0; k < path->stage_count; k++) {
        array_push(m->uses, m->use_count, m->use_capacity, path->class_used[k]);
        array_push(m->ends, m->end_count, m->end_capacity, path->end[k]);
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
    for (size_t j = 0; j < rows; j++) {
        double *column = m->inverse + j * rows, t = column[r] / at;
        if (t == 0) continue;
        m->dual[j] += reduced * t;
        for (size_t i = 0; i < rows; i++) column[i] -= m->alpha[i] * t;
        column[r] = t;
    }
    m->basis[r] = entering;
    m->pivots++;
}

/* The row that leaves, by the least ratio; among near ties the largest pivot. -1: none (unbounded: never in theory). */
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

/* Recomputes inverse, values and duals from the basis: rounding errors of the updates do not pile up. */
static void refactor(Master *m)
{
    size_t rows = (size_t)m->rows;
    int *basis = memory_allocate(rows * sizeof *basis);
    bool *taken = memory_allocate(rows * sizeof *taken);
    memcpy(basis, m->basis, rows * sizeof *basis);
    memset(m->inverse, 0, rows * rows * sizeof *m->inverse);
    for (size_t i = 0; i < rows; i++) m->inverse[i * rows + i] = 1;
    memcpy(m->value, m->right, rows * sizeof *m->value);
    memset(m->dual, 0, rows * sizeof *m->dual);
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
    for (size_t i = 0; i < rows; i++) {
        double cost = m->columns[m->basis[i]].cost;
        for (size_t j = 0; j < rows && cost != 0; j++) m->dual[j] += cost * m->inverse[j * rows + i];
    }
    free(basis);
    free(taken);
}

/* ---- bases ---- */

struct PricesBasis {
    int rows, use_count;
    double scale;
    Column *columns; /* [row] */
    int *uses, *ends;
    double *inverse, *value;
};

static PricesBasis *save_basis(const Master *m)
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

void prices_basis_free(PricesBasis *basis)
{
    if (!basis) return;
    free(basis->columns);
    free(basis->uses);
    free(basis->ends);
    free(basis->inverse);
    free(basis->value);
    free(basis);
}

/* Without arcs: of relaxations that differ in their cap alone. */
static bool is_possible(const Relaxation *r, const PricesBasis *b, const Column *column)
{
    for (int k = 0, start = 0; k < column->count; start = b->ends[column->first + k++]) {
        int c = b->uses[column->first + k], end = b->ends[column->first + k];
        if (r->arcs ? !arcs_contain(r, c, start, end) : relaxation_low(r, r->levels, c)[end] > start) return false;
    }
    return true;
}

/* Paths that are no longer possible stay at a cost that drives them out. */
static void load_basis(Master *m, const PricesBasis *b)
{
    size_t rows = (size_t)m->rows;
    memcpy(m->inverse, b->inverse, rows * rows * sizeof *m->inverse);
    memcpy(m->value, b->value, rows * sizeof *m->value);
    memset(m->dual, 0, rows * sizeof *m->dual);
    for (size_t i = 0; i < rows; i++) {
        const Column *from = &b->columns[i];
        if (from->kind != COLUMN_PATH) {
            m->basis[i] = from->kind == COLUMN_SLACK ? from->index : m->rows - 1;
        } else {
            Column column = *from;
            column.first = m->use_count;
            if (!is_possible(m->relaxation, b, from)) column.cost += m->penalty;
            for (int k = 0; k < from->count; k++) {
                array_push(m->uses, m->use_count, m->use_capacity, b->uses[from->first + k]);
                array_push(m->ends, m->end_count, m->end_capacity, b->ends[from->first + k]);
            }
            m->basis[i] = add_column(m, column);
        }
        double cost = m->columns[m->basis[i]].cost;
        for (size_t j = 0; j < rows && cost != 0; j++) m->dual[j] += cost * m->inverse[j * rows + i];
    }
}

/* First basis: the path, the slacks, and as much excess as it takes. */
static void start_basis(Master *m, int path)
{
    size_t rows = (size_t)m->rows;
    int excess = m->rows - 1; /* columns: slacks 0 ... classes-1, then excess */
    memset(m->inverse, 0, rows * rows * sizeof *m->inverse);
    for (size_t i = 0; i < rows; i++) m->inverse[i * rows + i] = 1;
    memcpy(m->value, m->right, rows * sizeof *m->value);
    memset(m->dual, 0, rows * sizeof *m->dual);
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

/* ---- prices ---- */

/* Rounds trial prices to integers of the relaxation, solves it, and keeps them if the bound is the best. */
static double evaluate(Master *m, Prices *prices, const double *real)
{
    Relaxation *r = m->relaxation;
    double total = 0;
    for (int c = 0; c < r->class_count; c++) {
        double price = rint((real[c] > 0 ? real[c] : 0) * m->scale);
        m->trial[c] = price;
        total += price * r->class_size[c];
    }
    double path = relaxation_solve(r, m->trial);
    /* In the feasibility form bounds of different scale compare by their ratio. */
    double bound = path - total;
    bool better = r->costed ? bound > prices->bound : total > 0 && path * prices->total > prices->path * total;
    if (better || prices->iterations == 0) {
        memcpy(prices->price, m->trial, (size_t)r->class_count * sizeof *m->trial);
        prices->bound = bound;
        prices->total = total;
        prices->path = path;
    }
    prices->iterations++;
    return path;
}

/* Mean reached work, relative to the whole, is what a class is worth before anything is known. */
static void start_prices(const Relaxation *r, double scale, double *real)
{
    const Problem *p = r->problem;
    double total = 0;
    for (int c = 0; c < r->class_count; c++) {
        const int *low = relaxation_low(r, r->levels, c);
        double reached = 0;
        for (int end = 1; end <= p->layer_count; end++) reached += end - low[end];
        real[c] = reached / p->layer_count;
        total += real[c] * r->class_size[c];
    }
    for (int c = 0; c < r->class_count; c++) real[c] = total > 0 ? real[c] / total * scale : scale / p->device_count;
}

static void real_prices(const Master *m, const Prices *prices, double *real, double share_of_best)
{
    /* A basis with excess 0 may leave prices that do not sum to 1; in the feasibility form only their ratio counts. */
    for (int c = 0; c + 1 < m->rows; c++) {
        double current = m->dual[c + 1] < 0 ? -m->dual[c + 1] : 0;
        real[c] = share_of_best * (prices->price[c] / m->scale) + (1 - share_of_best) * current;
    }
}

/* Does a path use every class no more often than it has devices? Then it is a plan. */
static bool is_plan(Master *m, const Path *path)
{
    const Relaxation *r = m->relaxation;
    bool fits = true;
    for (int k = 0; k < path->stage_count; k++)
        fits &= ++m->used[path->class_used[k]] <= r->class_size[path->class_used[k]];
    for (int k = 0; k < path->stage_count; k++) m->used[path->class_used[k]] = 0;
    return fits;
}

/* The path of the last evaluation enters if it helps at the exact duals. */
static bool enter_last_path(Master *m, Prices *prices)
{
    relaxation_path(m->relaxation, &m->path);
    if (prices->plan && is_plan(m, &m->path)) {
        Path *plan = prices->plan;
        plan->stage_count = m->path.stage_count;
        memcpy(plan->class_used, m->path.class_used, (size_t)plan->stage_count * sizeof *plan->class_used);
        memcpy(plan->end, m->path.end, (size_t)plan->stage_count * sizeof *plan->end);
        prices->found = true;
        return false;
    }
    int column = add_path(m, &m->path);
    if (enter(m, column)) return true;
    m->column_count--;
    m->use_count -= m->path.stage_count;
    m->end_count -= m->path.stage_count;
    return false;
}

static void settle_slacks(Master *m)
{
    /* Columns 0 ... classes: slacks and the excess. A few pivots at most, as a path moves only the prices it uses. */
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

static void read_mixture(const Master *m, double *mixture)
{
    size_t cuts = (size_t)m->relaxation->problem->layer_count + 1;
    for (int i = 0; i < m->rows; i++) {
        const Column *column = &m->columns[m->basis[i]];
        if (column->kind != COLUMN_PATH || m->value[i] <= 0) continue;
        for (int k = 0, start = 0; k < column->count; start = m->ends[column->first + k++])
            mixture[(size_t)m->uses[column->first + k] * cuts + (size_t)start] += m->value[i];
    }
}

/* No prices have a bound above what the mixture at hand costs. */
static double mixture_cost(const Master *m)
{
    double cost = 0;
    for (int i = 0; i < m->rows; i++) cost += m->columns[m->basis[i]].cost * m->value[i];
    return cost * m->scale;
}

static bool enough(const Prices *prices, double target) { return prices->bound > target || prices->found; }

/* Rounds of pricing until the master is solved, the bound suffices, or the iterations are used up. */
static void generate(Master *m, Prices *prices, double target, int max_iterations, double *real)
{
    while (prices->iterations < max_iterations) {
        if (prices->deadline > 0 && prices->iterations % 16 < 2 && monotonic_seconds() > prices->deadline) return;
        settle_slacks(m);
        if (m->pivots > 300) {
            refactor(m);
            m->pivots = 0;
        }
        if (prices->tolerance > 0 && mixture_cost(m) - prices->bound < prices->tolerance) return;
        real_prices(m, prices, real, 0.7);
        evaluate(m, prices, real);
        if (enough(prices, target)) return;
        if (enter_last_path(m, prices)) continue;
        if (enough(prices, target)) return;
        real_prices(m, prices, real, 0);
        evaluate(m, prices, real);
        if (enough(prices, target)) return;
        if (!enter_last_path(m, prices)) {
            prices->solved = true;
            return;
        }
    }
}

/* With hundreds of classes the simplex takes thousands of pivots to get near; multiplicative updates (mirror ascent
 * over the prices that sum to 1) get near in hundreds of shortest paths. They follow an average of the paths so far, as
 * in the volume algorithm (Barahona and Anbil 2000): single paths say little about what a mixture would use.
 * Feasibility form only. */
static void ascend(Master *m, Prices *prices, double target, int max_iterations, double *real)
{
    enum { ROUNDS = 2000, PATIENCE = 24 };
    static const double FRESH = 0.04; /* weight of the latest path in the average that the prices follow */
    Relaxation *r = m->relaxation;
    double rate = 0.3, *use = memory_allocate((size_t)r->class_count * sizeof *use);
    double best = prices->total > 0 ? prices->path / prices->total : 0;
    for (int round = 0, idle = 0; round < ROUNDS && rate > 1e-4 && !enough(prices, target); round++) {
        if (prices->iterations >= max_iterations) break;
        if (prices->deadline > 0 && round % 16 == 0 && monotonic_seconds() > prices->deadline) break;
        relaxation_path(r, &m->path);
        double fresh = round > 0 ? FRESH : 1;
        for (int c = 0; c < r->class_count; c++) use[c] *= 1 - fresh;
        for (int k = 0; k < m->path.stage_count; k++) use[m->path.class_used[k]] += fresh;
        double total = 0;
        for (int c = 0; c < r->class_count; c++) {
            real[c] = (real[c] > 1e-9 ? real[c] : 1e-9) * exp(rate * (use[c] / r->class_size[c] - 1));
            total += real[c] * r->class_size[c];
        }
        for (int c = 0; c < r->class_count; c++) real[c] /= total;
        evaluate(m, prices, real);
        double now = prices->path / prices->total;
        idle = now > best + 1e-7 ? 0 : idle + 1;
        if (now > best) best = now;
        if (idle < PATIENCE) continue;
        idle = 0;
        rate *= 0.7; /* on from the best, in smaller steps */
        for (int c = 0; c < r->class_count; c++) real[c] = prices->price[c] / prices->total;
        evaluate(m, prices, real);
    }
    free(use);
}

/* No chain at all: any prices prove it. */
static bool is_impossible(Prices *prices, Relaxation *r, double cheapest)
{
    if (cheapest < RELAXATION_INFINITY / 2) return false;
    memset(prices->price, 0, (size_t)r->class_count * sizeof *prices->price);
    prices->bound = RELAXATION_INFINITY;
    prices->path = RELAXATION_INFINITY;
    prices->solved = true;
    return true;
}

static void set_first_prices(Master *m, Prices *prices, double target, int max_iterations, double *real)
{
    Relaxation *r = m->relaxation;
    bool started = false;
    for (int c = 0; c < r->class_count; c++) started |= prices->price[c] > 0;
    if (started)
        for (int c = 0; c < r->class_count; c++) real[c] = prices->price[c] / m->scale;
    else
        start_prices(r, r->costed ? 4 : 1, real);
    evaluate(m, prices, real);
    if (r->costed || r->class_count <= MANY_CLASSES) return;
    ascend(m, prices, target, max_iterations, real);
    for (int c = 0; c < r->class_count; c++) real[c] = prices->price[c] / m->scale;
    if (!enough(prices, target)) evaluate(m, prices, real);
}

static void solve_master(Master *m, Prices *prices, double target, int max_iterations, double *real)
{
    Relaxation *r = m->relaxation;
    m->penalty = r->costed ? 1e4 : 1;
    for (int c = 0; c < r->class_count; c++) add_column(m, (Column){.kind = COLUMN_SLACK, .index = c});
    add_column(m, (Column){.kind = COLUMN_EXCESS, .cost = m->penalty});
    if (prices->warm && prices->warm->rows == m->rows && prices->warm->scale == m->scale) {
        load_basis(m, prices->warm);
    } else {
        relaxation_path(r, &m->path);
        start_basis(m, add_path(m, &m->path));
    }
    generate(m, prices, target, max_iterations, real);
    if (prices->mixture) read_mixture(m, prices->mixture);
    if (prices->keep) *prices->keep = save_basis(m);
}

void prices_solve(Prices *prices, Relaxation *r, double target, int max_iterations)
{
    Arena arena = {0};
    Master m;
    master_create(&m, r, &arena);
    double *real = arena_new_array(&arena, double, (size_t)m.rows),
           *zero = arena_new_array(&arena, double, (size_t)m.rows);
    m.scale = prices->warm ? prices->warm->scale : PRICES_SCALE;
    prices->bound = -RELAXATION_INFINITY;
    prices->path = prices->total = 0;
    prices->iterations = 0;
    prices->solved = prices->found = false;
    if (prices->keep) *prices->keep = NULL;
    if (prices->mixture)
        memset(prices->mixture, 0,
               (size_t)r->class_count * (size_t)(r->problem->layer_count + 1) * sizeof *prices->mixture);
    double cheapest = relaxation_solve(r, zero);
    if (!is_impossible(prices, r, cheapest)) {
        if (r->costed && !prices->warm) m.scale = cheapest > 1000 ? cheapest / 16 : 64;
        set_first_prices(&m, prices, target, max_iterations, real);
        if (!enough(prices, target) && (r->costed || r->class_count <= TOO_MANY_CLASSES))
            solve_master(&m, prices, target, max_iterations, real);
    }
    master_free(&m);
    arena_free(&arena);
}
