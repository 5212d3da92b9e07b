#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/diagnostics.h"
#include "base/text.h"
#include "tests/common/scratch.h"

static void expect_escaped(const char *text, const char *escaped)
{
    FREED_WITH(buffer_free) Buffer buffer = {0};
    text_append(&buffer, text, strlen(text));
    assert_string_equal(buffer_text(&buffer), escaped);
    size_t size = buffer.size;
    text_append(&buffer, escaped, strlen(escaped)); /* escaping again changes nothing */
    assert_string_equal(buffer.bytes + size, escaped);
}

static void what_steers_a_terminal_is_escaped(void **state)
{
    (void)state;
    expect_escaped("encoder.layer.0/W\xc3\xa4rme \xe6\xbc\xa2\xf0\x9f\x98\x80",
                   "encoder.layer.0/W\xc3\xa4rme \xe6\xbc\xa2\xf0\x9f\x98\x80");
    expect_escaped("x\nskycc: error: y\r\tz", "x\\nskycc: error: y\\r\\tz");
    expect_escaped("\x1b[2J\x07\x7f", "\\x1b[2J\\x07\\x7f");
    expect_escaped("\xc2\x85\xc2\x9b"
                   "31m",
                   "\\u0085\\u009b31m");
    expect_escaped("a\xe2\x80\xae"
                   "b\xe2\x81\xa6"
                   "c\xd8\x9c",
                   "a\\u202eb\\u2066c\\u061c");
    expect_escaped("\xe2\x80\xa8\xe2\x80\xa9", "\\u2028\\u2029");
    expect_escaped("\xff\xc2", "\\xff\\xc2");
    expect_escaped("\xed\xa0\x80\xc0\x8a\xf4\x90\x80\x80",
                   "\\xed\\xa0\\x80\\xc0\\x8a\\xf4\\x90\\x80\\x80"); /* surrogate, overlong, beyond Unicode */
    expect_escaped("cut \xe2\x80", "cut \\xe2\\x80");
}

/* As printf does it, where nothing is to be escaped. */
static void expect_as_printf(const char *format, ...)
{
    char expected[256];
    FREED_WITH(buffer_free) Buffer buffer = {0};
    va_list arguments;
    va_start(arguments, format);
    text_format_va(&buffer, format, arguments);
    va_end(arguments);
    va_start(arguments, format);
    vsnprintf(expected, sizeof expected, format, arguments);
    va_end(arguments);
    assert_string_equal(buffer_text(&buffer), expected);
}

static void formats_are_those_of_printf(void **state)
{
    (void)state;
    expect_as_printf("plain\n%%\n");
    expect_as_printf("%d|%5d|%-5d|%05d|%+d|%i", 1, 2, 3, 4, 5, INT32_MIN);
    expect_as_printf("%ld %lld %zd %jd %td", 1L, INT64_MIN, (ssize_t)-3, (intmax_t)4, (ptrdiff_t)-5);
    expect_as_printf("%u %lu %llu %zu %x %#lX %o", UINT32_MAX, 7UL, UINT64_MAX, SIZE_MAX, 255U, 255UL, 8U);
    expect_as_printf("%f|%.3g|%10.4f|%-10.2e|%a|%*.*f", 1.5, 1e-7, 3.14159, 2.5, 0.1, 9, 2, 2.345);
    expect_as_printf("%s|%10s|%-10s|%.2s|%*s|%-*s|%.*s", "a", "b", "c", "defg", 4, "h", 4, "i", 1, "jk");
    expect_as_printf("%c%c", 'x', '%');
}

static void names_do_not_forge_lines(void **state)
{
    (void)state;
    Buffer buffer = {0};
    text_format(&buffer, "site %s:\n%-4s|%.3s|%c\n", "x\nskycc: error: y", "\n", "ab\ncd", '\n');
    assert_string_equal(buffer_text(&buffer), "site x\\nskycc: error: y:\n\\n  |ab\\n|\\n\n");
    buffer_free(&buffer);

    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Place place = {.file = "a\nb", .object = "c\xc2\x9b"};
    diagnostics_error(&diagnostics, EXIT_BAD_INPUT, place, "e\nf", "no '%s'", "d\n\xe2\x80\xae");
    diagnostics_quote(&diagnostics, "line 1\nline\x1b 2\n");
    FREED char *text = diagnostics_text(&diagnostics);
    assert_string_equal(text,
                        "a\\nb: error: c\\u009b: no 'd\\n\\u202e'\n    | line 1\n    | line\\x1b 2\n    hint: e\\nf\n");
}

static void misspellings_are_recognised(void **state)
{
    (void)state;
    static const char *const names[] = {"positive", "negative", "maybe", "no", ""};
    static const char *const found[][2] = {
        {"positve", "positive"}, {"NEGATIVE", "negative"}, {"mabye", "maybe"}, {"yes", NULL}, {"x", NULL}, {"", NULL}};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        const char *nearest = text_nearest(found[i][0], names, sizeof names / sizeof *names);
        assert_true(found[i][1] ? nearest && strcmp(nearest, found[i][1]) == 0 : !nearest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_steers_a_terminal_is_escaped),
        cmocka_unit_test(formats_are_those_of_printf),
        cmocka_unit_test(names_do_not_forge_lines),
        cmocka_unit_test(misspellings_are_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
