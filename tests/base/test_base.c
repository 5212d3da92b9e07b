#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/child.h"
#include "base/diagnostics.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/parts.h"
#include "tests/common/limits.h"

static void arena_gives_zeroed_separate_memory(void **state)
{
    (void)state;
    FREED_WITH(arena_free) Arena arena = {0};
    char *small = arena_allocate(&arena, 3);
    char *large = arena_allocate(&arena, 1 << 20);
    char *next = arena_allocate(&arena, 3);
    for (int i = 0; i < 1 << 20; i++) assert_int_equal(large[i], 0);
    memset(large, 1, 1 << 20);
    assert_int_equal(small[0] + next[0], 0);
    if (!ADDRESS_SANITIZER)                 /* which gets blocks of their own for small objects, too */
        assert_int_equal(next - small, 16); /* a large object does not waste the rest of the block before it */
    assert_string_equal(arena_format(&arena, "%d-%s", 7, "x"), "7-x");
}

static void diagnostics_count_and_keep_the_first_exit_code(void **state)
{
    (void)state;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    diagnostics_warning(&diagnostics, PLACE_NONE, NULL, "odd");
    assert_false(diagnostics_error(&diagnostics, EXIT_UNSUPPORTED_OPERATOR, PLACE_FILE("m.onnx"), "h", "no %s", "Op"));
    diagnostics_error(&diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL, "second");
    assert_int_equal(diagnostics.errors, 2);
    assert_int_equal(diagnostics.warnings, 1);
    assert_int_equal(diagnostics.exit_code, EXIT_UNSUPPORTED_OPERATOR);
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    diagnostics_print(&diagnostics, stream);
    fclose(stream);
    assert_string_equal(text, "skycc: warning: odd\nm.onnx: error: no Op\n    hint: h\nskycc: error: second\n");
    free(text);
}

static void shapes_refuse_overflow(void **state)
{
    (void)state;
    Shape huge = {3, {INT64_MAX / 2, 3, 1}}, negative = {1, {-1}}, scalar = {0, {0}}, empty = {2, {0, 5}};
    assert_int_equal(shape_elements(&huge), -1);
    assert_int_equal(shape_elements(&negative), -1);
    assert_int_equal(shape_elements(&scalar), 1);
    assert_int_equal(shape_elements(&empty), 0);
}

static void sixteen_bit_floats_round_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        double value;
        uint16_t half, bfloat;
    } cases[] = {{0.0, 0x0000, 0x0000},           {-0.0, 0x8000, 0x8000},           {1.0, 0x3c00, 0x3f80},
                 {65504.0, 0x7bff, 0x4780},       {65519.99, 0x7bff, 0x4780},       {65520.0, 0x7c00, 0x4780},
                 {0x1p-24, 0x0001, 0x3380},       {0x1p-25, 0x0000, 0x3300},        {0x1.8p-25, 0x0001, 0x3340},
                 {1.0 + 0x1p-11, 0x3c00, 0x3f80}, {1.0 + 0x1.8p-10, 0x3c02, 0x3f80}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t half, bfloat;
        element_store_double(DTYPE_F16, &half, 0, cases[i].value);
        element_store_double(DTYPE_BF16, &bfloat, 0, cases[i].value);
        assert_int_equal(half, cases[i].half);
        assert_int_equal(bfloat, cases[i].bfloat);
    }
    for (uint32_t bits = 0; bits < 0x10000; bits++) { /* every half survives the round trip */
        uint16_t half = (uint16_t)bits, back;
        double value = element_as_double(DTYPE_F16, &half, 0);
        element_store_double(DTYPE_F16, &back, 0, value);
        if (!isnan(value)) assert_int_equal(half, back);
    }
}

static void parts_stand_between_separators(void **state)
{
    (void)state;
    assert_true(text_has_part("layer.0.query", "layer", "."));
    assert_true(text_has_part("layer.0.query", "0.query", "."));
    assert_true(text_has_part("subquery.query", "query", "."));
    assert_false(text_has_part("layer.0.query", "quer", "."));
    assert_false(text_has_part("layer.0.query", "ayer", "."));
    assert_false(text_has_part("layer", "layer.0", "."));
    assert_false(text_has_part("layer. ", "", ".")); /* once read beyond the end */
    assert_false(text_has_part("", "", "."));
}

static void hashes_separate_and_chain(void **state)
{
    (void)state;
    char a[33], b[33];
    hash_format(hash_extend(hash_bytes("ab", 2), "c", 1), a);
    hash_format(hash_extend(hash_bytes("a", 1), "bc", 2), b);
    assert_int_equal(strlen(a), 32);
    assert_string_not_equal(a, b);
    HashStream *stream = hash_stream();
    hash_stream_add(stream, "a", 1);
    hash_stream_add(stream, "bc", 2);
    assert_true(hash_equal(hash_stream_end(stream), hash_bytes("abc", 3)));
}

static void buffers_grow_and_align(void **state)
{
    (void)state;
    FREED_WITH(buffer_free) Buffer buffer = {0};
    assert_string_equal(buffer_text(&buffer), "");
    for (int i = 0; i < 1000; i++) buffer_print(&buffer, "%d,", i);
    assert_int_equal(strncmp(buffer_text(&buffer), "0,1,2,", 6), 0);
    buffer_align(&buffer, 64);
    assert_int_equal(buffer.size % 64, 0);
}

static void take(int number) { (void)number; }

/* A signal that reaches a child before its exec is not taken by a handler that only this process has. */
static void children_have_no_handlers(void **state)
{
    (void)state;
    signal(SIGTERM, take);
    signal(SIGINT, SIG_IGN);
    int status;
    pid_t child = child_fork();
    if (child == 0) {
        raise(SIGINT);
        raise(SIGTERM);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    raise(SIGTERM);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
}

static const char *freed[3];
static int freed_count;

static void note_freed(const char **name) { freed[freed_count++] = *name; }

static int leave(bool early)
{
    FREED_WITH(note_freed) const char *first = "first";
    if (early) return freed_count + (int)strlen(first);
    FREED_WITH(note_freed) const char *second = "second";
    FREED char *text = strdup(second);
    return freed_count + (int)strlen(text);
}

/* Whatever way a block is left, and after what is returned was computed. */
static void blocks_free_what_they_declare(void **state)
{
    (void)state;
    assert_int_equal(leave(true), 5);
    assert_int_equal(freed_count, 1);
    assert_int_equal(leave(false), 1 + 6);
    assert_int_equal(freed_count, 3);
    assert_string_equal(freed[1], "second");
    assert_string_equal(freed[2], "first");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_free_what_they_declare),
        cmocka_unit_test(arena_gives_zeroed_separate_memory),
        cmocka_unit_test(diagnostics_count_and_keep_the_first_exit_code),
        cmocka_unit_test(shapes_refuse_overflow),
        cmocka_unit_test(sixteen_bit_floats_round_to_nearest_even),
        cmocka_unit_test(parts_stand_between_separators),
        cmocka_unit_test(hashes_separate_and_chain),
        cmocka_unit_test(buffers_grow_and_align),
        cmocka_unit_test(children_have_no_handlers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
