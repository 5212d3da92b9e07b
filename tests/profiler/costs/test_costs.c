#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler/costs/costs.h"
#include "profiler/costs/model_costs.h"
#include "tests/common/scratch.h"

static const char full[] =
    "{\"format\":\"skycc.costs/1\",\"name\":\"tiny \\\"q\\\"\",\"microbatches\":4,"
    "\"layers\":[{\"name\":\"a\",\"forward_s\":0.1,\"backward_s\":0.2,\"update_s\":0.001,\"memory_bytes\":7,\"output_"
    "bytes\":9},"
    "{\"name\":\"b\",\"forward_s\":0.3,\"backward_s\":0.5,\"state_bytes\":11,\"stash_bytes\":5,\"scratch_bytes\":3}],"
    "\"devices\":[{\"name\":\"x\",\"slowdown\":2.5,\"memory_bytes\":100,\"region\":\"r\"},"
    "{\"name\":\"y\",\"region\":\"s\",\"forward_s\":[1,2],\"backward_s\":[3,4]}],"
    "\"links\":{\"regions\":[\"r\",\"s\"],\"latency_s\":[[0,0.1],[0.1,0]],\"bandwidth_Bps\":[[1e9,1e8],[1e8,1e9]]},"
    "\"keep\":{\"inputs\":\"y\"}}";

static bool parse_costs(Costs *costs, const char *text, Diagnostics *diagnostics)
{
    Scratch file = scratch_text(text);
    bool ok = costs_read(costs, file.path, diagnostics);
    unlink(file.path);
    return ok;
}

static void costs_read_what_they_print(void **state)
{
    (void)state;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Costs costs, again;
    assert_true(parse_costs(&costs, full, &diagnostics));
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
    assert_true(parse_costs(&again, buffer_text(&first), &diagnostics));
    costs_print(&again, &second);
    assert_string_equal(buffer_text(&first), buffer_text(&second));
    Hash a = costs_hash(&costs), b = costs_hash(&again);
    assert_memory_equal(&a, &b, sizeof a);
    buffer_free(&first);
    buffer_free(&second);
    costs_free(&costs);
    costs_free(&again);
}

static const char rows[] = "\"microbatches\":4,\"rows\":{\"batch\":8,\"lines\":2,\"length\":10,\"slots\":3,"
                           "\"microbatches\":[[2,3],[3,1]],\"lengths\":[[1,20],[10,12]]},";

static const char tensor[] = "{\"name\":\"t\",\"dtype\":\"f32\",\"shape\":[2,3],\"bytes\":24}";

/* `full` with this member. */
static bool parse_sites(Costs *costs, const char *sites, Diagnostics *diagnostics)
{
    char text[2048];
    snprintf(text, sizeof text, "%.*s,\"sites\":%s}", (int)strlen(full) - 1, full, sites);
    return parse_costs(costs, text, diagnostics);
}

static void sites_come_back(void **state)
{
    (void)state;
    Costs costs, again;
    char text[1024];
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Buffer first = {0}, second = {0};
    snprintf(text, sizeof text,
             "{\"names\":[\"lyon\",\"kyoto\"],\"devices\":[0,1],\"keep\":{\"labels\":\"lyon\"},\"cuts\":["
             "{\"forward\":[%s,%s],\"backward\":[%s]},{\"forward\":[],\"backward\":[]}],"
             "\"shared\":[{\"tensor\":%s,\"layers\":[0,1]}]}",
             tensor, tensor, tensor, tensor);
    assert_true(parse_sites(&costs, text, &diagnostics));
    assert_int_equal(costs.sites.count, 2);
    assert_int_equal(costs.devices[1].site, 1);
    assert_int_equal(costs.sites.keep_inputs, -1);
    assert_int_equal(costs.sites.keep_labels, 0);
    assert_int_equal(costs.sites.cuts[0].count[0], 2);
    assert_int_equal(costs.sites.cuts[0].tensors[1][0].shape.dim[1], 3);
    assert_int_equal(costs.sites.shared[0].layer_count, 2);
    assert_true(costs_may_begin(&costs, 1) && !costs_may_end(&costs, 1) && costs_may_end(&costs, 0));
    assert_string_equal(costs_site_of(&costs, "y"), "kyoto");
    costs_print(&costs, &first);
    assert_true(parse_costs(&again, buffer_text(&first), &diagnostics));
    costs_print(&again, &second);
    assert_string_equal(buffer_text(&first), buffer_text(&second));
    buffer_free(&first);
    buffer_free(&second);
    costs_free(&costs);
    costs_free(&again);
}

static void bad_sites_are_refused(void **state)
{
    (void)state;
#define TWO "{\"names\":[\"a\",\"b\"],\"devices\":[0,1]"
    static const char *const bad[] = {
        "3",
        "{}",
        "{\"names\":[],\"devices\":[0,0],\"cuts\":[]}",
        "{\"names\":[\"a\",\"a\"],\"devices\":[0,1],\"cuts\":[{\"forward\":[],\"backward\":[]}]}",
        "{\"names\":[\"a\",\"b\"],\"devices\":[0],\"cuts\":[]}",
        "{\"names\":[\"a\",\"b\"],\"devices\":[0,2],\"cuts\":[]}",
        TWO ",\"cuts\":[]}",
        TWO ",\"keep\":{\"inputs\":\"c\"},\"cuts\":[]}",
        TWO ",\"cuts\":[{\"forward\":[{}],\"backward\":[]},3]}",
        TWO ",\"cuts\":[{\"forward\":[{\"name\":\"t\",\"dtype\":\"f32\",\"shape\":[2],\"bytes\":9}]},3]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Costs costs;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        if (parse_sites(&costs, bad[i], &diagnostics)) fail_msg("accepted: %s", bad[i]);
        assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
        const char *object = diagnostics.first->place.object;
        assert_non_null(strstr(object ? object : diagnostics.first->message, "sites"));
    }
}

/* Costs with `batch` as the member of that name. */
static bool parse_batch(Costs *costs, const char *batch, Diagnostics *diagnostics)
{
    char text[2048];
    snprintf(text, sizeof text, "%.*s,\"batch\":%s}", (int)(strrchr(full, '}') - full), full, batch);
    return parse_costs(costs, text, diagnostics);
}

static void batches_come_back(void **state)
{
    (void)state;
    Costs costs, again;
    FREED_WITH(buffer_free) Buffer first = {0};
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    char line[BATCH_CHOICE_LINE];
    assert_true(parse_batch(&costs,
                            "{\"rows\":8,\"microbatches\":2,\"tried\":[{\"microbatches\":8,\"step_s\":2},"
                            "{\"microbatches\":2,\"step_s\":0.123456789},{\"microbatches\":1}]}",
                            &diagnostics));
    assert_string_equal(batch_choice_line(&costs.batch, 0, line),
                        "Micro-batches: 2 of 4 rows (tried 1, 4; found nothing that fits with 8)");
    costs_print(&costs, &first);
    assert_true(parse_costs(&again, buffer_text(&first), &diagnostics));
    assert_true(batch_choice_equal(&costs.batch, &again.batch));
    again.batch.tried[1].step_ns++;
    assert_false(batch_choice_equal(&costs.batch, &again.batch));
    costs_free(&costs);
    costs_free(&again);
}

static void bad_batches_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "3",
        "{}",
        "{\"rows\":8,\"microbatches\":3,\"tried\":[]}",
        "{\"rows\":8,\"microbatches\":16,\"tried\":[]}",
        "{\"rows\":0,\"microbatches\":1,\"tried\":[]}",
        "{\"rows\":8,\"microbatches\":2,\"tried\":3}",
        "{\"rows\":8,\"microbatches\":2,\"tried\":[3]}",
        "{\"rows\":8,\"microbatches\":2,\"tried\":[{\"microbatches\":4,\"step_s\":1}]}",
        "{\"rows\":8,\"microbatches\":2,\"tried\":[{\"microbatches\":2,\"step_s\":-1}]}",
        "{\"rows\":8,\"microbatches\":2,\"tried\":[{\"microbatches\":2},{\"microbatches\":4}]}",
        "{\"rows\":8,\"microbatches\":2,\"tried\":[{\"microbatches\":3},{\"microbatches\":2}]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Costs costs;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        if (parse_batch(&costs, bad[i], &diagnostics)) fail_msg("accepted: %s", bad[i]);
        assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
    }
}

static void rows_come_back(void **state)
{
    (void)state;
    Costs costs, again;
    char text[2048];
    Diagnostics diagnostics = {0};
    FREED_WITH(buffer_free) Buffer first = {0};
    const char *at = strstr(full, "\"microbatches\":4,");
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - full), full, rows, at + strlen("\"microbatches\":4,"));
    assert_true(parse_costs(&costs, text, &diagnostics));
    assert_int_equal(row_samples_steps(&costs.rows), 4);
    assert_int_equal(row_samples_microbatches(&costs.rows), 9);
    assert_int_equal(row_samples_worst(&costs.rows), 3);
    assert_true(row_samples_mean(&costs.rows) == 2.25);
    assert_true(fabs(row_samples_padding(&costs.rows) - (1 - 140 / (9 * 20.0))) < 1e-15);
    assert_true(fabs(row_samples_padded(&costs.rows) - (1 - 140 / 320.0)) < 1e-15);
    assert_int_equal(row_samples_rounds(&costs.rows, 4, 7), 9); /* 8.75 */
    assert_int_equal(row_samples_rounds(&costs.rows, 4, 8), 10);
    assert_int_equal(row_samples_rounds(&(RowSamples){0}, 4, 7), 21);
    costs_print(&costs, &first);
    assert_true(parse_costs(&again, buffer_text(&first), &diagnostics));
    assert_true(row_samples_equal(&costs.rows, &again.rows));
    again.rows.lengths[1].times++;
    assert_false(row_samples_equal(&costs.rows, &again.rows));
    costs_free(&costs);
    costs_free(&again);
}

/* Nine micro-batches of two lines of ten tokens have 16 of them, or 150 of the tokens of these: times are those of this
 * share, and its inverse times what they are of all. */
static void times_are_of_the_tokens_to_expect(void **state)
{
    (void)state;
    Costs costs;
    char text[2048];
    Diagnostics diagnostics = {0};
    const char *at = strstr(full, "\"microbatches\":4,");
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - full), full, rows, at + strlen("\"microbatches\":4,"));
    for (int vary = 0; vary < 3; vary++) {
        assert_true(parse_costs(&costs, text, &diagnostics));
        const LayerCost before = costs.layers[0];
        RowSamples expected = costs.rows;
        expected.lines_computed = 16;
        expected.tokens_computed = 150;
        costs.lines_vary = vary;
        costs.tokens_vary = vary == 2;
        model_costs_expect_rows(&costs, &expected);
        double tokens = (double[]){180, 160, 150}[vary], share = tokens / 180;
        assert_true(before.forward_s > 0 && fabs(costs.layers[0].forward_s - share * before.forward_s) < 1e-15);
        assert_true(before.backward_s > 0 && fabs(costs.layers[0].backward_s - share * before.backward_s) < 1e-15);
        assert_true(costs.layers[0].update_s == before.update_s);
        assert_int_equal(costs.rows.lines_computed, vary ? 16 : 0);
        assert_int_equal(row_samples_whole(&costs.rows, 1000), (int)(180000 / tokens));
        assert_true(fabs(row_samples_padding(&costs.rows) - (1 - 140 / tokens)) < 1e-15);
        costs_free(&costs);
    }
}

static void impossible_rows_are_refused(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        {"[2,3]", "[2,2]"},     /* three steps */
        {"[3,1]", "[5,1]"},     /* more than fit */
        {"[3,1]", "[2,1]"},     /* twice the same */
        {"[2,3]", "[0,3]"},     /* a step of nothing */
        {"[2,3]", "[2,3,4]"},   /* no pair */
        {"[1,20]", "[1,19]"},   /* rows that are missing */
        {"[10,12]", "[11,12]"}, /* longer than a line */
        {"[1,20]", "[9,20]"},   /* more tokens than there is room for */
        {"\"lines\":2", "\"lines\":1"},
        {"\"slots\":3", "\"slots\":0"},
        {"\"batch\":8", "\"batch\":-8"},
        {"[[1,20],[10,12]]", "[]"},
        {"\"length\":10,", ""},
        {"\"slots\":3", "\"slots\":3,\"lines_computed\":13"}, /* the last of a step has at least one */
        {"\"slots\":3", "\"slots\":3,\"lines_computed\":19"}, /* and at most as many as the others */
        {"\"slots\":3", "\"slots\":3,\"lines_computed\":0"},
        {"\"slots\":3", "\"slots\":3,\"lines_computed\":16,\"tokens_computed\":161"}, /* at most those of the lines */
        {"\"slots\":3", "\"slots\":3,\"lines_computed\":16,\"tokens_computed\":70"},  /* seven lines are whole */
        {"\"slots\":3", "\"slots\":3,\"tokens_computed\":150"},                       /* of no lines */
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char text[2048], changed[512];
        Costs costs;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        const char *at = strstr(full, "\"microbatches\":4,"), *from = strstr(rows, changes[i][0]);
        assert_non_null(from);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(from - rows), rows, changes[i][1],
                 from + strlen(changes[i][0]));
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - full), full, changed, at + strlen("\"microbatches\":4,"));
        if (parse_costs(&costs, text, &diagnostics)) fail_msg("%s for %s is taken", changes[i][1], changes[i][0]);
        assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
    }
}

static void refuses(const char *from, const char *to)
{
    char text[2 * sizeof full];
    const char *found = strstr(full, from);
    assert_non_null(found);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(found - full), full, to, found + strlen(from));
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Costs costs;
    bool ok = parse_costs(&costs, text, &diagnostics);
    if (ok) fail_msg("accepted %s", text);
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
}

static void shared_stash_comes_back(void **state)
{
    (void)state;
    char text[2 * sizeof full];
    const char *memory = "\"memory_bytes\":7", *found = strstr(full, memory);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(found - full), full,
             "\"state_bytes\":7,\"stash_bytes\":9,\"shared_bytes\":5", found + strlen(memory));
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Costs costs;
    FREED_WITH(buffer_free) Buffer printed = {0};
    assert_true(parse_costs(&costs, text, &diagnostics));
    assert_int_equal(costs.layers[0].shared_bytes, 5);
    costs_print(&costs, &printed);
    assert_non_null(strstr(buffer_text(&printed), "\"stash_bytes\":9,\"scratch_bytes\":0,\"shared_bytes\":5"));
    costs_free(&costs);
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
    refuses("\"memory_bytes\":7", "\"state_bytes\":7,\"stash_bytes\":4,\"shared_bytes\":5");
    refuses("\"memory_bytes\":7", "\"state_bytes\":7,\"stash_bytes\":9,\"shared_bytes\":6");
    refuses("\"stash_bytes\":5", "\"stash_bytes\":5,\"shared_bytes\":1");
    refuses("\"stash_bytes\":5", "\"stash_bytes\":5,\"gradient_bytes\":7,\"table_rows\":2,\"table_row_bytes\":4");
    refuses("\"stash_bytes\":5", "\"stash_bytes\":5,\"gradient_bytes\":7,\"table_rows\":2");
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
        cmocka_unit_test(sites_come_back),
        cmocka_unit_test(bad_sites_are_refused),
        cmocka_unit_test(batches_come_back),
        cmocka_unit_test(bad_batches_are_refused),
        cmocka_unit_test(rows_come_back),
        cmocka_unit_test(times_are_of_the_tokens_to_expect),
        cmocka_unit_test(impossible_rows_are_refused),
        cmocka_unit_test(shared_stash_comes_back),
        cmocka_unit_test(bad_costs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
