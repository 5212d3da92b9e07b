#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/json.h"
#include "base/random.h"
#include "tests/common/scratch.h"

/* Reads `text` as a file and expects failure with a message that contains `expected`. */
static void expect_unreadable(const char *text, const char *expected)
{
    Scratch file = scratch_text(text);
    Diagnostics diagnostics = {0};
    assert_null(json_read(file.path, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, expected);
    unlink(file.path);
}

static void unreadable_files_name_line_and_column(void **state)
{
    (void)state;
    expect_unreadable("", "not valid JSON");
    expect_unreadable("{\"a\": 1,\n \"b\" 2}", ":2:6: error: not valid JSON");
    expect_unreadable("{\"a\": 1, \"a\": 2}", "duplicate");
    expect_unreadable("{\"a\": 1} x", "end of file expected");
    expect_unreadable("{\"a\": 1e999}", "real number overflow");
    expect_unreadable("{\"a\": 99999999999999999999}", "too big integer");
    expect_unreadable("{\"a\": NaN}", "not valid JSON");
    expect_unreadable("{\"a\": \"\xff\"}", "unable to decode byte 0xff");
    expect_unreadable("{\"a\\u0000b\": 1}", "\\u0000");
    size_t depth = 100000;
    char *nested = memory_allocate(depth + 1);
    memset(nested, '[', depth);
    expect_unreadable(nested, "maximum parsing depth");
    free(nested);
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    assert_null(json_read(scratch_absent().path, &diagnostics));
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
}

static void members_are_typed(void **state)
{
    (void)state;
    Scratch file =
        scratch_text("{\"s\": \"x\", \"n\": 1.5, \"i\": 7, \"whole\": 8e9, \"big\": 1e300, \"a\": [], \"o\": {}}");
    Diagnostics diagnostics = {0};
    json_t *root = json_read(file.path, &diagnostics);
    JsonReader reader = {"f.json", &diagnostics};
    const char *string = NULL;
    double number = 0;
    int64_t integer = 0;
    json_t *child = NULL;
    assert_true(json_get_string(reader, root, "", "s", &string));
    assert_string_equal(string, "x");
    assert_true(json_get_number(reader, root, "", "n", &number));
    assert_true(number == 1.5);
    assert_true(json_get_number(reader, root, "", "i", &number));
    assert_true(number == 7);
    assert_true(json_get_integer(reader, root, "", "whole", &integer));
    assert_true(integer == 8000000000);
    assert_true(json_get_array(reader, root, "", "a", &child) && json_is_array(child));
    assert_true(json_get_object(reader, root, "", "o", &child) && json_is_object(child));
    assert_true(json_optional_integer(reader, root, "", "absent", &integer));
    assert_true(integer == 8000000000);
    assert_int_equal(diagnostics.errors, 0);

    assert_false(json_get_string(reader, root, "layers[3]", "n", &string));
    assert_false(json_get_integer(reader, root, NULL, "n", &integer));
    assert_false(json_get_integer(reader, root, "", "big", &integer));
    assert_false(json_get_number(reader, root, "", "s", &number));
    assert_false(json_get_array(reader, root, "", "o", &child));
    assert_false(json_get_object(reader, root, "", "a", &child));
    assert_false(json_get_number(reader, root, "", "absent", &number));
    assert_false(json_optional_string(reader, root, "", "n", &string));
    assert_false(json_optional_number(reader, root, "", "s", &number));
    assert_false(json_get_number(reader, json_object_get(root, "a"), "a", "x", &number));
    char *text = diagnostics_text(&diagnostics);
    assert_non_null(strstr(text, "f.json: error: layers[3].n: must be a string\n"));
    assert_non_null(strstr(text, "f.json: error: n: must be an integer\n"));
    assert_non_null(strstr(text, "f.json: error: absent: is missing\n"));
    assert_non_null(strstr(text, "f.json: error: a: must be an object\n"));
    assert_int_equal(diagnostics.errors, 10);
    free(text);
    json_decref(root);
    diagnostics_free(&diagnostics);
    unlink(file.path);
}

/* Reads `text` with the member "table" apart and compares what was taken apart, and the rest as jansson prints it. */
static void expect_apart(const char *text, const char *table, const char *rest)
{
    Scratch file = scratch_text(text);
    Diagnostics diagnostics = {0};
    JsonApart apart;
    assert_true(json_read_apart(&apart, file.path, "table", &diagnostics));
    size_t size = (size_t)(apart.text.end - apart.text.at);
    assert_int_equal(size, strlen(table));
    assert_memory_equal(apart.text.at, table, size);
    char *dumped = json_dumps(apart.root, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(dumped, rest);
    free(dumped);
    json_apart_free(&apart);
    unlink(file.path);
}

static void tables_are_read_apart(void **state)
{
    (void)state;
    expect_apart("{\"a\": 1, \"table\" : [[1,\"]\"],\n[\"\\\\\",\"\\\"]\"]] , \"b\": 2}",
                 "[[1,\"]\"],\n[\"\\\\\",\"\\\"]\"]]", "{\"a\":1,\"table\":[],\"b\":2}");
    expect_apart("{\"o\": {\"table\": [1]}, \"s\": \"table\", \"table\": []}", "[]",
                 "{\"o\":{\"table\":[1]},\"s\":\"table\",\"table\":[]}");
    expect_apart("{\"table\": {\"x\": [1]}}", "", "{\"table\":{\"x\":[1]}}");
    expect_apart("[\"table\", [1]]", "", "[\"table\",[1]]");

    /* What follows keeps its line and column. */
    static const char *const broken[] = {"{\"table\": [1,\n2], \"b\" 2}",
                                         "{\"table\": [], \"table\": [1]}",
                                         "{\"table\": [1",
                                         "{\"table\": [1}",
                                         "{\"table\": [\"x",
                                         ""};
    static const char *const messages[] = {":2:9: error: not valid JSON", "duplicate", "", "", "", ""};
    for (int i = 0; i < 6; i++) {
        Scratch file = scratch_text(broken[i]);
        Diagnostics diagnostics = {0};
        JsonApart apart;
        assert_false(json_read_apart(&apart, file.path, "table", &diagnostics));
        char *message = diagnostics_text(&diagnostics);
        if (!strstr(message, messages[i])) fail_msg("'%s' is not in: %s", messages[i], message);
        free(message);
        diagnostics_free(&diagnostics);
        unlink(file.path);
    }
}

static void tokens_are_scanned(void **state)
{
    (void)state;
    const char *text = " [ -12,9223372036854775807, 9223372036854775808 01 x \"a\\\"b\" \"c";
    JsonScan scan = {text, text + strlen(text)};
    int64_t number = 0;
    const char *string;
    size_t length;
    assert_false(json_scan_integer(&scan, &number));
    assert_true(json_scan_mark(&scan, '[') && json_scan_integer(&scan, &number));
    assert_int_equal(number, -12);
    assert_false(json_scan_mark(&scan, ']'));
    assert_true(json_scan_mark(&scan, ',') && json_scan_integer(&scan, &number) && number == INT64_MAX);
    assert_true(json_scan_mark(&scan, ','));
    assert_false(json_scan_integer(&scan, &number)); /* too large */
    scan.at = strstr(scan.at, "01");
    assert_false(json_scan_integer(&scan, &number));
    scan.at = strchr(scan.at, 'x');
    assert_false(json_scan_string(&scan, &string, &length));
    scan.at++;
    assert_true(json_scan_string(&scan, &string, &length));
    assert_int_equal(length, 4);
    assert_memory_equal(string, "a\\\"b", 4);
    assert_false(json_scan_string(&scan, &string, &length)); /* does not end */
}

static void expect_number(double value, const char *expected)
{
    FREED_WITH(buffer_free) Buffer buffer = {0};
    json_print_number(&buffer, value);
    assert_string_equal(buffer_text(&buffer), expected);
}

static void numbers_print_shortest_and_read_back(void **state)
{
    (void)state;
    expect_number(0, "0");
    expect_number(-0.0, "-0.0");
    expect_number(0.1, "0.1");
    expect_number(30, "30");
    expect_number(8589934592.0, "8589934592");
    expect_number(-1e300, "-1e+300");
    expect_number(1.0 / 3, "0.3333333333333333");
    expect_number(5e-324, "5e-324");
    uint64_t random = 1;
    for (int i = 0; i < 20000; i++) {
        /* any bit pattern will do */
        uint64_t bits = random_draw(&random) ^ random_draw(&random) >> 32;
        double value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        Buffer buffer = {0};
        json_print_number(&buffer, value);
        json_t *read = json_loads(buffer_text(&buffer), JSON_DECODE_ANY, NULL);
        assert_true(json_number_value(read) == value);
        for (int digits = 1; digits <= 17; digits++) { /* the first that reads back is what was printed */
            char text[40];
            snprintf(text, sizeof text, "%.*g", digits, value);
            if (strtod(text, NULL) != value) continue;
            if (value != floor(value) || fabs(value) >= 0x1p53) assert_string_equal(buffer_text(&buffer), text);
            break;
        }
        json_decref(read);
        buffer_free(&buffer);
    }
}

static void expect_quoted(const char *text, const char *quoted)
{
    FREED_WITH(buffer_free) Buffer buffer = {0};
    json_print_string(&buffer, text);
    assert_string_equal(buffer_text(&buffer), quoted);
}

static void strings_are_escaped(void **state)
{
    (void)state;
    expect_quoted("", "\"\"");
    expect_quoted("plain", "\"plain\"");
    expect_quoted("a\"\\\n\x01\xc3\xa9/", "\"a\\\"\\\\\\n\\u0001\xc3\xa9/\"");
    expect_quoted("\b\f\r\t\x1b\x7f", "\"\\b\\f\\r\\t\\u001B\\u007F\"");
    expect_quoted("bad \xff end", "\"bad \\uFFFD end\"");
    expect_quoted("cut \xe2\x82", "\"cut \\uFFFD\\uFFFD\"");
    expect_quoted("\xc2\x9b\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8", "\"\\u009B\\u202E\\u2066\\u2028\"");
    expect_quoted("\xf0\x9f\x98\x80\xe2\x82\xac", "\"\xf0\x9f\x98\x80\xe2\x82\xac\"");
}

/* Compares what was written, and that jansson reads it, and frees it. */
static void expect_text(Buffer *buffer, const char *expected)
{
    assert_string_equal(buffer_text(buffer), expected);
    json_error_t error;
    json_t *read = json_loads(buffer_text(buffer), JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!read) fail_msg("%s", error.text);
    json_decref(read);
    buffer_free(buffer);
}

static void write_example(JsonWriter *json)
{
    static const char *const names[] = {"a", NULL};
    static const double numbers[] = {0.5, 30};
    json_open(json, NULL, '{');
    json_add_string(json, "format", "x\"y");
    json_break(json, "\n ");
    json_open(json, "items", '[');
    json_break(json, "\n  ");
    json_add_integer(json, NULL, INT64_MIN);
    json_break(json, "\n  ");
    json_add_integer(json, NULL, INT64_MAX);
    json_open(json, NULL, '[');
    json_close(json, ']');
    json_break(json, "\n ");
    json_close(json, ']');
    json_add_strings(json, "names", names, 2);
    json_add_numbers(json, "numbers", numbers, 2);
    json_open(json, "o", '{');
    json_add_bool(json, "yes", true);
    json_add_bool(json, "no", false);
    json_add_null(json, "none");
    json_close(json, '}');
    json_add_raw(json, "ts", "%.3f", 1.5);
    json_close(json, '}');
}

static void documents_are_laid_out(void **state)
{
    (void)state;
    Buffer buffer = {0};
    write_example(&(JsonWriter){.buffer = &buffer});
    expect_text(&buffer, "{\"format\":\"x\\\"y\",\n \"items\":[\n  -9223372036854775808,\n  9223372036854775807,[]\n ],"
                         "\"names\":[\"a\",null],\"numbers\":[0.5,30],\"o\":{\"yes\":true,\"no\":false,\"none\":null},"
                         "\"ts\":1.500}");
    write_example(&(JsonWriter){.buffer = &buffer, .spaced = true});
    expect_text(&buffer,
                "{\"format\": \"x\\\"y\",\n \"items\": [\n  -9223372036854775808,\n  9223372036854775807, []\n ]"
                ", \"names\": [\"a\", null], \"numbers\": [0.5, 30], \"o\": {\"yes\": true, \"no\": false, "
                "\"none\": null}, \"ts\": 1.500}");
}

static void trees_are_indented(void **state)
{
    (void)state;
    static const char text[] = "{\n  \"z\": [\n    1,\n    1.0,\n    1e-12\n  ],\n  \"a\": {},\n  \"e\": [],\n"
                               "  \"t\": [\n    true,\n    false,\n    null\n  ],\n  \"s\": \"x\\u202Ey\"\n}";
    json_t *tree = json_loads(text, 0, NULL);
    Buffer buffer = {0};
    JsonWriter json = {.buffer = &buffer, .indent = 2};
    json_add_tree(&json, NULL, tree);
    expect_text(&buffer, text);
    json_decref(tree);
}

static void diagnostics_are_members(void **state)
{
    (void)state;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Place place = {.file = "m.onnx", .line = 3, .column = 7, .object = "node 'x'"};
    diagnostics_warning(&diagnostics, PLACE_NONE, NULL, "odd");
    diagnostics_error(&diagnostics, EXIT_BAD_INPUT, place, "mend it", "wrong");
    Buffer buffer = {0};
    JsonWriter json = {.buffer = &buffer};
    json_open(&json, NULL, '{');
    json_add_diagnostics(&json, "errors", &diagnostics, true);
    json_add_diagnostics(&json, "warnings", &diagnostics, false);
    json_close(&json, '}');
    expect_text(&buffer, "{\"errors\":[{\"severity\":\"error\",\"file\":\"m.onnx\",\"line\":3,\"column\":7,"
                         "\"object\":\"node 'x'\",\"message\":\"wrong\",\"hint\":\"mend it\"}],"
                         "\"warnings\":[{\"severity\":\"warning\",\"message\":\"odd\"}]}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unreadable_files_name_line_and_column),
        cmocka_unit_test(members_are_typed),
        cmocka_unit_test(tables_are_read_apart),
        cmocka_unit_test(tokens_are_scanned),
        cmocka_unit_test(numbers_print_shortest_and_read_back),
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(documents_are_laid_out),
        cmocka_unit_test(trees_are_indented),
        cmocka_unit_test(diagnostics_are_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
