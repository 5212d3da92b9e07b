/* What people read of plans and runs: plots, reports, comparisons, as the commands print them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/common/command.h"
#include "tests/common/scratch.h"

enum { MOST_POINTS = 6000 };

#define SKYCC(...) run(SKYCC_PROGRAM " " __VA_ARGS__)

/* ---- plots ---- */

/* A path as points on the picture. */
typedef struct Curve {
    int pieces, points;
    double x[MOST_POINTS], y[MOST_POINTS];
} Curve;

/* That the number at `text` lies on the picture; what follows it. */
static char *read_number(char *text, double most, double *number)
{
    char *end;
    *number = strtod(text, &end);
    if (end == text || !(*number >= 0 && *number <= most)) fail_msg("not in 0 ... %g: %.40s", most, text);
    return end;
}

/* Reads a path of moves and lines. What else a path may have, marks and grids have: numbers, which are skipped. */
static void read_path(char *text, double width, double height, Curve *curve)
{
    double x, y;
    *curve = (Curve){0};
    while (*text != '"') {
        char letter = *text++;
        if (strchr("Hhvm", letter)) {
            text += strspn(text, "0123456789.- ");
            continue;
        }
        if (!strchr("ML", letter)) fail_msg("not of a path: %c%.40s", letter, text);
        text = read_number(read_number(text, width, &x), height, &y);
        assert_in_range(curve->points, 0, MOST_POINTS - 1);
        curve->pieces += letter == 'M';
        curve->x[curve->points] = x;
        curve->y[curve->points++] = y;
    }
}

/* Draws a log. Everything lies on the picture; the curve of losses, which is returned, goes from left to right. */
static const Curve *draw(const char *log)
{
    static Curve curve, losses;
    double width, height, place;
    must_run(SKYCC_PROGRAM " plot %s", log);
    assert_int_equal(
        sscanf(printed, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %lf %lf\"", &width, &height), 2);
    assert_printed("</svg>");
    for (char *at = printed; (at = strstr(at, " d=\"")); at++) {
        read_path(at + 4, width, height, &curve);
        if (strncmp(at - 9, "class=\"l\"", 9) == 0) losses = curve;
    }
    static const char *const places[] = {" x=\"", " cx=\"", " y=\"", " cy=\""};
    for (int i = 0; i < 4; i++)
        for (char *at = printed; (at = strstr(at, places[i]));)
            at = read_number(at + strlen(places[i]), i < 2 ? width : height, &place);
    for (int i = 1; i < losses.points; i++) assert_true(losses.x[i] >= losses.x[i - 1]);
    return &losses;
}

#define LABEL(text) (">" text "</text>")

static void losses_are_drawn(void **state)
{
    (void)state;
    write_text("log.csv",
               "step,loss,learning_rate,seconds,tokens_per_second,eval_loss,eval_accuracy\n"
               "1,2.5,0.1,1,10,,\n2,2,0.1,2,10,2.25,0.5\n3,nan,0.1,3,10,,\n4,1.5,0.1,4,10,1.75,0.75\n5,1.25");
    const Curve *losses = draw("log.csv");
    ASSERT_RAN(0, 0, "1.25 after step 5", "evaluation 1.75 after step 4", LABEL("optimiser steps"), LABEL("2.0"),
               LABEL("70%"), "prefers-color-scheme:dark");
    assert_int_equal(losses->points, 4);
    assert_int_equal(losses->pieces, 2); /* before and after the loss that is not a number */
    double step = losses->x[1] - losses->x[0], unit = 2 * (losses->y[1] - losses->y[0]);
    assert_true(step > 0 && fabs(losses->x[2] - losses->x[1] - 2 * step) < 1 &&
                fabs(losses->x[3] - losses->x[2] - step) < 1);
    assert_true(unit > 0 && fabs(losses->y[2] - losses->y[1] - unit / 2) < 1 &&
                fabs(losses->y[3] - losses->y[2] - unit / 4) < 1);
    ASSERT_RAN(SKYCC("plot log.csv -o a.svg && " SKYCC_PROGRAM " plot - -o b.svg <log.csv && cmp a.svg b.svg"), 0, "");
    write_text("log.csv", "step,loss\r\n7,0.5\r\n");
    assert_int_equal(draw("log.csv")->points, 1);
    assert_printed("0.5 after step 7");
}

/* What a run that diverges logs: nothing of it reaches the picture but a sentence, and huge values still make an axis.
 */
static void diverging_losses_are_drawn(void **state)
{
    static const struct {
        const char *log, *printed;
        int points, pieces;
    } cases[] = {
        {"step,loss\n1,2\n2,-nan\n3,Infinity\n4,1e999\n5,1\n", "3 losses are nan or infinite, the first in step 2", 2,
         2},
        {"step,loss\n1,1\n2,NaN\n", "1 after step 1; 1 loss is nan or infinite", 1, 1},
        {"step,loss\n1,1\n2,NaN\n3,1\n", "1 after step 3", 2, 2},
        {"step,loss\n1,1.7e308\n2,-1.7e308\n3,1\n", LABEL("-2e308"), 3, 1},
        {"step,loss\n1,1.7976931348623157e308\n2,1.7976931348623157e308\n", LABEL("1.9e308"), 2, 1},
        {"step,loss\n1,4e-324\n2,9e-324\n", "9.881e-324 after step 2", 2, 1},
        {"step,loss,eval_loss,eval_accuracy\n1,2,nan,-1.7e308\n2,1,-1e308,1.7e308\n", LABEL("2e310%"), 2, 1},
        {"step,loss,eval_loss,eval_accuracy,eval_f1\n1,2,2,0.5,0.25\n2,1,1,0.75,0.5\n", LABEL("f1"), 2, 1},
        {"step,loss,eval_pearson\n1,2,0.5\n2,1,0.75\n", LABEL("pearson"), 2, 1},
        {"step,loss\n1e308,2\n1.7e308,1\n", "1 after step 1.7e+308", 2, 1},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        write_text("log.csv", cases[k].log);
        const Curve *losses = draw("log.csv");
        assert_printed(cases[k].printed);
        assert_int_equal(losses->points, cases[k].points);
        assert_int_equal(losses->pieces, cases[k].pieces);
    }
}

static void long_logs_make_small_pictures(void **state)
{
    (void)state;
    enum { STEPS = 200000, HIGH = 77777 };
    FILE *file = fopen("long.csv", "w");
    assert_non_null(file);
    fputs("step,loss\n", file);
    for (int step = 1; step <= STEPS; step++) fprintf(file, "%d,%d\n", step, step == HIGH ? 9 : step % 2);
    fclose(file);
    const Curve *losses = draw("long.csv");
    assert_in_range(losses->points, 100, MOST_POINTS);
    int top = 0; /* the one high value is still there */
    for (int i = 1; i < losses->points; i++)
        if (losses->y[i] < losses->y[top]) top = i;
    double left = losses->x[0], right = losses->x[losses->points - 1];
    assert_true(fabs((losses->x[top] - left) / (right - left) - (double)HIGH / STEPS) < 0.002);
}

/* The log of a coordinator: a line for each site and one for the mean. Rounds that a site missed are gaps, and a
 * round that was begun anew counts once. */
static void sites_have_a_line_each(void **state)
{
    static const int points[] = {4, 2}, pieces[] = {1, 2};
    static Curve sites[3];
    (void)state;
    write_text("log.csv", "round,sites,weight,loss,bytes_in,bytes_out,seconds,epsilon,rows_a,loss_a,rows_b-2,loss_b-2\n"
                          "1,2,64,2,9,9,1,,32,1,32,3\n2,1,32,1.5,9,9,1,,32,1.5,,\n3,2,64,2,9,9,1,,32,2,32,2\n"
                          "3,2,64,1,9,9,1,,32,0.5,32,1.5\n4,1,32,0.5,9,9,1,,32,0.5,,\n5,1");
    const Curve *mean = draw("log.csv");
    ASSERT_RAN(0, 0, "mean 0.5 after round 4", LABEL("rounds"), LABEL("a 0.5"), LABEL("b-2 1.5"), "of 2 sites");
    assert_int_equal(mean->points, 4);
    assert_int_equal(mean->pieces, 1);
    int count = 0;
    for (char *at = printed; (at = strstr(at, "class=\"s\" d=\"")); at++) {
        assert_in_range(count, 0, 1);
        read_path(at + strlen("class=\"s\" d=\""), 860, 900, &sites[count]);
        assert_int_equal(sites[count].points, points[count]);
        assert_int_equal(sites[count].pieces, pieces[count]);
        count++;
    }
    assert_int_equal(count, 2);
    double unit = sites[0].y[0] - mean->y[0]; /* height of one nat: in round 1 this site has 1, the mean is 2 */
    assert_true(unit > 0 && fabs(mean->y[0] - sites[1].y[0] - unit) < 1);
    assert_true(fabs(sites[0].y[2] - mean->y[2] - unit / 2) < 1 && fabs(sites[1].x[1] - mean->x[2]) < 1);
}

/* A long run has a smoothed curve over a pale one; several runs have a line each, by the loss that all of them have. */
static void runs_are_smoothed_and_compared(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    fputs("step,loss,eval_loss\n", file);
    for (int step = 1; step <= 50; step++) fprintf(file, "%d,%d,%s\n", step, 1 + step % 2, step % 25 ? "" : "0.5");
    fclose(file);
    write_text("long.csv", text);
    free(text);
    static Curve smoothed;
    double zigzag = fabs(draw("long.csv")->y[1] - draw("long.csv")->y[0]);
    assert_printed("<g class=\"raw\">");
    read_path(strstr(printed, "class=\"h\"") + strlen("class=\"h\" d=\""), 860, 900, &smoothed);
    assert_int_equal(smoothed.points, 50);
    assert_true(fabs(smoothed.y[49] - smoothed.y[48]) < zigzag / 2);
    write_text("b&.csv", "step,loss,eval_loss\n1,2,\n2,1,0.25\n");
    ASSERT_RAN(SKYCC("plot long.csv 'b&.csv'"), 0, "Evaluation loss of 2 runs", LABEL("long.csv 0.5"),
               LABEL("b&amp;.csv 0.25"), LABEL("optimiser steps"));
    write_text("c.csv", "step,loss\n1,2\n2,1\n");
    ASSERT_RAN(SKYCC("plot long.csv c.csv"), 0, "Training loss of 2 runs", LABEL("c.csv 1"));
    write_text("f.csv", "round,loss,loss_a\n1,2,2\n2,1,1\n");
    ASSERT_RAN(SKYCC("plot long.csv f.csv -o no.svg"), 1, "f.csv: error: is the log of a federation");
    assert_int_equal(access("no.svg", F_OK), -1);
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
        {"step,loss\n2,1\n2,1\n", "log.csv:3: error: its step does not come after"},
        {"step,loss\n1,1111111111111111111111111111111111111111111111111111111111111111"
         "1111111111111111111111111111111111111111111111111111111111111111\n",
         "log.csv:2: error: a field"},
        {"step,loss\n1,nan\n", "log.csv: error: no loss to draw"},
        {"step,loss\n1,nan\n2,1e400\n", "no loss to draw: all 2 are nan or infinite"},
        {"", "log.csv: error: no loss to draw"},
        {"round,sites\n1,2\n", "log.csv:1: error: the first line must name the columns, including round and loss"},
        {"round,loss,loss_<b>\n1,2,2\n", "log.csv:1: error: column 'loss_<b>' names no site"},
        {"round,loss,loss_a\n2,2,2\n1,2,2\n", "log.csv:3: error: its step does not come after"},
        {"round,loss,loss_a\n1,,\n", "sites with hide_metrics report no losses"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        write_text("log.csv", cases[k][0]);
        ASSERT_RAN(SKYCC("plot log.csv -o refused.svg"), 1, cases[k][1]);
    }
    assert_int_equal(access("refused.svg", F_OK), -1);
    ASSERT_RAN(SKYCC("plot"), 2, "no log is named");
    ASSERT_RAN(SKYCC("plot missing.csv"), 1, "missing.csv: error: cannot open");
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
    ASSERT_RAN(SKYCC(PLAN), 0, "of 2 devices", "period 1.200 s");
    ASSERT_RAN(SKYCC(PLAN "--add '{name: c, like: a}'"), 0, " of 3 devices", "period 900.0 ms");
    ASSERT_RAN(SKYCC(PLAN "--add name=c,like=b,slowdown=0.5,region=paris,memory=4MiB -o c.json"), 0, "period 900.0 ms");
    ASSERT_RAN(SKYCC("verify c.json --costs costs.json"), 1, "costs_hash");
    ASSERT_RAN(SKYCC("verify c.json --costs costs.json --add name=c,like=b,slowdown=0.5,region=paris,memory=4MiB"), 0,
               "the plan is as it says");
    ASSERT_RAN(SKYCC(PLAN "--add name=c,count=2,region=paris --add 'name: d, region: paris'"), 0, " of 5 devices");
    ASSERT_RAN(SKYCC(PLAN "--add name=c,count=2,region=paris --without c.1"), 0, " of 4 devices");
}

/* The plan lists what leaves a region, raw tensors that should stay at home included. */
static void crossings_are_listed(void **state)
{
    (void)state;
    write_text("costs.json", costs_text);
    ASSERT_RAN(
        SKYCC(PLAN "--pin 0-2=a --pin 3-5=b -o -"), 0,
        "{\"tensor\":\"output of encoder.1\",\"bytes\":1000,\"raw\":false,\"from_stage\":0,\"to_stage\":1,"
        "\"from_region\":\"paris\",\"to_region\":\"tokyo\"}",
        "{\"tensor\":\"gradient of output of encoder.1\",\"bytes\":1000,\"raw\":false,\"from_stage\":1,\"to_stage\":0,"
        "\"from_region\":\"tokyo\",\"to_region\":\"paris\"}");
    ASSERT_RAN(SKYCC("plan --costs costs.json --pin 0-5=a -o -"), 0, "\"crossings\":[]");
    char *kept = strdup(costs_text), *end = strrchr(kept, '}'), text[4096];
    *end = '\0';
    snprintf(text, sizeof text, "%s,\"keep\":{\"inputs\":\"a\",\"labels\":\"a\"}}", kept);
    char *inputs = strstr(text, "\"output_bytes\"");
    for (int layer = 0; layer < 3; layer++) inputs = strstr(inputs + 1, "\"output_bytes\"");
    memmove(inputs + 41, inputs, strlen(inputs) + 1);
    memcpy(inputs, "\"inputs\":[{\"name\":\"mask\",\"bytes\":77777}],", 41);
    write_text("kept.json", text);
    ASSERT_RAN(SKYCC("plan --costs kept.json --pin 3=b --objective period"), 0, "a runs stages 0 and 2",
               "Raw inputs read outside their home region: 1",
               "mask leaves its home a: 1 other device reads it.\nEach needs it in its own copy of the data.\n",
               "What would help most");
    ASSERT_RAN(SKYCC("plan --costs kept.json --pin 3=b --objective period --report json"), 0,
               "\"kept_data_read_elsewhere\":\"mask leaves its home a: 1 other device reads it.");
    ASSERT_RAN(SKYCC("plan --costs kept.json --pin 3=b -o kept-plan.json --report html"), 0, "What leaves a region",
               "raw, read by 1", "<p class=\"over\">mask leaves its home a", "rule out every step below",
               "recomputes every number of this plan and checks the certificate of its bound");
    ASSERT_RAN(
        SKYCC("verify kept-plan.json --costs kept.json"), 0, "the plan is as it says",
        "certified optimal: no plan asked for (layer 3 on b; inputs kept on a; labels kept on a) has a smaller step");
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
        ASSERT_RAN(SKYCC(PLAN "--add '%s'", cases[k][0]), 2, cases[k][1], "--add");
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
        must_run(SKYCC_PROGRAM " plan --costs costs.json --add name=c,like=a --pin %s", cases[k][0]);
        char *line = strstr(printed, "  b  ");
        assert_non_null(line);
        *strchr(line, '\n') = '\0';
        if (strncmp(cases[k][0], "encoder.1=", 10) == 0 || strncmp(cases[k][0], "2=", 2) == 0)
            assert_non_null(strstr(line, "encoder.")); /* others may join */
        else if (!strstr(line, cases[k][1]))
            fail_msg("%s: %s", cases[k][0], line);
    }
    ASSERT_RAN(SKYCC("plan --costs costs.json --pin encoder.7=b --pin =b --pin 9-12=a --pin head"), 2,
               "no layers match 'encoder.7'", "there are 6 layers, from 'embeddings' to 'head'", "not '=b'",
               "no layers match '9-12'", "not 'head'");
    ASSERT_RAN(SKYCC("plan --costs costs.json --pin head=z"), 2, "no device is named 'z'", "devices: a, b");
    ASSERT_RAN(SKYCC("plan --costs costs.json --pin head=a --pin 4-5=b"), 2, "cannot be both on 'b' and on 'a'");
    ASSERT_RAN(SKYCC("plan --costs costs.json --pin head=a --without a"), 2, "'a' is left out");
}

/* ---- runs ---- */

/* Stages are done early and wait for their next step while others still update: waits are no part of a step. */
static void steps_last_from_update_to_update(void **state)
{
    static const double updated[] = {10, 12, 14.1, 16.3}; /* seconds: when stage 1 has */
    (void)state;
    FILE *trace = fopen("trace.json", "w");
    assert_non_null(trace);
    fprintf(trace, "{\"traceEvents\":[{}");
    for (int step = 0; step < 4; step++)
        for (int stage = 0; stage < 2; stage++) {
            double end = updated[step] - (stage == 0 ? 1.5 : 0), begin = step > 0 ? updated[step - 1] - 1.4 : 0;
            static const char event[] = ",{\"ph\":\"X\",\"name\":\"%s\",\"tid\":%d,\"ts\":%.0f,\"dur\":100000,"
                                        "\"args\":{\"step\":%d}}";
            fprintf(trace, event, "receive", stage, begin * 1e6, step);
            fprintf(trace, event, "update", stage, (end - 0.1) * 1e6, step);
        }
    fprintf(trace, "]}");
    fclose(trace);
    write_text("costs.json", costs_text);
    ASSERT_RAN(SKYCC(PLAN "-o one.json"), 0, "period 1.200 s");
    ASSERT_RAN(SKYCC("explain one.json --trace trace.json"), 0, "measured over 3 steps", "median 2.100 s");
}

/* Devices that --without leaves out are not said to be unused; and who asks for another allocation than the optimal one
 * waits for no bound, unless there is a time for it. */
static void reports_tell_what_was_asked(void **state)
{
    (void)state;
    write_text("costs.json", costs_text);
    ASSERT_RAN(SKYCC(PLAN "--without b"), 0, "Left out as asked: b\n");
    assert_null(strstr(printed, "Not used: b"));
    ASSERT_RAN(SKYCC(PLAN "--allocate even"), 0, "no bound is known: none was searched for", "not searched for");
    ASSERT_RAN(SKYCC(PLAN "--allocate even --time-limit 10"), 0, "above the optimum");
}

/* What a proof is about is named, in every form and by verify: whatever was asked for beyond the costs. */
static void restrictions_are_named(void **state)
{
    static const struct {
        const char *asked, *named;
    } cases[] = {
        {"", "no plan for these devices has a smaller step"},
        {"--without b", "no plan asked for (a alone) has a smaller step"},
        {"--add name=c,like=a --add name=d,like=b --without b", "no plan asked for (without b) has"},
        {"--pin 0-5=a", "no plan asked for (all layers pinned) has"},
        {"--pin 0-1=a --pin 4=b", "no plan asked for (layers 0-1 on a; layer 4 on b) has"},
        {"--schedule gpipe", "no plan asked for (schedule gpipe) has"},
        {"--schedule 1f1b --recompute never", "no plan asked for (schedule 1f1b; recompute never) has"},
        {"--codec auto:q6", "no plan asked for (codecs auto:q6) has"},
        {"--objective period", "no plan for these devices has a smaller period"},
        {"--objective period --schedule zb", "no plan asked for (schedule zb) has a smaller period"},
    };
    static const char *const forms[] = {"text", "json", "html", "svg"};
    (void)state;
    write_text("costs.json", costs_text);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        for (int form = 0; form < 4; form++) {
            must_run(SKYCC_PROGRAM " plan --costs costs.json %s -o asked.json --report %s", cases[k].asked,
                     forms[form]);
            assert_printed(cases[k].named);
        }
        const char *with = strncmp(cases[k].asked, "--add", 5) == 0 ? "--add name=c,like=a --add name=d,like=b" : "";
        must_run(SKYCC_PROGRAM " verify asked.json --costs costs.json %s", with);
        assert_printed(cases[k].named);
    }
    assert_printed("another plan may have a shorter step");
}

/* A picture stands alone, and needs no costs. */
static void plans_are_drawn(void **state)
{
    (void)state;
    write_text("costs.json", costs_text);
    must_run(SKYCC_PROGRAM " plan --costs costs.json -o drawn.json --report svg");
    assert_int_equal(strncmp(printed, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=", 48), 0);
    assert_printed("stage 0, layers 0\u20133</text>");
    assert_printed("0.98 KiB</text>");
    assert_printed("In use: 100% of the devices");
    assert_printed("</svg>\n");
    assert_null(strstr(printed, "href"));
    must_run(SKYCC_PROGRAM " explain drawn.json --report svg");
    assert_printed("stage 0, layers 0\u20133</text>");
    must_run("sed 's/\"bound_ns\":[0-9]*/\"bound_ns\":1000/' drawn.json >less.json");
    must_run(SKYCC_PROGRAM " explain less.json --report svg");
    assert_printed("rests on the solver");
    ASSERT_RAN(SKYCC("explain drawn.json --report svg --trace trace.json"), 2, "not what --trace measured");
    ASSERT_RAN(SKYCC("explain drawn.json --report html"), 2, "--report takes text or svg, not 'html'");
}

/* No form tells of allocators, which know one pipeline, or of links between replicas, which there are not. */
static void replicas_are_in_every_form(void **state)
{
    (void)state;
    write_text("costs.json", costs_text);
    must_run("sed -i 's/\"output_bytes\":1000/&,\"gradient_bytes\":1000/g' costs.json");
    static const char *const forms[] = {"text", "html", "svg", "json"};
    for (int f = 0; f < 4; f++) {
        must_run(SKYCC_PROGRAM " plan --costs costs.json --add name=c,like=a --add name=d,like=b --replicas 2 "
                               "-o shared.json --report %s",
                 forms[f]);
        assert_printed("2 pipelines share the 4 micro-batches of a step: 2 on 3 devices, 2 on 1 device.");
        if (f < 2) assert_printed("Bottleneck of replica 1: device c, which computes ");
        if (f < 3) assert_printed("replica 1");
        assert_null(strstr(printed, "finds nothing that fits"));
        assert_null(strstr(printed, "allocators"));
    }
    must_run(SKYCC_PROGRAM " plan --costs costs.json --add name=c,like=a --add name=d,like=b --replicas 2 --pin 0=a");
    assert_printed("plan asked for (layer 0 on a; these groups of devices with ");
    must_run(SKYCC_PROGRAM " plan --costs costs.json --add name=c,like=a --add name=d,like=a --add name=e,like=a "
                           "--without b --replicas 2");
    assert_printed("these groups of devices with 2 times 2 micro-batches");
    assert_printed("of a step: 2 times 2 on 2 devices.");
    must_run(SKYCC_PROGRAM " explain shared.json --report svg");
    assert_printed("replica 0</text>");
    assert_printed("replica 1</text>");
    assert_printed("One step</text>");
    assert_printed("2 pipelines share");
    must_run("sed -i 's/gradient_bytes\":1000/&000000/g' costs.json");
    must_run(SKYCC_PROGRAM " plan --costs costs.json --replicas auto");
    assert_printed(" with 2 replicas.\nSeveral pipelines are taken if over 3% faster.");
}

/* A plan of as many stages, on devices of their own: the table of stages in the report for browsers. */
static const char *stage_table(int stages)
{
    FILE *costs = fopen("many.json", "w");
    assert_non_null(costs);
    fprintf(costs, "{\"format\":\"skycc.costs/1\",\"name\":\"many\",\"microbatches\":1,\"layers\":[");
    for (int i = 0; i < stages; i++)
        fprintf(costs,
                "%s{\"name\":\"layer.%d\",\"forward_s\":1,\"backward_s\":2,\"memory_bytes\":1,\"output_bytes\":8}",
                i ? "," : "", i);
    fprintf(costs, "],\"devices\":[");
    for (int i = 0; i < stages; i++)
        fprintf(costs, "%s{\"name\":\"board-%d\",\"slowdown\":1,\"memory_bytes\":9,\"region\":\"r\"}", i ? "," : "", i);
    fprintf(costs, "],\"links\":{\"regions\":[\"r\"],\"latency_s\":[[0]],\"bandwidth_Bps\":[[1e9]]}}");
    fclose(costs);
    ASSERT_RAN(SKYCC("plan --costs many.json --allocate even --report html"), 0, "</html>");
    char *begin = strstr(printed, "aria-label=\"Load and memory of every stage\"");
    assert_non_null(begin);
    while (*begin != '<') begin--;
    char *end = strstr(begin, "</table>");
    assert_non_null(end);
    *end = '\0';
    return begin;
}

/* All stages stand in the page. A hundred rows are shown whole, as those who scroll over a page and print it expect;
 * longer tables scroll by themselves, but not on paper. */
static void all_stages_are_in_the_page(void **state)
{
    (void)state;
    for (int stages = 100; stages <= 101; stages++) {
        const char *table = stage_table(stages), *last = stages == 100 ? ">board-99<" : ">board-100<";
        int rows = 0;
        for (const char *row = table; (row = strstr(row, "<tr><td class=n>")); row++) rows++;
        assert_int_equal(rows, stages);
        assert_non_null(strstr(table, last));
        assert_int_equal(strncmp(table, "<div class=\"wide\"", 17) == 0, stages == 100);
        assert_int_equal(strncmp(table, "<div class=\"wide tall\"", 22) == 0, stages > 100);
        assert_printed(".wide{overflow:visible}.tall{max-height:none}");
    }
}

/* ---- comparisons ---- */

static void differences_are_told(void **state)
{
    (void)state;
    write_text("costs.json", costs_text);
    ASSERT_RAN(SKYCC(PLAN "-o one.json"), 0, "period 1.200 s");
    ASSERT_RAN(SKYCC(PLAN "--pin 0-2=a --pin 3-5=b -o two.json"), 0, "period 1.800 s");
    ASSERT_RAN(SKYCC(PLAN "--without b -o three.json"), 0, "period 1.800 s");
    ASSERT_RAN(SKYCC("diff one.json one.json"), 0, ", unchanged", "no layer moved");
    ASSERT_RAN(SKYCC("diff one.json two.json"), 0, "period          1.200 s -> 1.800 s (+50.00%)", "layers 3-3: a -> b",
               "1 of 6 layers moved", "a: load 1.200 s -> 900.0 ms", "b: memory 2.00 MiB -> 3.00 MiB");
    ASSERT_RAN(SKYCC("diff one.json three.json"), 0, "devices used    2 -> 1", "b: no longer used", "- link a to b",
               "between regions: 1.95 KiB -> 0 B per micro-batch");
    ASSERT_RAN(SKYCC("diff one.json two.json --fail-above 2"), 0, "moved");
    ASSERT_RAN(SKYCC("diff one.json two.json --fail-above 1.5"), 1, "moved",
               "the new plan's period takes 1.8 s, more than the allowed 1.5 s");
    ASSERT_RAN(SKYCC("diff one.json"), 2, "no new plan is named");
    ASSERT_RAN(SKYCC("diff one.json two.json three.json"), 2, "unexpected argument 'three.json'");
    ASSERT_RAN(SKYCC("explain"), 2, "no plan is named");
    ASSERT_RAN(SKYCC("explain one.json two.json"), 2, "unexpected argument 'two.json'");
    ASSERT_RAN(SKYCC("explain one.json --what"), 2, "unrecognized option",
               "hint: skycc explain --help lists the options");
    ASSERT_RAN(SKYCC("explain one.json"), 0, " on 2 devices", "period 1.200 s");
    ASSERT_RAN(SKYCC("diff one.json missing.json"), 1, "missing.json: error: cannot open");
    ASSERT_RAN(
        SKYCC("plan --costs costs.json --without b --add name=c,memory=1MiB,region=paris --without a -o none.json"), 4,
        "no allocation");
    ASSERT_RAN(SKYCC("diff one.json none.json"), 4, "holds no plan");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_drawn),
        cmocka_unit_test(diverging_losses_are_drawn),
        cmocka_unit_test(long_logs_make_small_pictures),
        cmocka_unit_test(sites_have_a_line_each),
        cmocka_unit_test(devices_are_added),
        cmocka_unit_test(layers_are_pinned),
        cmocka_unit_test(steps_last_from_update_to_update),
        cmocka_unit_test(reports_tell_what_was_asked),
        cmocka_unit_test(restrictions_are_named),
        cmocka_unit_test(plans_are_drawn),
        cmocka_unit_test(replicas_are_in_every_form),
        cmocka_unit_test(all_stages_are_in_the_page),
        cmocka_unit_test(differences_are_told),
        cmocka_unit_test(crossings_are_listed),
        cmocka_unit_test(bad_additions_are_refused),
        cmocka_unit_test(runs_are_smoothed_and_compared),
        cmocka_unit_test(malformed_logs_are_refused_with_their_line),
    };
    return cmocka_run_group_tests(tests, scratch_folder_enter, scratch_folder_leave);
}
