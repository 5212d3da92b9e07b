/* What a private site sends of an update: the same whenever it is asked, and nothing of what is not finite. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "federation/member/protection.h"
#include "tests/common/scratch.h"

enum { COUNT = 5000 };

static const Federation federation = {.least = 3, .privacy = {.clip = 1, .noise = 1.1, .delta = 1e-5}};

static NoiseSeed open_seed(const char *path)
{
    Diagnostics diagnostics = {0};
    NoiseSeed seed;
    assert_true(noise_seed_open(&seed, false, path, &diagnostics));
    return seed;
}

/* What is sent of 0, 1/COUNT, 2/COUNT ..., the first being `first`. */
static void send(float *sent, const char *seed_path, int64_t round, float first)
{
    NoiseSeed seed = open_seed(seed_path);
    for (int i = 0; i < COUNT; i++) sent[i] = i ? (float)i / COUNT : first;
    assert_true(update_protect(sent, COUNT, &federation, &seed, round));
}

static int same(const float *one, const float *other)
{
    int count = 0;
    for (int i = 0; i < COUNT; i++) count += one[i] == other[i];
    return count;
}

static void a_site_that_is_started_again_sends_the_same(void **state)
{
    static float sent[COUNT], again[COUNT];
    struct stat status;
    (void)state;
    send(sent, "seed", 4, 0);
    assert_int_equal(stat("seed", &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    send(again, "seed", 4, 0);
    assert_memory_equal(sent, again, sizeof sent);
    send(again, "seed", 5, 0);
    assert_true(same(sent, again) < COUNT / 100);
    send(again, "seed", 4, 1e-3F);
    assert_true(same(sent, again) < COUNT / 100);
    send(again, "another seed", 4, 0);
    assert_true(same(sent, again) < COUNT / 100);
}

static void what_is_not_finite_is_refused(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    NoiseSeed seed = open_seed("seed");
    for (size_t i = 0; i < 3; i++) {
        float update[] = {1, bad[i], 3};
        assert_false(update_protect(update, 3, &federation, &seed, 0));
        assert_true(update[0] == 1 && update[2] == 3);
    }
}

static void a_seed_that_is_damaged_or_lost_is_refused(void **state)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    NoiseSeed seed;
    (void)state;
    write_bytes("short", "abc", 3);
    assert_false(noise_seed_open(&seed, false, "short", &diagnostics));
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
    assert_false(noise_seed_open(&seed, true, "lost", &diagnostics));
    assert_int_not_equal(access("lost", F_OK), 0);
}

/* A call of the system for every value took seconds for as many as these. */
static void noise_is_drawn_in_bulk(void **state)
{
    enum { MANY = 4000000 };
    (void)state;
    NoiseSeed seed = open_seed("seed");
    FREED float *update = memory_allocate(MANY * sizeof *update);
    double start = process_seconds();
    assert_true(update_protect(update, MANY, &federation, &seed, 0));
    print_message("%.2f s of processor time\n", process_seconds() - start);
    assert_true(process_seconds() - start < 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_site_that_is_started_again_sends_the_same),
        cmocka_unit_test(what_is_not_finite_is_refused),
        cmocka_unit_test(a_seed_that_is_damaged_or_lost_is_refused),
        cmocka_unit_test(noise_is_drawn_in_bulk),
    };
    return cmocka_run_group_tests(tests, scratch_folder_enter, scratch_folder_leave);
}
