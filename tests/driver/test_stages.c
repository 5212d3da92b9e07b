/* The same training however it is cut: 24 layers in 1, 2, 4 and 8 stages, GPipe and 1F1B, give the same losses to the
 * last digit, those of the reference; and what they trained can be exported and evaluated. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"
#include "tests/common/command.h"
#include "tests/common/limits.h"
#include "tests/common/scratch.h"

#define MODEL SKY_TEST_DATA "/bert/bert-nano24-seqcls-opset14-dyn-nofold.onnx"
#define REFERENCE SKY_TEST_DATA "/bert/nano24.ref.safetensors"

#ifdef __x86_64__
#define BASELINE_CPU "x86-64-v3" /* has no instructions for bf16 */
#else
#define BASELINE_CPU "native"
#endif
#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { STEPS = 10, LOSSES = STEPS + 1 };

static char expected_losses[1 << 12]; /* of the first run, as text */

/* The reference's batch as a data set. */
static void write_data_of(const char *path)
{
    SafeTensors reference;
    static const char *const names[] = {"input_ids", "attention_mask", "token_type_ids", "labels"};
    static int32_t values[4][8 * 16];
    SafeTensorsWriter *writer = safetensors_writer();
    open_tensors(&reference, path);
    for (int t = 0; t < 4; t++) {
        char name[64];
        snprintf(name, sizeof name, "in/%s", names[t]);
        const SafeTensor *tensor = safetensors_find(&reference, name);
        assert_non_null(tensor);
        int64_t count = shape_elements(&tensor->shape);
        assert_in_range(count, 1, 8 * 16);
        for (int64_t i = 0; i < count; i++) values[t][i] = (int32_t)element_as_integer(tensor->dtype, tensor->data, i);
        safetensors_writer_add(writer, names[t], DTYPE_I32, &tensor->shape, values[t]);
    }
    Diagnostics diagnostics = {0};
    assert_true(safetensors_write(writer, "data.safetensors", &diagnostics));
    safetensors_close(&reference);
}

static void write_cluster(int devices, int threads, const char *memory)
{
    FILE *file = fopen("cluster.yaml", "w");
    assert_non_null(file);
    fputs("devices:\n", file);
    for (int i = 0; i < devices; i++)
        fprintf(file, "  - {name: device-%d, threads: %d, memory: %s, gflops: 10, bandwidth: 10GB/s}\n", i, threads,
                memory);
    fclose(file);
}

static int prepare(void **state)
{
    if (scratch_folder_enter(state) != 0) return -1;
    write_data_of(REFERENCE);
    return 0;
}

/* The column "loss" of a log, a value a line, as it is written there. */
static void read_losses(const char *path, char text[static sizeof expected_losses])
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char line[512];
    int column = -1, rows = 0;
    text[0] = '\0';
    while (fgets(line, sizeof line, file)) {
        char *rest = line, *field;
        for (int i = 0; (field = strsep(&rest, ",\n")) != NULL; i++) {
            if (column < 0 && strcmp(field, "loss") == 0) {
                column = i;
                break;
            }
            if (i != column) continue;
            strcat(strcat(text, field), "\n");
            rows++;
        }
    }
    fclose(file);
    assert_int_equal(rows, LOSSES);
}

static void expect_reference(const char *text)
{
    SafeTensors reference;
    open_tensors(&reference, REFERENCE);
    const SafeTensor *losses = safetensors_find(&reference, "adamw/loss");
    const SafeTensor *allowed = safetensors_find(&reference, "tolerance/adamw/loss");
    assert_non_null(losses);
    assert_non_null(allowed);
    char *end = (char *)text;
    for (int i = 0; i < LOSSES; i++) {
        double error = fabs(strtod(end, &end) - element_as_double(DTYPE_F64, losses->data, i));
        if (!(error <= element_as_double(DTYPE_F64, allowed->data, i))) fail_msg("loss %d is %g off", i, error);
    }
    safetensors_close(&reference);
}

typedef struct Cut {
    int stages;
    const char *schedule;
    const char *options; /* further ones of skycc compile */
    int threads, microbatches;
} Cut;

enum { ROWS = 8 };

static void compile_for_cluster(const Cut *cut, const char *allocation)
{
    must_run(SKYCC_PROGRAM " compile " MODEL
                           " -d cluster.yaml -o programs --dim batch=%d --dim seq=16 --microbatches %d"
                           " --allocate %s --schedule %s"
                           " --optimizer adamw:lr=1e-3,beta1=0.9,beta2=0.999,eps=1e-8,weight_decay=0.01 -q %s",
             ROWS / cut->microbatches, cut->microbatches, allocation, cut->schedule, cut->options);
}

static void compile(const Cut *cut, const char *allocation)
{
    write_cluster(cut->stages, cut->threads, "1GiB");
    compile_for_cluster(cut, allocation);
}

static void losses_are_the_same(void **state)
{
    const Cut *cut = *state;
    char losses[sizeof expected_losses];
    compile(cut, "even");
    must_run("test -x programs/stage-%02d && ! test -e programs/stage-%02d", cut->stages - 1, cut->stages);
    must_run("programs/train --data data.safetensors --no-shuffle --steps %d --log log.csv --quiet", LOSSES);
    read_losses("log.csv", losses);
    if (!expected_losses[0]) {
        expect_reference(losses);
        strcpy(expected_losses, losses);
    }
    assert_string_equal(losses, expected_losses);
}

/* Two devices that hold the model, but not four micro-batches' stash. */
static void short_memory_means_recomputing(void **state)
{
    static const char command[] = SKYCC_PROGRAM " compile " MODEL " -d cluster.yaml -o programs --dim batch=2"
                                                " --dim seq=16 --microbatches 4 --schedule gpipe --optimizer"
                                                " adamw:lr=1e-3,beta1=0.9,beta2=0.999,eps=1e-8,weight_decay=0.01 -q";
    char losses[sizeof expected_losses];
    (void)state;
    write_cluster(2, 1, "3500KiB");
    must_run("%s --recompute never 2>message || test $? = 4", command);
    must_run("grep -q 'fits the memory' message");
    must_run("%s", command);
    must_run("grep '\"recompute\":true' programs/plan.json >message");
    must_run(SKYCC_PROGRAM " verify programs/plan.json --costs programs/costs.json >message");
    must_run("programs/train --data data.safetensors --no-shuffle --steps %d --log log.csv --quiet", LOSSES);
    read_losses("log.csv", losses);
    assert_string_equal(losses, expected_losses);

    /* Not even one micro-batch's, all at once. */
    write_cluster(1, 1, "4300KiB");
    must_run("%s 2>message", command);
    must_run("grep '\"recompute\":\"layers\"' programs/plan.json >message");
    must_run(SKYCC_PROGRAM " verify programs/plan.json --costs programs/costs.json >message");
}

/* A device that keeps inputs and labels has the first and the last stage; where memory is short, stages recompute. */
static void losses_are_the_same_around_a_loop(void **state)
{
    static const char *const schedules[] = {"1f1b", "auto", "gpipe"}, *const memory[] = {"1GiB", "1GiB", "2500KiB"};
    (void)state;
    for (int i = ADDRESS_SANITIZER ? 2 : 0; i < 3; i++) {
        char losses[sizeof expected_losses];
        const Cut cut = {3, schedules[i], "", 1, 4};
        write_cluster(cut.stages, cut.threads, memory[i]);
        must_run("echo 'keep: {inputs: device-1, labels: device-1}' >>cluster.yaml");
        compile_for_cluster(&cut, "optimal");
        must_run("test $(grep -c '\"recompute\":true' programs/plan.json) %s", i == 2 ? "-gt 0" : "= 0");
        must_run("grep -q '\"device\":\"device-1\",\"replica\":0,\"stages\":.0,3.' programs/plan.json");
        must_run("programs/train --data data.safetensors --no-shuffle --steps %d --log log.csv --quiet", LOSSES);
        read_losses("log.csv", losses);
        assert_string_equal(losses, expected_losses);
    }
}

/* With dropout, every cut sees the losses of the first one to the last digit, and other micro-batches and another
 * optimisation of the graph but for rounding. */
static char dropped_losses[sizeof expected_losses];

static void train_with_dropout(const Cut *cut, const char *options, char losses[static sizeof expected_losses])
{
    compile(cut, "even");
    must_run("programs/train --data data.safetensors --no-shuffle --steps %d --log log.csv --quiet %s", LOSSES,
             options);
    read_losses("log.csv", losses);
}

static void losses_with_dropout_are_the_same(void **state)
{
    char losses[sizeof expected_losses];
    train_with_dropout(*state, "", losses);
    if (!dropped_losses[0]) strcpy(dropped_losses, losses);
    assert_string_equal(losses, dropped_losses);
    assert_string_not_equal(losses, expected_losses);
}

static void losses_with_dropout_are_close(void **state)
{
    char losses[sizeof expected_losses], *found = losses, *expected = dropped_losses;
    train_with_dropout(*state, "", losses);
    for (int i = 0; i < LOSSES; i++) assert_true(fabs(strtod(found, &found) - strtod(expected, &expected)) < 1e-4);
}

static void dropout_depends_on_the_seed_and_ends_with_training(void **state)
{
    static const Cut cut = {2, "1f1b", "--dropout 0.1", 1, 4}, without = {2, "1f1b", "", 1, 4};
    char losses[sizeof expected_losses];
    (void)state;
    train_with_dropout(&cut, "--seed 1", losses);
    assert_string_not_equal(losses, dropped_losses);
    compile(&cut, "even");
    must_run("programs/train --data data.safetensors --eval-data data.safetensors --lr 0 --steps 1 >with.txt");
    compile(&without, "even");
    must_run("programs/train --data data.safetensors --eval-data data.safetensors --lr 0 --steps 1 >without.txt");
    must_run("grep -h eval with.txt >a && grep -h eval without.txt >b && cmp a b");
}

/* Products of bf16 numbers: the same losses in every cut. */
static char rounded_losses[sizeof expected_losses];

static void losses_in_bf16_are_the_same(void **state)
{
    char losses[sizeof expected_losses];
    train_with_dropout(*state, "", losses);
    if (!rounded_losses[0]) strcpy(rounded_losses, losses);
    assert_string_equal(losses, rounded_losses);
    assert_string_not_equal(losses, expected_losses);
}

/* They are close to those in float32, by the interpreter, on this processor and on one that has to emulate bf16. (A
 * model of two layers: 24 tiny ones train chaotically in any precision.) */
static void losses_in_bf16_are_close(void **state)
{
    (void)state;
    static const char *const options[] = {"--precision f32", "--precision bf16 --interpret", "--precision bf16",
                                          ("--precision bf16 --target-cpu " BASELINE_CPU)};
    double losses[COUNT(options)][LOSSES];
    for (size_t i = 0; i < COUNT(options); i++) {
        SafeTensors output;
        must_run(SKYCC_PROGRAM " run " SKY_TEST_DATA "/bert/bert-nano-seqcls-opset17-dyn.onnx --inputs " SKY_TEST_DATA
                               "/bert/seqcls.ref.safetensors -o out.safetensors --train %d"
                               " --optimizer adamw:lr=1e-3,weight_decay=0.01 %s",
                 STEPS, options[i]);
        open_tensors(&output, "out.safetensors");
        const SafeTensor *loss = safetensors_find(&output, "train/loss");
        assert_non_null(loss);
        for (int s = 0; s < LOSSES; s++) losses[i][s] = element_as_double(loss->dtype, loss->data, s);
        safetensors_close(&output);
    }
    for (size_t i = 1; i < COUNT(options); i++) {
        for (int s = 0; s < LOSSES; s++)
            if (!(fabs(losses[i][s] / losses[0][s] - 1) <= 0.01))
                fail_msg("%s, loss %d: %g, not %g", options[i], s, losses[i][s], losses[0][s]);
        assert_true(fabs(losses[i][0] / losses[1][0] - 1) <=
                    1e-5); /* before rounding amplifies other orders of addition */
        assert_true(losses[i][0] != losses[0][0]);
    }
}

static void emulated_bf16_is_warned_of(void **state)
{
    (void)state;
    static const struct {
        const char *precision, *processor, *warning;
        int code; /* grep's */
    } cases[] = {{"bf16", "x86-64-v3", "warning.*bf16", 0},
                 {"bf16", "cooperlake", "warning.*bf16", 1},
                 {"bf16x3", "cooperlake", "bf16x3 computes as f32", 0},
                 {"bf16x3", "sapphirerapids", "bf16x3", 1}};
    write_cluster(1, 1, "1GiB");
    for (size_t i = 0; i < COUNT(cases); i++)
        must_run(SKYCC_PROGRAM " compile " MODEL " -d cluster.yaml -o programs --dim batch=2 --dim seq=16 -q"
                               " --precision %s --target-cpu %s 2>warnings && { grep -q '%s' warnings; [ $? = %d ]; }",
                 cases[i].precision, cases[i].processor, cases[i].warning, cases[i].code);
    /* Plans expect products to be faster, in layers that are not tiny. */
    must_run(SKYCC_PROGRAM " bert --layers 1 --hidden 256 --heads 4 --vocab 100 -o wide.onnx");
    for (int bf16 = 0; bf16 < 2; bf16++)
        must_run(SKYCC_PROGRAM " compile wide.onnx"
                               " -d cluster.yaml -o %d.json --dim batch=2 --dim seq=16 -q --emit=costs"
                               " --precision %s",
                 bf16, bf16 ? "bf16" : "f32");
    must_run("/usr/bin/python3 -c 'import json; a, b = (sum(l[\"forward_s\"] for l in "
             "json.load(open(f\"{i}.json\"))[\"layers\"])"
             " for i in (0, 1)); assert b < a, (a, b)'");
}

/* Another model than the 24 layers, in so many stages; its warnings are not what is tested. */
static void compile_other(const char *name, int stages, const char *options)
{
    write_cluster(stages, 1, "1GiB");
    must_run(SKYCC_PROGRAM " compile " SKY_TEST_DATA
                           "/bert/%s.onnx -d cluster.yaml -o programs --dim batch=1 --dim seq=16"
                           " --microbatches 4 --allocate even -q %s 2>warnings",
             name, options);
}

/* Parameters that several layers share, in one stage and in several: the embeddings that are a decoder too, and gains
 * and biases that an exporter merged and that are kept so. */
static void shared_parameters_train_alike_in_any_stages(void **state)
{
    static const struct {
        const char *model, *reference, *options;
    } cases[] = {{"bert-nano-mlm-opset17-dyn", "mlm", ""},
                 {"bert-nano-seqcls-opset17-dyn-dedup-trap-eval-nofold", "fresh", "--keep-ties"}};
    (void)state;
    for (int c = 0; c < (ADDRESS_SANITIZER ? 1 : 2); c++) {
        char path[512], expected[sizeof expected_losses], losses[sizeof expected_losses];
        snprintf(path, sizeof path, SKY_TEST_DATA "/bert/%s.ref.safetensors", cases[c].reference);
        write_data_of(path);
        for (int stages = 1; stages <= 4; stages += 3) {
            compile_other(cases[c].model, stages, cases[c].options);
            must_run("programs/train --data data.safetensors --no-shuffle --steps %d --log log.csv --quiet"
                     " --checkpoint tied-%d --clip 1",
                     LOSSES, stages);
            must_run(SKYCC_PROGRAM " export " SKY_TEST_DATA "/bert/%s.onnx tied-%d -o tied-%d.onnx", cases[c].model,
                     stages, stages);
            read_losses("log.csv", stages == 1 ? expected : losses);
        }
        assert_string_equal(losses, expected);
        must_run("cmp tied-1.onnx tied-4.onnx && rm -r tied-1 tied-4");
    }
}

/* An export in training mode brings its own Dropout nodes. */
static void dropout_of_an_export_is_the_same_in_any_stages(void **state)
{
    static const char name[] = "bert-nano-seqcls-opset13-dyn-traindrop";
    static const char *const options[] = {"", "", "--dropout off"};
    static const int stages[] = {1, 2, 2};
    char losses[3][sizeof expected_losses];
    (void)state;
    write_data_of(SKY_TEST_DATA "/bert/seqcls.ref.safetensors");
    for (int i = 0; i < 3; i++) {
        compile_other(name, stages[i], options[i]);
        must_run("test -x programs/stage-%02d", stages[i] - 1);
        must_run("programs/train --data data.safetensors --no-shuffle --steps %d --log log.csv --quiet", LOSSES);
        read_losses("log.csv", losses[i]);
    }
    assert_string_equal(losses[1], losses[0]);
    assert_string_not_equal(losses[2], losses[0]); /* it was there */
}

static void what_was_trained_can_be_exported_and_evaluated(void **state)
{
    const Cut cut = {4, "1f1b", "", 1, 4};
    (void)state;
    compile(&cut, "optimal");
    must_run("programs/train --data data.safetensors --no-shuffle --steps %d --checkpoint checkpoints --quiet", STEPS);
    must_run(SKYCC_PROGRAM " export " MODEL " checkpoints -o trained.onnx");
    must_run("/usr/bin/python3 -c 'import onnx.checker; onnx.checker.check_model(\"trained.onnx\")'");
    must_run(SKYCC_PROGRAM " run trained.onnx --inputs " REFERENCE
                           " -o out.safetensors --loss cross-entropy --interpret");
    SafeTensors reference, output;
    open_tensors(&reference, REFERENCE);
    open_tensors(&output, "out.safetensors");
    const SafeTensor *losses = safetensors_find(&reference, "adamw/loss"), *loss = safetensors_find(&output, "loss");
    assert_non_null(losses);
    assert_non_null(loss);
    double expected = element_as_double(DTYPE_F64, losses->data, STEPS);
    assert_true(fabs(element_as_double(loss->dtype, loss->data, 0) - expected) <= 1e-4 * expected);
    safetensors_close(&reference);
    safetensors_close(&output);
}

/* Rows of made-up ids, all of whose masks are ones; the labels of every four rows are 0 1 2 0. */
static void write_made_up_data(const char *const *names, int name_count)
{
    enum { DATA_ROWS = 16, LENGTH = 16, MOST = 5 };
    static int32_t values[MOST][DATA_ROWS * LENGTH];
    SafeTensorsWriter *writer = safetensors_writer();
    Diagnostics diagnostics = {0};
    assert_in_range(name_count, 1, MOST);
    for (int t = 0; t < name_count; t++) {
        bool labels = strcmp(names[t], "labels") == 0, ids = strncmp(names[t], "input_ids", 9) == 0;
        Shape shape = {labels ? 1 : 2, {DATA_ROWS, LENGTH}};
        for (int i = 0; i < DATA_ROWS * LENGTH; i++)
            values[t][i] = labels ? i % 4 % 3 : ids ? 3 + (i * 37 + t * 11) % 190 : 1;
        safetensors_writer_add(writer, names[t], DTYPE_I32, &shape, values[t]);
    }
    assert_true(safetensors_write(writer, "data.safetensors", &diagnostics));
}

/* Models in which more than one tensor crosses between layers: one that every layer makes again (a bias of relative
 * positions), and one that travels through all stages (the embedding of the first of two towers). */
static void side_tensors_train_alike_in_any_stages(void **state)
{
    static const char *const inputs[] = {"input_ids", "attention_mask", "labels", "input_ids_b", "attention_mask_b"};
    static const struct {
        const char *model;
        int inputs, layers;
    } cases[] = {{"mpnet_seqcls6", 3, 15}, {"minilm_mnr-ts17", 5, 11}};
    static const int stages[] = {1, 2, 4};
    (void)state;
    for (size_t c = ADDRESS_SANITIZER ? 1 : 0; c < COUNT(cases); c++) {
        char losses[sizeof expected_losses], first[sizeof expected_losses];
        write_made_up_data(inputs, cases[c].inputs);
        for (size_t s = 0; s < COUNT(stages); s += ADDRESS_SANITIZER ? 2 : 1) {
            write_cluster(stages[s], 1, "1GiB");
            must_run(SKYCC_PROGRAM " compile " SKY_TEST_DATA
                                   "/exports/%s.onnx -d cluster.yaml -o programs --dim batch=4"
                                   " --dim seq=16 --microbatches 4 --allocate even -q",
                     cases[c].model);
            must_run("grep -q '\"layers\":%d,' programs/plan.json", cases[c].layers);
            must_run("programs/train --data data.safetensors --steps %d --log log.csv --quiet", LOSSES);
            read_losses("log.csv", s ? losses : first);
            if (s) assert_string_equal(losses, first);
        }
    }
}

int main(void)
{
    /* What skycc run does, and the reference. */
    setenv("SKYCC_OPTIONS", "--schedule-lr constant --warmup 0 --clip 0 --no-decay none", 1);
    static Cut cuts[] = {{1, "1f1b", "", 1, 4},
                         {1, "gpipe", "", 1, 4},
                         {2, "1f1b", "", 1, 4},
                         {2, "gpipe", "", 1, 4},
                         {4, "1f1b", "", 1, 4},
                         {4, "gpipe", "", 1, 4},
                         {8, "1f1b", "", 1, 4},
                         {8, "gpipe", "", 1, 4},
                         {4, "zb", "", 1, 4},
                         {8, "zb", "", 1, 4},
                         {4, "auto", "", 1, 4},
                         {2, "gpipe", "--recompute always", 1, 4},
                         {4, "auto", "--recompute layers", 1, 4}};
    static Cut dropped[] = {{1, "gpipe", "--dropout 0.1", 1, 4},
                            {2, "1f1b", "--dropout 0.1", 2, 4},
                            {4, "gpipe", "--dropout 0.1 --recompute layers", 1, 4},
                            {4, "1f1b", "--dropout 0.1", 1, 4}};
    static Cut nearly[] = {{2, "1f1b", "--dropout 0.1", 1, 2}, {1, "1f1b", "--dropout 0.1 --no-prune", 1, 8}};
    static Cut rounded[] = {{1, "1f1b", "--precision bf16", 2, 4},
                            {4, "gpipe", "--precision bf16", 1, 4},
                            {2, "1f1b", "--precision bf16 --recompute always", 1, 4},
                            {3, "zb", "--precision bf16 --recompute layers", 1, 4}};
    static const struct {
        CMUnitTestFunction test;
        Cut *cuts;
        size_t count;
    } groups[] = {{losses_are_the_same, cuts, COUNT(cuts)},
                  {losses_with_dropout_are_the_same, dropped, COUNT(dropped)},
                  {losses_with_dropout_are_close, nearly, COUNT(nearly)},
                  {losses_in_bf16_are_the_same, rounded, COUNT(rounded)}};
    enum { MOST = 32 };
    struct CMUnitTest tests[MOST];
    char names[MOST][96];
    int count = 0;
    for (size_t g = 0; g < COUNT(groups); g++)
        for (size_t i = 0; i < groups[g].count; i += ADDRESS_SANITIZER ? 7 : 1) {
            Cut *cut = &groups[g].cuts[i];
            snprintf(names[count], sizeof names[count], "%d stages, %s, %d micro-batches%s%s", cut->stages,
                     cut->schedule, cut->microbatches, *cut->options ? ", " : "", cut->options);
            tests[count] = (struct CMUnitTest){names[count], groups[g].test, NULL, NULL, cut};
            count++;
        }
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(losses_are_the_same_around_a_loop);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(short_memory_means_recomputing);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(dropout_depends_on_the_seed_and_ends_with_training);
    if (!ADDRESS_SANITIZER) { /* LLVM's work for other processors, nearly all of it */
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(losses_in_bf16_are_close);
#ifdef __x86_64__
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(emulated_bf16_is_warned_of);
#endif
    }
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(what_was_trained_can_be_exported_and_evaluated);
    /* The last ones: they bring their own data. */
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(shared_parameters_train_alike_in_any_stages);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(side_tensors_train_alike_in_any_stages);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(dropout_of_an_export_is_the_same_in_any_stages);
    return _cmocka_run_group_tests("stages", tests, (size_t)count, prepare, scratch_folder_leave);
}
