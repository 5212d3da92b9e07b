/* What measured times are made of: several passes, what other layers bring, and how many other processors are busy. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "profiler/probe/measure.h"

static MeasureCompany company_of(ClusterDevice *devices, int count, int threads, int processors)
{
    const Cluster cluster = {.devices = devices, .device_count = count};
    return measure_company(&cluster, threads, processors);
}

static void others_on_the_host_keep_company(void **state)
{
    (void)state;
    ClusterDevice demo[] = {{.host = "h", .threads = 1, .slowdown = 2},
                            {.host = "h", .threads = 1, .slowdown = 4},
                            {.host = "h", .threads = 1, .slowdown = 4},
                            {.host = "other", .threads = 1, .slowdown = 1}};
    MeasureCompany company = company_of(demo, 3, 1, 8); /* two thirds of 1 busy processor */
    assert_int_equal(company.count, 1);
    assert_true(fabs(company.share - 2.0 / 3) < 1e-9);
    company = company_of(demo, 4, 1, 8); /* the fourth is alone */
    assert_int_equal(company.count, 1);
    assert_true(fabs(company.share - 0.5) < 1e-9);
    for (int d = 0; d < 4; d++) demo[d] = (ClusterDevice){.host = "h", .threads = d == 3 ? 2 : 1, .slowdown = 1};
    company = company_of(demo, 4, 1, 2); /* no more than there are processors */
    assert_true(company.count == 1 && company.share == 1);
    company = company_of(demo, 4, 2, 8); /* of the one with two threads */
    assert_true(company.count == 3 && company.share == 1);
    assert_int_equal(company_of(demo, 4, 2, 2).count, 0);
    assert_int_equal(company_of(demo, 1, 1, 8).count, 0);
    demo[1].opencl_device = demo[2].opencl_device = demo[3].opencl_device = "*";
    assert_true(company_of(demo, 4, 1, 8).share == 0);
}

static void a_table_brings_the_rows_that_are_looked_up(void **state)
{
    (void)state;
    const SkyParameter parameters[] = {
        {.value = {.rank = 2, .dim = {1000, 8}, .bytes = 32000}, .reads = 10},
        {.value = {.rank = 2, .dim = {8, 8}, .bytes = 256}},
        {.value = {.rank = 1, .dim = {8}, .bytes = 32}, .frozen = 1},
    };
    const SkyStage stage = {.parameters = parameters,
                            .parameter_count = 3,
                            .space_bytes = {[SKY_SPACE_SLOT] = 100, [SKY_SPACE_STATE] = 130000}};
    LayerTraffic traffic = {0};
    layer_traffic_add(&traffic, &stage);
    assert_int_equal(traffic.microbatch_bytes, 100 + 2 * 10 * 32 + 2 * 256 + 32); /* values and gradients */
    layer_traffic_add(&traffic, &stage);
    assert_int_equal(traffic.microbatch_bytes, 2 * (100 + 2 * 10 * 32 + 2 * 256 + 32));
    assert_int_equal(traffic.update_bytes, 2 * 130000);
}

static void passes_are_averaged_until_they_agree(void **state)
{
    (void)state;
    FREED_WITH(arena_free) Arena arena = {0};
    MeasurePasses made = {0};
    const double seconds[] = {1, 1.2, 0.8, 1, 1.2, 0.8};
    for (int p = 0; p < 6; p++) {
        KernelTime times[] = {{.kernel = {1, 0}, .seconds = seconds[p]}, {.kernel = {2, 0}, .seconds = 3 * seconds[p]}};
        measure_passes_add(&made, &arena, &(MachineProfile){.kernels = times, .kernel_count = 2});
        assert_false(measure_passes_are_enough(&made));
    }
    assert_true(fabs(made.mean.kernels[0].seconds - 1) < 1e-9 && fabs(made.mean.kernels[1].seconds - 3) < 1e-9);
    assert_true(fabs(measure_passes_spread(&made) - sqrt(0.16 / 5)) < 1e-9);
    made = (MeasurePasses){0};
    for (int p = 0; p < 3; p++) {
        assert_false(measure_passes_are_enough(&made));
        KernelTime time = {.kernel = {1, 0}, .seconds = 1 + 0.001 * p};
        measure_passes_add(&made, &arena, &(MachineProfile){.kernels = &time, .kernel_count = 1});
    }
    assert_true(measure_passes_are_enough(&made));
    MachineProfile known = {0};
    machine_profile_merge(&known, &arena, &made.mean);
    KernelTime other[] = {{.kernel = {1, 0}, .seconds = 7}, {.kernel = {0, 0}, .seconds = 8}};
    machine_profile_merge(&known, &arena, &(MachineProfile){.kernels = other, .kernel_count = 2});
    assert_int_equal(known.kernel_count, 2); /* what is known stays */
    assert_true(fabs(machine_profile_seconds(&known, (Hash){1, 0}) - 1.001) < 1e-9);
    assert_true(machine_profile_seconds(&known, (Hash){0, 0}) == 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_on_the_host_keep_company),
        cmocka_unit_test(a_table_brings_the_rows_that_are_looked_up),
        cmocka_unit_test(passes_are_averaged_until_they_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
