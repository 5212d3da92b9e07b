#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler/costs.h"

static const char full[] =
    "{\"format\":\"skycc.costs/1\",\"name\":\"tiny \\\"q\\\"\",\"microbatches\":4,"
    "\"layers\":[{\"name\":\"a\",\"forward_s\":0.1,\"backward_s\":0.2,\"update_s\":0.001,\"memory_bytes\":7,\"output_"
    "bytes\":9},"
    "{\"name\":\"b\",\"forward_s\":0.3,\"backward_s\":0.5,\"state_bytes\":11,\"stash_bytes\":5,\"scratch_bytes\":3}],"
    "\"devices\":[{\"name\":\"x\",\"slowdown\":2.5,\"memory_bytes\":100,\"region\":\"r\"},"
    "{\"name\":\"y\",\"region\":\"s\",\"forward_s\":[1,2],\"backward_s\":[3,4]}],"
    "\"links\":{\"regions\":[\"r\",\"s\"],\"latency_s\":[[0,0.1],[0.1,0]],\"bandwidth_Bps\":[[1e9,1e8],[1e8,1e9]]},"
    "\"keep\":{\"inputs\":\"y\"}}";

static bool read_text(Costs *costs, const char *text, Diagnostics *diagnostics)
{
    char path[] = "/tmp/test_costs_XXXXXX";
    int descriptor = mkstemp(path);
    FILE *stream = fdopen(descriptor, "w");
    fputs(text, stream);
    fclose(stream);
    bool ok = costs_read(costs, path, diagnostics);
    unlink(path);
    return ok;
}

static void costs_read_what_they_print(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    Costs costs, again;
    assert_true(read_text(&costs, full, &diagnostics));
    assert_int_equal(costs.microbatches, 4);
    assert_string_equal(costs.name, "tiny \"q\"");
    assert_true(costs.layers[0].resident);
    assert_false(costs.layers[1].resident);
    assert_int_equal(costs.layers[1].stash_bytes, 5);
    assert_int_equal(costs.devices[1].region, 1);
    assert_true(costs.devices[1].memory_bytes == COSTS_NO_LIMIT);
    assert_true(costs_forward_s(&costs, 0, 1) == 2.5 * 0.3);
    assert_true(costs_forward_s(&costs, 1, 1) == 2);
    assert_string_equal(costs.keep_inputs, "y");
    assert_null(costs.keep_labels);
    Buffer first = {0}, second = {0};
    costs_print(&costs, &first);
    assert_true(read_text(&again, buffer_text(&first), &diagnostics));
    costs_print(&again, &second);
    assert_string_equal(buffer_text(&first), buffer_text(&second));
    Hash a = costs_hash(&costs), b = costs_hash(&again);
    assert_memory_equal(&a, &b, sizeof a);
    buffer_free(&first);
    buffer_free(&second);
    costs_free(&costs);
    costs_free(&again);
    diagnostics_free(&diagnostics);
}

/* `full` with the first `from` replaced by `to`. */
static void refuses(const char *from, const char *to)
{
    char text[2 * sizeof full];
    const char *found = strstr(full, from);
    assert_non_null(found);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(found - full), full, to, found + strlen(from));
    Diagnostics diagnostics = {0};
    Costs costs;
    bool ok = read_text(&costs, text, &diagnostics);
    if (ok) fail_msg("accepted %s", text);
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
    diagnostics_free(&diagnostics);
}

static void bad_costs_are_refused(void **state)
{
    (void)state;
    refuses("costs/1", "costs/2");
    refuses("\"microbatches\":4", "\"microbatches\":0");
    refuses("\"forward_s\":0.1", "\"forward_s\":-0.1");
    refuses("\"forward_s\":0.1", "\"forward_s\":1e300");
    refuses("\"memory_bytes\":7", "\"memory_bytes\":7,\"state_bytes\":1");
    refuses("\"memory_bytes\":7", "\"memory_bytes\":-7");
    refuses("\"memory_bytes\":7", "\"memory_bytes\":\"7\"");
    refuses("[1,2]", "[1]");
    refuses("[1,2]", "[1,null]");
    refuses("\"slowdown\":2.5", "\"slowdown\":0");
    refuses("\"region\":\"s\"", "\"region\":\"t\"");
    refuses("\"region\":\"s\"", "\"other\":\"t\"");
    refuses("\"name\":\"y\"", "\"name\":\"x\"");
    refuses("[[1e9,1e8],", "[[1e9,0],");
    refuses("[[1e9,1e8],", "[[1e9,1e8],[1,1],");
    refuses("\"inputs\":\"y\"", "\"inputs\":\"z\"");
    refuses("\"keep\":{\"inputs\":\"y\"}}", "\"keep\":{");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_read_what_they_print),
        cmocka_unit_test(bad_costs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
