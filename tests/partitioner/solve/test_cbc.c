/* The optimal allocator against a mixed-integer solver: CBC on the same instances, stated as a path through cuts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <coin/Cbc_C_Interface.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/solve/allocate.h"
#include "partitioner/solve/optimal.h"
#include "tests/common/limits.h"
#include "tests/partitioner/random_costs.h"

/* The program. Rows: a flow balance per (cut, region) before and after the links there; per device that it is used at
 * most once and that its stage keeps the period and its update keeps the longest. Columns: the period, the longest
 * update, then one per possible stage and one per link that keep the cap. */
typedef struct Program {
    const Problem *problem;
    int64_t cap;
    int rows, columns, entries, capacity, column_capacity;
    int *start, *row; /* column-wise */
    double *value, *cost;
} Program;

static void begin_column(Program *m, double cost)
{
    if (m->columns + 2 > m->column_capacity) {
        m->column_capacity = 2 * m->column_capacity + 64;
        m->start = memory_resize(m->start, (size_t)m->column_capacity, sizeof *m->start);
        m->cost = memory_resize(m->cost, (size_t)m->column_capacity, sizeof *m->cost);
    }
    m->start[m->columns] = m->entries;
    m->cost[m->columns++] = cost;
    m->start[m->columns] = m->entries;
}

static void add_entry(Program *m, int row, double value)
{
    if (value == 0) return;
    if (m->entries == m->capacity) {
        m->capacity = 2 * m->capacity + 256;
        m->row = memory_resize(m->row, (size_t)m->capacity, sizeof *m->row);
        m->value = memory_resize(m->value, (size_t)m->capacity, sizeof *m->value);
    }
    m->row[m->entries] = row;
    m->value[m->entries++] = value;
    m->start[m->columns] = m->entries;
}

/* Before the link at a cut, a plan is in the region of the stage that ends there; after it, in that of the next. */
static int balance_row(const Program *m, int cut, int region, bool after)
{
    return 2 * (cut * m->problem->region_count + region) + after;
}

static int device_row(const Program *m, int device, int which)
{
    return 2 * (m->problem->layer_count + 1) * m->problem->region_count + 3 * device + which;
}

static int link_row(const Program *m, int cut) { return device_row(m, m->problem->device_count, 0) + cut; }

static void add_stages(Program *m, bool step)
{
    const Problem *p = m->problem;
    for (int d = 0; d < p->device_count; d++)
        for (int start = 0, type = p->type_of[d]; start < p->layer_count; start++)
            for (int end = start + 1; end <= p->layer_count; end++) {
                double work = (double)problem_work(p, type, start, end);
                if (!problem_stage_fits(p, type, start, end, 1) || work > (double)m->cap) continue;
                begin_column(m, step ? work : 0);
                add_entry(m, balance_row(m, start, p->type_region[type], true), -1);
                add_entry(m, balance_row(m, end, p->type_region[type], false), 1);
                add_entry(m, device_row(m, d, 0), 1);
                add_entry(m, device_row(m, d, 1), work);
                add_entry(m, device_row(m, d, 2), (double)problem_update(p, type, start, end));
            }
}

static void add_links(Program *m, bool step)
{
    const Problem *p = m->problem;
    for (int cut = 0; cut <= p->layer_count; cut++)
        for (int from = 0; from < p->region_count; from++)
            for (int to = 0; to < p->region_count; to++) {
                bool inner = cut > 0 && cut < p->layer_count;
                if (inner ? problem_link_period(p, cut, from, to) > m->cap : from != to) continue;
                begin_column(m, step && inner ? (double)problem_link_sum(p, cut, from, to) : 0);
                add_entry(m, balance_row(m, cut, from, false), -1);
                add_entry(m, balance_row(m, cut, to, true), 1);
                if (inner) add_entry(m, link_row(m, cut), (double)problem_link_period(p, cut, from, to));
            }
}

static void set_bounds(const Program *m, double *low, double *high)
{
    const Problem *p = m->problem;
    for (int row = 0; row < m->rows; row++) low[row] = -1e30, high[row] = 0;
    for (int row = 0; row < device_row(m, 0, 0); row++) low[row] = 0;
    for (int d = 0; d < p->device_count; d++) high[device_row(m, d, 0)] = 1;
}

/* One unit enters at the first cut, in any region, and leaves at the last: the rows of both ends are summed up. */
static void open_ends(const Program *m, Cbc_Model *model)
{
    const Problem *p = m->problem;
    int regions = p->region_count, columns[2 * 64];
    double ones[2 * 64];
    for (int end = 0; end < 2; end++) {
        int count = 0;
        for (int c = 2; c < m->columns; c++)
            for (int k = m->start[c]; k < m->start[c + 1]; k++)
                for (int q = 0; q < regions && count < 128; q++)
                    if (m->row[k] == balance_row(m, end ? p->layer_count : 0, q, true) && m->value[k] == 1)
                        columns[count] = c, ones[count++] = 1;
        Cbc_addRow(model, "end", count, columns, ones, 'E', 1);
    }
}

/* -1: no plan. */
static int64_t solve_program(const Problem *p, bool step, int64_t cap)
{
    Program m = {.problem = p, .cap = cap};
    m.rows = link_row(&m, p->layer_count);
    begin_column(&m, step ? p->microbatches - 1 : 1);
    for (int d = 0; d < p->device_count; d++) add_entry(&m, device_row(&m, d, 1), -1);
    for (int cut = 1; cut < p->layer_count; cut++) add_entry(&m, link_row(&m, cut), -1);
    begin_column(&m, step);
    for (int d = 0; d < p->device_count; d++) add_entry(&m, device_row(&m, d, 2), -1);
    add_stages(&m, step);
    add_links(&m, step);
    double *low = memory_allocate((size_t)m.rows * sizeof *low), *high = memory_allocate((size_t)m.rows * sizeof *high);
    double *most = memory_allocate((size_t)m.columns * sizeof *most);
    set_bounds(&m, low, high);
    for (int q = 0; q < p->region_count; q++) { /* the two ends are open */
        low[balance_row(&m, 0, q, false)] = -1;
        high[balance_row(&m, p->layer_count, q, true)] = 1;
    }
    for (int c = 0; c < m.columns; c++) most[c] = c < 2 ? 1e30 : 1;
    Cbc_Model *model = Cbc_newModel();
    Cbc_loadProblem(model, m.columns, m.rows, m.start, m.row, m.value, NULL, most, m.cost, low, high);
    for (int c = 2; c < m.columns; c++) Cbc_setInteger(model, c);
    open_ends(&m, model);
    Cbc_setObjSense(model, 1);
    Cbc_setParameter(model, "log", "0");
    Cbc_setParameter(model, "ratioGap", "0");
    Cbc_solve(model);
    int64_t optimum = Cbc_isProvenOptimal(model) ? llround(Cbc_getObjValue(model)) : -1;
    if (optimum < 0) assert_true(Cbc_isProvenInfeasible(model));
    Cbc_deleteModel(model);
    void *all[] = {m.start, m.row, m.value, m.cost, low, high, most};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) free(all[k]);
    return optimum;
}

static void compare(const Costs *costs, bool step, int seed)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Problem problem;
    assert_true(problem_create(&problem, costs, step ? PLAN_OBJECTIVE_STEP : PLAN_OBJECTIVE_PERIOD, PLAN_GPIPE, 0,
                               &diagnostics));
    Allocation start = allocation_create(&problem.arena, &problem), best = allocation_create(&problem.arena, &problem);
    bool fits = allocate_heuristic(&problem, &start);
    OptimalResult result = optimal_solve(&problem, fits ? &start : NULL, 1e9, &best, NULL);
    /* Steps are minimised. For periods the program's relaxation says little, so it is asked whether there is a plan of
     * the optimal period, and one of a shorter. */
    int64_t optimum;
    if (step || result.infeasible)
        optimum = solve_program(&problem, step, INT64_MAX);
    else
        optimum =
            solve_program(&problem, false, result.value - 1) >= 0 ? 0 : solve_program(&problem, false, result.value);
    if (optimum < 0 ? !result.infeasible : result.value != optimum || result.bound != optimum)
        fail_msg("seed %d, %s: %lld, bound %lld, infeasible %d; CBC: %lld", seed, step ? "step" : "period",
                 (long long)result.value, (long long)result.bound, result.infeasible, (long long)optimum);
    problem_free(&problem);
}

static void medium_instances_match_cbc(void **state)
{
    (void)state;
    for (int seed = 0; seed < 2 * VARIANTS; seed += ADDRESS_SANITIZER ? 5 : 1) {
        Costs costs;
        random_costs_sized(&costs, seed % VARIANTS, 1000000 + (uint64_t)seed, 18, 8);
        if (seed >= VARIANTS) { /* the largest of anything makes a weak relaxation: here sums alone */
            costs.microbatches = 1;
            for (int l = 0; l < costs.layer_count; l++) costs.layers[l].update_s = 0;
        }
        compare(&costs, seed / VARIANTS, seed);
        costs_free(&costs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(medium_instances_match_cbc)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
