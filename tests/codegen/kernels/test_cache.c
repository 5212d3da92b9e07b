/* The cache of compiled objects keeps to its size, whoever else uses it. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "codegen/kernels/cache.h"
#include "tests/common/command.h"
#include "tests/common/scratch.h"

enum { OBJECT = 4000, STORED = 4096 }; /* a block holds an object and its hash */

static Cache cache;

static int set_up(void **state)
{
    static const Target target = {.triple = "test"};
    Diagnostics diagnostics = {0};
    if (scratch_folder_enter(state) != 0) return -1;
    cache_open(&cache, ".", &target, &diagnostics);
    return diagnostics.warnings;
}

static Hash name_of(int number) { return hash_bytes(&number, sizeof number); }

static void store(int number)
{
    char content[OBJECT];
    memset(content, number, sizeof content);
    cache_store(&cache, name_of(number), &(Buffer){.bytes = content, .size = sizeof content});
}

/* Whether it is there; then it is whole. */
static bool load(int number)
{
    FREED_WITH(buffer_free) Buffer object = {0};
    bool found = cache_load(&cache, name_of(number), &object);
    if (found) {
        assert_int_equal(object.size, OBJECT);
        for (size_t i = 0; i < object.size; i++) assert_int_equal((unsigned char)object.bytes[i], number & 255);
    }
    return found;
}

/* Sets when every file was used last: `seconds` ago. */
static void age_all(int seconds)
{
    DIR *entries = opendir(".");
    struct timespec times[2] = {{.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};
    for (struct dirent *entry; (entry = readdir(entries));)
        if (entry->d_name[0] != '.') utimensat(dirfd(entries), entry->d_name, times, 0);
    closedir(entries);
}

static int64_t total_bytes(void)
{
    int64_t bytes = 0;
    DIR *entries = opendir(".");
    for (struct dirent *entry; (entry = readdir(entries));) {
        struct stat status;
        if (strstr(entry->d_name, ".o") && fstatat(dirfd(entries), entry->d_name, &status, 0) == 0)
            bytes += 512 * (int64_t)status.st_blocks;
    }
    closedir(entries);
    return bytes;
}

static bool exists(const char *name) { return access(name, F_OK) == 0; }

static void the_least_recently_used_go(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) store(i);
    age_all(500);
    for (int i = 10; i < 20; i++) store(i);
    age_all(100);
    for (int i = 0; i < 10; i += 2) assert_true(load(i)); /* used now */
    cache_prune(&cache, 20 * STORED);
    for (int i = 0; i < 20; i++) assert_true(load(i));
    age_all(100);
    for (int i = 0; i < 10; i += 2) assert_true(load(i));
    cache_prune(&cache, 10 * STORED); /* leaves eight */
    int left = 0;
    for (int i = 0; i < 20; i++) {
        bool found = load(i);
        left += found;
        if (i < 10 && i % 2 == 0) assert_true(found);
    }
    assert_int_equal(left, 8);
}

static void without_a_limit_all_stay(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) store(i);
    cache_prune(&cache, 0);
    for (int i = 0; i < 20; i++) assert_true(load(i));
}

static void only_own_files_go(void **state)
{
    (void)state;
    const char *const others[] = {"notes.o", "0123456789abcdef0123456789abcdef.txt", "README",
                                  "0123456789abcdef0123456789abcde.o", "0123456789ABCDEF0123456789abcdef.o"};
    const char *left = "0123456789abcdef0123456789abcdef.o.4711";
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) write_text(others[i], "text");
    write_text(left, "text");
    store(1);
    cache_prune(&cache, STORED);
    assert_true(exists(left)); /* may be being written */
    age_all(4000);
    cache_prune(&cache, 1);
    assert_false(exists(left));
    assert_false(load(1));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_true(exists(others[i]));
}

/* As if somebody had put another kernel's object, whole as it is, in its place. */
static void an_object_under_another_name_is_none(void **state)
{
    (void)state;
    store(1);
    must_run("mv *.o kept");
    store(2);
    must_run("mv kept *.o");
    assert_false(load(2));
    store(2);
    assert_true(load(2));
}

static void a_directory_that_others_may_write_is_not_used(void **state)
{
    (void)state;
    static const Target target = {.triple = "test"};
    store(1);
    Diagnostics diagnostics = {0};
    assert_int_equal(chmod(".", 0770), 0);
    cache_open(&cache, ".", &target, &diagnostics);
    assert_false(load(1));
    assert_int_equal(diagnostics.warnings, 1);
    assert_non_null(strstr(diagnostics.first->message, "others may write into it"));
    diagnostics_free(&diagnostics);
    assert_int_equal(chmod(".", 0755), 0);
    cache_open(&cache, ".", &target, &diagnostics);
    assert_true(load(1));
    assert_int_equal(diagnostics.warnings, 0);
    diagnostics_free(&diagnostics);
}

static void compilers_may_run_side_by_side(void **state)
{
    (void)state;
    enum { PROCESSES = 4, ROUNDS = 400, NAMES = 30, LIMIT = 10 * STORED };
    for (int p = 0; p < PROCESSES; p++) {
        if (fork() > 0) continue;
        uint64_t random = (uint64_t)p;
        for (int round = 0; round < ROUNDS; round++) {
            int number = (int)random_draw_below(&random, NAMES);
            if (!load(number)) store(number);
            if (round % 8 == 0) cache_prune(&cache, LIMIT);
        }
        _exit(0);
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    cache_prune(&cache, LIMIT);
    assert_true(total_bytes() <= LIMIT);
    assert_true(total_bytes() > 0);
}

static void the_limit_is_the_users(void **state)
{
    (void)state;
    int64_t bytes;
    unsetenv("SKYCC_CACHE_SIZE");
    assert_true(cache_default_limit(&bytes));
    assert_int_equal(bytes, 256 << 20);
    setenv("SKYCC_CACHE_SIZE", "3MiB", true);
    assert_true(cache_default_limit(&bytes));
    assert_int_equal(bytes, 3 << 20);
    setenv("SKYCC_CACHE_SIZE", "much", true);
    assert_false(cache_default_limit(&bytes));
    assert_int_equal(bytes, 256 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_least_recently_used_go, set_up, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(without_a_limit_all_stay, set_up, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(only_own_files_go, set_up, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(an_object_under_another_name_is_none, set_up, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(a_directory_that_others_may_write_is_not_used, set_up, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(compilers_may_run_side_by_side, set_up, scratch_folder_leave),
        cmocka_unit_test(the_limit_is_the_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
