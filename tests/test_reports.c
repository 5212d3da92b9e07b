/* What people read of plans and runs: plots, reports, comparisons, as the commands print them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/scratch.h"

static char directory[] = "/tmp/skycc-test-reports-XXXXXX";

static int prepare(void **state)
{
    (void)state;
    return mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
}

static int clean_up(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return chdir("/") == 0 ? system(command) : -1;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

typedef struct Answer {
    int code;
    char *text; /* standard output and standard error, as they came */
} Answer;

/* Runs skycc with these arguments. */
static Answer skycc(const char *format, ...) __attribute__((format(printf, 1, 2)));

static Answer skycc(const char *format, ...)
{
    char arguments[2048], command[4096];
    va_list values;
    va_start(values, format);
    vsnprintf(arguments, sizeof arguments, format, values);
    va_end(values);
    snprintf(command, sizeof command, SKYCC_PROGRAM " %s 2>&1", arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    Answer answer = {0};
    size_t size = 0;
    FILE *text = open_memstream(&answer.text, &size);
    for (int c; (c = fgetc(pipe)) != EOF;) fputc(c, text);
    fclose(text);
    int status = pclose(pipe);
    answer.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return answer;
}

/* Frees the answer. */
static void expect(Answer answer, int code, const char *const *texts)
{
    if (answer.code != code) fail_msg("exit code %d instead of %d: %s", answer.code, code, answer.text);
    for (; *texts; texts++)
        if (!strstr(answer.text, *texts)) fail_msg("'%s' is missing in: %s", *texts, answer.text);
    free(answer.text);
}

#define EXPECT(answer, code, ...) expect(answer, code, (const char *const[]){__VA_ARGS__, NULL})

/* ---- plots ---- */

static void losses_are_drawn(void **state)
{
    (void)state;
    write_text("log.csv",
               "step,loss,learning_rate,seconds,tokens_per_second,eval_loss,eval_accuracy\n"
               "1,2.5,0.1,1,10,,\n2,2,0.1,2,10,2.25,0.5\n3,nan,0.1,3,10,,\n4,1.5,0.1,4,10,1.75,0.75\n5,1.25");
    EXPECT(skycc("plot log.csv"), 0, "<svg ", "1.25 after step 5", "evaluation 1.75 after step 4", ">optimiser steps<",
           ">2.0</text>", ">70%</text>", "prefers-color-scheme:dark", "</svg>");
    EXPECT(skycc("plot log.csv -o a.svg && " SKYCC_PROGRAM " plot - -o b.svg <log.csv && cmp a.svg b.svg"), 0, "");
    write_text("log.csv", "step,loss\r\n7,0.5\r\n");
    EXPECT(skycc("plot log.csv"), 0, "0.5 after step 7", "</svg>");
}

/* What a run that diverges logs: nothing of it reaches the picture but a sentence, and huge values still make an axis.
 */
static void diverging_losses_are_drawn(void **state)
{
    static const char *const cases[][2] = {
        {"step,loss\n1,2\n2,-nan\n3,Infinity\n4,1e999\n5,1\n", "3 losses are nan or infinite, the first in step 2"},
        {"step,loss\n1,1\n2,NaN\n", "1 after step 1; 1 loss is nan or infinite"},
        {"step,loss\n1,1\n2,NaN\n3,1\n", "m-2 0h4M"},
        {"step,loss\n1,1.7e308\n2,-1.7e308\n3,1\n", ">-2e308</text>"},
        {"step,loss\n1,1.7976931348623157e308\n2,1.7976931348623157e308\n", ">1.9e308</text>"},
        {"step,loss\n1,4e-324\n2,9e-324\n", "9.881e-324 after step 2"},
        {"step,loss,eval_loss,eval_accuracy\n1,2,nan,-1.7e308\n2,1,-1e308,1.7e308\n", ">2e310%</text>"},
        {"step,loss\n1e308,2\n1.7e308,1\n", "1 after step 1.7e+308"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        write_text("log.csv", cases[k][0]);
        EXPECT(skycc("plot log.csv"), 0, cases[k][1], "</svg>");
        EXPECT(skycc("plot log.csv | grep -E '[\"M LHV>-](nan|inf)[^ a-z]' || echo fine"), 0, "fine");
    }
}

static void long_logs_make_small_pictures(void **state)
{
    (void)state;
    FILE *file = fopen("long.csv", "w");
    assert_non_null(file);
    fputs("step,loss\n", file);
    for (int step = 1; step <= 200000; step++) fprintf(file, "%d,%d\n", step, step == 77777 ? 9 : step % 2);
    fclose(file);
    Answer answer = skycc("plot long.csv");
    assert_in_range(strlen(answer.text), 1000, 200000);
    EXPECT(answer, 0, ">8</text>"); /* the one high value is still there */
}

static void malformed_logs_are_refused_with_their_line(void **state)
{
    static const char *const cases[][2] = {
        {"1,2\n", "log.csv:1: error: the first line must name the columns"},
        {"step,loss\n1,2\n2,x\n", "log.csv:3: error: 'x' is not a number"},
        {"step,loss\n1,0x10\n", "log.csv:2: error: '0x10' is not a number"},
        {"step,loss\n1\n", "log.csv:2: error: has fewer fields"},
        {"step,loss\n1,2,3\n", "log.csv:2: error: has more fields"},
        {"step,loss\n\n,2\n", "log.csv:3: error: has no step"},
        {"step,loss\n2,1\n2,1\n", "log.csv:3: error: its step is not after"},
        {"step,loss\n1,1111111111111111111111111111111111111111111111111111111111111111\n",
         "log.csv:2: error: a field"},
        {"step,loss\n1,nan\n", "log.csv: error: there is no loss to draw"},
        {"step,loss\n1,nan\n2,1e400\n", "there is no loss to draw: all 2 are nan or infinite"},
        {"", "log.csv: error: there is no loss to draw"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        write_text("log.csv", cases[k][0]);
        EXPECT(skycc("plot log.csv -o refused.svg"), 1, cases[k][1]);
    }
    assert_int_equal(access("refused.svg", F_OK), -1);
    EXPECT(skycc("plot"), 2, "no log is named");
    EXPECT(skycc("plot a b"), 2, "unexpected argument 'b'");
    EXPECT(skycc("plot missing.csv"), 1, "missing.csv: error: cannot open");
}

/* ---- what if ---- */

static const char costs_text[] =
    "{\"format\":\"skycc.costs/1\",\"name\":\"six\",\"microbatches\":4,\"layers\":["
    "{\"name\":\"embeddings\",\"forward_s\":0.1,\"backward_s\":0.2,\"memory_bytes\":1048576,\"output_bytes\":1000},"
    "{\"name\":\"encoder.0\",\"forward_s\":0.1,\"backward_s\":0.2,\"memory_bytes\":1048576,\"output_bytes\":1000},"
    "{\"name\":\"encoder.1\",\"forward_s\":0.1,\"backward_s\":0.2,\"memory_bytes\":1048576,\"output_bytes\":1000},"
    "{\"name\":\"encoder.2\",\"forward_s\":0.1,\"backward_s\":0.2,\"memory_bytes\":1048576,\"output_bytes\":1000},"
    "{\"name\":\"encoder.10\",\"forward_s\":0.1,\"backward_s\":0.2,\"memory_bytes\":1048576,\"output_bytes\":1000},"
    "{\"name\":\"head\",\"forward_s\":0.1,\"backward_s\":0.2,\"memory_bytes\":1048576,\"output_bytes\":1000}],"
    "\"devices\":[{\"name\":\"a\",\"slowdown\":1,\"memory_bytes\":8388608,\"region\":\"paris\"},"
    "{\"name\":\"b\",\"slowdown\":2,\"memory_bytes\":8388608,\"region\":\"tokyo\"}],"
    "\"links\":{\"regions\":[\"paris\",\"tokyo\"],\"latency_s\":[[0,0.01],[0.01,0]],"
    "\"bandwidth_Bps\":[[1e9,1e6],[1e6,1e9]]}}";

#define PLAN "plan --costs costs.json --schedule 1f1b --objective period "

static void devices_are_added(void **state)
{
    (void)state;
    write_text("costs.json", costs_text);
    EXPECT(skycc(PLAN), 0, "of 2 devices", "period 1.200 s");
    EXPECT(skycc(PLAN "--add '{name: c, like: a}'"), 0, " of 3 devices", "period 900.0 ms");
    EXPECT(skycc(PLAN "--add name=c,like=b,slowdown=0.5,region=paris,memory=4MiB -o c.json"), 0, "period 900.0 ms");
    EXPECT(skycc("verify c.json --costs costs.json"), 1, "costs_hash");
    EXPECT(skycc("verify c.json --costs costs.json --add name=c,like=b,slowdown=0.5,region=paris,memory=4MiB"), 0,
           "the plan is as it says");
    EXPECT(skycc(PLAN "--add name=c,count=2,region=paris --add 'name: d, region: paris'"), 0, " of 5 devices");
    EXPECT(skycc(PLAN "--add name=c,count=2,region=paris --without c.1"), 0, " of 4 devices");
}

/* The plan lists what leaves a region, raw tensors that should stay at home included. */
static void crossings_are_listed(void **state)
{
    (void)state;
    write_text("costs.json", costs_text);
    EXPECT(
        skycc(PLAN "--pin 0-2=a --pin 3-5=b -o -"), 0,
        "{\"tensor\":\"output of encoder.1\",\"bytes\":1000,\"raw\":false,\"from_stage\":0,\"to_stage\":1,"
        "\"from_region\":\"paris\",\"to_region\":\"tokyo\"}",
        "{\"tensor\":\"gradient of output of encoder.1\",\"bytes\":1000,\"raw\":false,\"from_stage\":1,\"to_stage\":0,"
        "\"from_region\":\"tokyo\",\"to_region\":\"paris\"}");
    EXPECT(skycc("plan --costs costs.json --pin 0-5=a -o -"), 0, "\"crossings\":[]");
    char *kept = strdup(costs_text), *end = strrchr(kept, '}'), text[4096];
    *end = '\0';
    snprintf(text, sizeof text, "%s,\"keep\":{\"inputs\":\"a\",\"labels\":\"a\"}}", kept);
    char *inputs = strstr(text, "\"output_bytes\"");
    for (int layer = 0; layer < 3; layer++) inputs = strstr(inputs + 1, "\"output_bytes\"");
    memmove(inputs + 41, inputs, strlen(inputs) + 1);
    memcpy(inputs, "\"inputs\":[{\"name\":\"mask\",\"bytes\":77777}],", 41);
    write_text("kept.json", text);
    EXPECT(skycc("plan --costs kept.json --pin 3=b --objective period"), 0, "a runs stages 0 and 2",
           "stages in other regions than their home's read raw tensors 1 time (crossings in the plan)",
           "mask does not stay on a: 1 other device reads it.\nEach needs it in its own copy of the data.\n",
           "what would help most");
    EXPECT(skycc("plan --costs kept.json --pin 3=b --objective period --report json"), 0,
           "\"kept_data_read_elsewhere\":\"mask does not stay on a: 1 other device reads it.");
    EXPECT(skycc("plan --costs kept.json --pin 3=b -o kept-plan.json --report html"), 0, "What leaves a region",
           "raw, read by 1", "<p class=over>mask does not stay on a", "The certificate refutes every step",
           "recomputes every number of this plan and checks the certificate of its bound");
    EXPECT(skycc("verify kept-plan.json --costs kept.json"), 0, "the plan is as it says", "certified optimal");
    free(kept);
}

static void bad_additions_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"name=a,region=paris", "the name 'a' is taken"},
        {"name=c", "must name its region"},
        {"name=c,region=rome", "unknown region 'rome'"},
        {"name=c,like=z", "unknown device 'z'"},
        {"region=paris", "key 'name' is missing"},
        {"name=c,like=a,gflops=7", "unknown key 'gflops'"},
        {"name=c,like=a,memory=x", "memory 'x' is not a size"},
        {"name=c,like=a,slowdown=0", "slowdown must be above 0"},
        {"{name: c", "not valid YAML"},
        {"", "--add"},
    };
    (void)state;
    write_text("costs.json", costs_text);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        EXPECT(skycc(PLAN "--add '%s'", cases[k][0]), 2, cases[k][1], "--add");
    }
}

static void layers_are_pinned(void **state)
{
    static const char *const cases[][2] = {
        /* wish, the first layer and the number of layers that are on b */
        {"encoder.1=b", " 2-2 "},    {"encoder=b", " 1-4 "},
        {"encoder.0-2=b", " 1-3 "},  {"2=b", " 2-2 "},
        {"2-3=b", " 2-3 "},          {"encoder.1-head=b", " 2-5 "},
        {"head=b --pin 4=b", "-5 "}, {"encoder.0-encoder.2=b", " 1-3 "},
    };
    (void)state;
    write_text("costs.json", costs_text);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        Answer answer = skycc("plan --costs costs.json --add name=c,like=a --pin %s", cases[k][0]);
        if (answer.code != 0) fail_msg("%s: %s", cases[k][0], answer.text);
        char *line = strstr(answer.text, "  b  ");
        assert_non_null(line);
        *strchr(line, '\n') = '\0';
        if (strncmp(cases[k][0], "encoder.1=", 10) == 0 || strncmp(cases[k][0], "2=", 2) == 0)
            assert_non_null(strstr(line, "encoder.")); /* others may join */
        else if (!strstr(line, cases[k][1]))
            fail_msg("%s: %s", cases[k][0], line);
        free(answer.text);
    }
    EXPECT(skycc("plan --costs costs.json --pin encoder.7=b --pin =b --pin 9-12=a --pin head"), 2,
           "no layers match 'encoder.7'", "the 6 layers go from 'embeddings' to 'head'", "not '=b'",
           "no layers match '9-12'", "not 'head'");
    EXPECT(skycc("plan --costs costs.json --pin head=z"), 2, "no device is named 'z'", "devices: a, b");
    EXPECT(skycc("plan --costs costs.json --pin head=a --pin 4-5=b"), 2, "cannot be both on 'b' and on 'a'");
    EXPECT(skycc("plan --costs costs.json --pin head=a --without a"), 2, "'a' is left out");
}

/* ---- comparisons ---- */

static void differences_are_told(void **state)
{
    (void)state;
    write_text("costs.json", costs_text);
    EXPECT(skycc(PLAN "-o one.json"), 0, "period 1.200 s");
    EXPECT(skycc(PLAN "--pin 0-2=a --pin 3-5=b -o two.json"), 0, "period 1.800 s");
    EXPECT(skycc(PLAN "--without b -o three.json"), 0, "period 1.800 s");
    EXPECT(skycc("diff one.json one.json"), 0, ", unchanged", "no layer moved");
    EXPECT(skycc("diff one.json two.json"), 0, "period          1.200 s -> 1.800 s (+50.00%)", "layers 3-3: a -> b",
           "1 of 6 layers moved", "a: load 1.200 s -> 900.0 ms", "b: memory 2.00 MiB -> 3.00 MiB");
    EXPECT(skycc("diff one.json three.json"), 0, "devices used    2 -> 1", "b: no longer used", "- link a to b",
           "between regions: 1.95 KiB -> 0 B");
    EXPECT(skycc("diff one.json two.json --fail-above 2"), 0, "moved");
    EXPECT(skycc("diff one.json two.json --fail-above 1.5"), 1, "moved",
           "the new plan's period takes 1.8 s, more than the 1.5 s allowed");
    EXPECT(skycc("diff one.json"), 2, "give two plans");
    EXPECT(skycc("diff one.json two.json three.json"), 2, "unexpected argument 'three.json'");
    EXPECT(skycc("explain"), 2, "no plan is named");
    EXPECT(skycc("explain one.json two.json"), 2, "unexpected argument 'two.json'");
    EXPECT(skycc("explain one.json --what"), 2, "unrecognized option", "hint: skycc explain --help lists the options");
    EXPECT(skycc("explain one.json"), 0, "of 2 devices", "period 1.200 s");
    EXPECT(skycc("diff one.json missing.json"), 1, "missing.json: error: cannot open");
    EXPECT(skycc("plan --costs costs.json --without b --add name=c,memory=1MiB,region=paris --without a -o none.json"),
           4, "no allocation");
    EXPECT(skycc("diff one.json none.json"), 4, "holds no plan");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_drawn),
        cmocka_unit_test(diverging_losses_are_drawn),
        cmocka_unit_test(long_logs_make_small_pictures),
        cmocka_unit_test(devices_are_added),
        cmocka_unit_test(layers_are_pinned),
        cmocka_unit_test(differences_are_told),
        cmocka_unit_test(crossings_are_listed),
        cmocka_unit_test(bad_additions_are_refused),
        cmocka_unit_test(malformed_logs_are_refused_with_their_line),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
