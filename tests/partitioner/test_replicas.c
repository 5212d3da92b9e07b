/* Plans with several pipelines: joined, printed, read back, and taken apart again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "partitioner/planner/planner.h"
#include "partitioner/replica_sums.h"
#include "partitioner/replicas.h"
#include "partitioner/schedule/replica_steps.h"
#include "tests/common/scratch.h"
#include "tests/partitioner/random_costs.h"

/* Any n first micro-batches of a step are divided within one of the replicas' shares, and each is dealt once. */
static void first_microbatches_are_dealt_in_proportion(void **state)
{
    (void)state;
    static const int cases[][3] = {{1, 1, 1}, {5, 3, 1}, {7, 1, 1}, {2, 9, 4}, {1, 2, 30}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int total = cases[c][0] + cases[c][1] + cases[c][2], owner[64];
        for (int m = 0; m < total; m++) owner[m] = -1;
        for (int r = 0; r < 3; r++) {
            uint32_t dealt[64];
            plan_deal(cases[c], 3, r, dealt);
            for (int m = 0; m < cases[c][r]; m++) {
                assert_true(dealt[m] < (uint32_t)total && (m == 0 || dealt[m] > dealt[m - 1]));
                assert_int_equal(owner[dealt[m]], -1);
                owner[dealt[m]] = r;
            }
        }
        int given[3] = {0};
        for (int m = 0; m < total; m++) {
            given[owner[m]]++;
            for (int r = 0; r < 3; r++) {
                double share = (double)(m + 1) * cases[c][r] / total;
                assert_true(given[r] > share - 1.5 && given[r] < share + 1.5);
            }
        }
    }
}

static Plan make_part(const Costs *costs, const char *const *without, int count, int microbatches)
{
    Plan plan;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    request.microbatches = microbatches;
    request.without = without;
    request.without_count = count;
    assert_true(plan_make(&plan, costs, &request, &diagnostics));
    return plan;
}

static void assert_same_text(const Plan *a, const Plan *b)
{
    Buffer first = {0}, second = {0};
    plan_print(a, &first);
    plan_print(b, &second);
    assert_string_equal(buffer_text(&first), buffer_text(&second));
    buffer_free(&first);
    buffer_free(&second);
}

/* Of the first five devices, two unequal pipelines with 5 and 3 micro-batches. */
static void make_two(const Costs *costs, Plan parts[2])
{
    const DeviceCost *d = costs->devices;
    const char *const first[] = {d[0].name, d[3].name}, *const second[] = {d[1].name, d[2].name, d[4].name};
    parts[0] = make_part(costs, first, 2, 5);
    parts[1] = make_part(costs, second, 3, 3);
}

static void join_two(Plan *plan, const Costs *costs, int64_t rows)
{
    Plan parts[2];
    make_two(costs, parts);
    plan_join(plan, parts, 2, rows, costs);
}

static void joined_plans_read_back_with_their_parts(void **state)
{
    (void)state;
    int tried = 0;
    for (uint64_t seed = 1; tried < 20; seed++) {
        Costs costs;
        random_costs(&costs, WITH_LINKS | WITH_UPDATE | WITH_TYPES, seed);
        if (costs.device_count < 5) {
            costs_free(&costs);
            continue;
        }
        tried++;
        for (int l = 0; l < costs.layer_count; l++) costs.layers[l].gradient_bytes = 1000 * (l + 1);
        Plan alone[2], plan, again;
        make_two(&costs, alone);
        join_two(&plan, &costs, 64);
        assert_int_equal(plan.microbatches, 8);
        assert_int_equal(plan.replicas[0].rows, 40);
        assert_int_equal(plan.replicas[1].rows, 24);
        alone[0].replicas[0].rows = 40;
        alone[1].replicas[0].rows = 24;
        FREED_WITH(buffer_free) Buffer text = {0};
        Diagnostics diagnostics = {0};
        plan_print(&plan, &text);
        Scratch file = scratch_text(buffer_text(&text));
        if (!plan_read(&again, file.path, &diagnostics)) {
            diagnostics_print(&diagnostics, stderr);
            fail_msg("the plan cannot be read back");
        }
        unlink(file.path);
        assert_same_text(&plan, &again);
        for (int r = 0; r < 2; r++) {
            assert_same_text(plan_pipeline(&again, r), &alone[r]);
            plan_free(&alone[r]);
        }
        plan_free(&plan);
        plan_free(&again);
        costs_free(&costs);
    }
}

/* The next permutation in lexicographic order; false: it was the last. */
static bool permute(int *order, int count)
{
    int i = count - 2, j = count - 1;
    while (i >= 0 && order[i] > order[i + 1]) i--;
    if (i < 0) return false;
    while (order[j] < order[i]) j--;
    for (int k = order[i], first = i + 1, last = count - 1;;) {
        if (j >= 0) order[i] = order[j], order[j] = k, j = -1;
        if (first >= last) return true;
        k = order[first], order[first++] = order[last], order[last--] = k;
    }
}

static int64_t simulated(Plan *plan, const int *order, const Costs *costs, bool choose)
{
    Diagnostics diagnostics = {0};
    plan->sum_order = order;
    assert_true(replica_steps_overlap(plan, costs, choose, &diagnostics));
    return plan->simulated_step_ns;
}

static int64_t least_of_all_orders(Plan *plan, const Costs *costs)
{
    int order[6];
    int64_t least = INT64_MAX;
    for (int l = 0; l < plan->layer_count; l++) order[l] = l;
    do {
        int64_t step = simulated(plan, order, costs, false);
        if (step < least) least = step;
    } while (permute(order, plan->layer_count));
    return least;
}

/* Plans without a member "sum_order" sum the last layer first, so only a faster order is kept. */
static void no_order_of_sums_is_faster_than_the_chosen_one(void **state)
{
    (void)state;
    int chosen = 0;
    for (uint64_t seed = 1; seed < 400; seed++) {
        Costs costs;
        random_costs(&costs, WITH_LINKS | WITH_TYPES, seed);
        if (costs.device_count >= 5 && costs.layer_count <= 6) {
            Plan plan;
            random_state = seed;
            for (int l = 0; l < costs.layer_count; l++) costs.layers[l].gradient_bytes = 1 + draw(30);
            join_two(&plan, &costs, -1);
            int64_t last_first = simulated(&plan, NULL, &costs, false), step = simulated(&plan, NULL, &costs, true);
            chosen += plan.sum_order != NULL;
            assert_true(plan.sum_order ? step < last_first : step == last_first);
            assert_int_equal(step, least_of_all_orders(&plan, &costs));
            plan_free(&plan);
        }
        costs_free(&costs);
    }
    assert_true(chosen >= 8);
}

/* An order that lists another layer twice is refused, so ranks never wait for each other in circles. */
static void orders_of_sums_are_read_back_and_list_each_layer_once(void **state)
{
    (void)state;
    static const struct {
        int order[3];
        bool whole;
    } cases[] = {{{0, 1, 2}, true}, {{1, 2, 0}, true}, {{2, 0, 2}, false}, {{3, 1, 0}, false}, {{-1, 1, 0}, false}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        Costs costs;
        Plan plan, again;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        FREED_WITH(buffer_free) Buffer text = {0};
        random_costs_sized(&costs, WITH_LINKS, 77, 6, 6);
        costs.layer_count = 3;
        costs.device_count = 5;
        costs.devices = arena_new_array(&costs.arena, DeviceCost, 5);
        for (int d = 0; d < 5; d++)
            costs.devices[d] = (DeviceCost){arena_format(&costs.arena, "d%d", d), 1 + d, COSTS_NO_LIMIT, .region = 0};
        join_two(&plan, &costs, -1);
        plan.sum_order = cases[c].order;
        plan_print(&plan, &text);
        Scratch file = scratch_text(buffer_text(&text));
        bool read = plan_read(&again, file.path, &diagnostics);
        assert_int_equal(read, cases[c].whole);
        if (read) assert_same_text(&plan, &again);
        if (read) plan_free(&again);
        unlink(file.path);
        plan_free(&plan);
        costs_free(&costs);
    }
}

/* Over the better link to another group, at the slower of its directions: with two replicas half of what a rank holds
 * for the terms and as much for the sums, with three two thirds each. */
static void pipelines_are_planned_with_what_sums_take(void **state)
{
    (void)state;
    DeviceCost devices[] = {{.region = 0}, {.region = 1}, {.region = 2}, {.region = 0}};
    double bandwidth[] = {1e3, 100, 200, 50, 1e3, 1e3, 400, 1e3, 1e3};
    int group_of[] = {0, 1, 1, -1}, microbatches[] = {3, 1, 4};
    const Costs asked = {.device_count = 4, .devices = devices, .region_count = 3, .bandwidth_Bps = bandwidth};
    FREED_WITH(arena_free) Arena arena = {0};
    for (int count = 2; count <= 3; count++) {
        Costs costs = replica_costs(&asked, group_of, microbatches, count, 0, CODECS_LOSSLESS, &arena);
        assert_float_equal(costs.devices[0].sum_s, 2.0 * (count - 1) / count / 200, 1e-15);
        for (int d = 1; d < 4; d++) assert_true(costs.devices[d].sum_s == 0);
    }
    Costs costs = replica_costs(&asked, group_of, microbatches, 2, 1, 1u << CODEC_BF16, &arena);
    assert_float_equal(costs.devices[1].sum_s, 0.5 / 50, 1e-15);
    assert_float_equal(costs.devices[2].sum_s, 0.5 / 200, 1e-15);
    assert_true(devices[0].sum_s == 0 && devices[1].sum_s == 0);
}

/* What a replica sends of a table is what its own micro-batches read, by Zipf's law; of three or more, also what any
 * reads. Brute force over all ranks of the law. */
static void tables_are_summed_by_the_rows_that_occur(void **state)
{
    (void)state;
    enum { ROWS = 5000, READS = 300, MICROBATCHES = 12, MOST = 5 };
    double all = 0, own = 0, any = 0;
    for (int i = 1; i <= ROWS; i++) all += 1.0 / i;
    for (int i = 1; i <= ROWS; i++) {
        own += 1 - pow(1 - 1 / (i * all), READS * MOST);
        any += 1 - pow(1 - 1 / (i * all), READS * MICROBATCHES);
    }
    LayerCost layer = {.gradient_bytes = 70 + ROWS * 8, .table_rows = ROWS, .table_row_bytes = 8, .table_reads = READS};
    const unsigned lossy = 1u << CODEC_Q8;
    double two = (double)replica_sums_bytes(&layer, 2, MICROBATCHES, MOST, CODECS_LOSSLESS) - 70;
    double more = (double)replica_sums_bytes(&layer, 3, MICROBATCHES, MOST, CODECS_LOSSLESS) - 70;
    assert_true(fabs(two / 8 - own) < 2 && fabs(more / 8 - (own + any) / 2) < 2);
    assert_int_equal(replica_sums_bytes(&layer, 3, MICROBATCHES, MOST, lossy), layer.gradient_bytes);
    layer.table_reads = INT32_MAX;
    assert_int_equal(replica_sums_bytes(&layer, 2, MICROBATCHES, MOST, CODECS_LOSSLESS), layer.gradient_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_microbatches_are_dealt_in_proportion),
        cmocka_unit_test(joined_plans_read_back_with_their_parts),
        cmocka_unit_test(no_order_of_sums_is_faster_than_the_chosen_one),
        cmocka_unit_test(orders_of_sums_are_read_back_and_list_each_layer_once),
        cmocka_unit_test(pipelines_are_planned_with_what_sums_take),
        cmocka_unit_test(tables_are_summed_by_the_rows_that_occur),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
