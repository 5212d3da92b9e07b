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
    Diagnostics diagnostics = {0};
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    request.microbatches = microbatches;
    request.without = without;
    request.without_count = count;
    assert_true(plan_make(&plan, costs, &request, &diagnostics));
    diagnostics_free(&diagnostics);
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
        const char *names[5];
        for (int d = 0; d < 5; d++) names[d] = costs.devices[d].name;
        for (int l = 0; l < costs.layer_count; l++) costs.layers[l].gradient_bytes = 1000 * (l + 1);
        const char *const first[] = {names[0], names[3]}, *const second[] = {names[1], names[2], names[4]};
        Plan alone[2] = {make_part(&costs, first, 2, 5), make_part(&costs, second, 3, 3)};
        Plan parts[2] = {make_part(&costs, first, 2, 5), make_part(&costs, second, 3, 3)}, plan, again;
        plan_join(&plan, parts, 2, 64, &costs);
        assert_int_equal(plan.microbatches, 8);
        assert_int_equal(plan.replicas[0].rows, 40);
        assert_int_equal(plan.replicas[1].rows, 24);
        alone[0].replicas[0].rows = 40;
        alone[1].replicas[0].rows = 24;
        Buffer text = {0};
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
        buffer_free(&text);
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
    Arena arena = {0};
    for (int count = 2; count <= 3; count++) {
        Costs costs = replica_costs(&asked, group_of, microbatches, count, 0, CODECS_LOSSLESS, &arena);
        assert_float_equal(costs.devices[0].sum_s, 2.0 * (count - 1) / count / 200, 1e-15);
        for (int d = 1; d < 4; d++) assert_true(costs.devices[d].sum_s == 0);
    }
    Costs costs = replica_costs(&asked, group_of, microbatches, 2, 1, 1u << CODEC_BF16, &arena);
    assert_float_equal(costs.devices[1].sum_s, 0.5 / 50, 1e-15);
    assert_float_equal(costs.devices[2].sum_s, 0.5 / 200, 1e-15);
    assert_true(devices[0].sum_s == 0 && devices[1].sum_s == 0);
    arena_free(&arena);
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
        cmocka_unit_test(pipelines_are_planned_with_what_sums_take),
        cmocka_unit_test(tables_are_summed_by_the_rows_that_occur),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
