/* Tables whose columns are named: TSV, CSV, JSON lines, labels, rows held out. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/safetensors.h"
#include "frontend/text/text_dataset.h"
#include "runtime/program/label_names.h"
#include "tests/common/scratch.h"

#define MODELS SKY_TEST_DATA "/../../models/glue"

enum { LENGTH = 16, THE = 1996, CAT = 4937, CLS = 101, SEP = 102 };

static Tokenizer *tokenizer;
static Scratch output;
static char *held_out; /* the file of held-out rows */

static int open_tokenizer(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    tokenizer = tokenizer_open(MODELS "/bert-base-uncased-vocab.txt", true, &diagnostics);
    output = scratch_text("");
    held_out = dataset_holdout_path(output.path);
    return tokenizer ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_free(tokenizer);
    unlink(output.path), unlink(held_out);
    free(held_out);
    return 0;
}

static const DatasetOptions by_name = {
    .task = DATASET_COLUMNS, .max_length = LENGTH, .text_columns = "text", .label_column = "label"};

/* What is said about a table; NULL if it is fine. free() it. */
static char *tokenize(const char *text, size_t size, DatasetOptions options, int *exit_code)
{
    Scratch table = scratch_file(text, size);
    Diagnostics diagnostics = {0};
    DatasetSummary summary;
    bool ok = dataset_tokenize(tokenizer, &options, table.path, output.path, &summary, &diagnostics);
    char *messages = diagnostics_text(&diagnostics);
    *exit_code = diagnostics.exit_code;
    assert_int_equal(ok, diagnostics.errors == 0);
    diagnostics_free(&diagnostics);
    unlink(table.path);
    if (!ok || *messages) return messages;
    free(messages);
    return NULL;
}

static void must_tokenize(const char *text, DatasetOptions options)
{
    int code;
    char *messages = tokenize(text, strlen(text), options, &code);
    if (messages) fail_msg("%s: %s", text, messages);
}

static SafeTensors open_file(const char *path)
{
    SafeTensors file;
    Diagnostics diagnostics = {0};
    assert_true(safetensors_open(&file, path, &diagnostics));
    return file;
}

static const void *tensor(const SafeTensors *file, const char *name, DType dtype, int64_t rows)
{
    const SafeTensor *found = safetensors_find(file, name);
    assert_non_null(found);
    assert_int_equal(found->dtype, dtype);
    assert_int_equal(found->shape.dim[0], rows);
    return found->data;
}

/* One row of each format, and its ids. */
static void every_format_gives_the_same_rows(void **state)
{
    (void)state;
    static const struct {
        TableFormat format;
        const char *text;
    } cases[] = {
        {TABLE_TSV, "id\tlabel\ttext\n1\t1\tthe cat\n2\t0\tcat\n"},
        {TABLE_TSV, "\xef\xbb\xbftext\tlabel\r\nthe cat\t1\r\n\r\ncat\t0"},
        {TABLE_CSV, "text,label\nthe cat,1\ncat,0\n"},
        {TABLE_CSV, "\xef\xbb\xbflabel,\"text\"\r\n1,\"the\r\ncat\"\r\n\"0\",cat\r\n"},
        {TABLE_CSV, "id,text,label\n\"a,\"\"b\"\"\",the cat,1\n,\"cat\",0"},
        {TABLE_JSONL, "{\"text\": \"the cat\", \"label\": 1}\n{\"label\": 0, \"text\": \"cat\", \"more\": [1]}\n"},
        {TABLE_JSONL,
         "{\"text\": \"\\u0074he cat\", \"label\": \"1\"}\r\n\r\n{\"text\": \"c\\u0000at\", \"label\": 0}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        DatasetOptions options = by_name;
        options.format = cases[i].format;
        must_tokenize(cases[i].text, options);
        SafeTensors file = open_file(output.path);
        const int32_t *ids = tensor(&file, "input_ids", DTYPE_I32, 2);
        assert_memory_equal(ids, ((int32_t[]){CLS, THE, CAT, SEP, 0}), 20);
        assert_memory_equal(ids + LENGTH, ((int32_t[]){CLS, CAT, SEP, 0}), 16);
        assert_memory_equal(tensor(&file, "lengths", DTYPE_I32, 2), ((int32_t[]){4, 3}), 8);
        assert_memory_equal(tensor(&file, "labels", DTYPE_I32, 2), ((int32_t[]){1, 0}), 8);
        assert_null(safetensors_metadata(&file, "labels"));
        safetensors_close(&file);
    }
}

static void quotes_of_csv_are_taken_off(void **state)
{
    (void)state;
    DatasetOptions options = by_name;
    options.format = TABLE_CSV;
    options.text_columns = "a,b";
    must_tokenize("a,b,label\n\"the \"\"cat\"\"\",\"cat, the\",yes\n\"\",the,no\n", options);
    SafeTensors file = open_file(output.path);
    const int32_t *ids = tensor(&file, "input_ids", DTYPE_I32, 2),
                  *types = tensor(&file, "token_type_ids", DTYPE_I32, 2);
    /* [CLS] the " cat " [SEP] cat , the [SEP] */
    assert_memory_equal(ids, ((int32_t[]){CLS, THE, 1000, CAT, 1000, SEP, CAT, 1010, THE, SEP, 0}), 44);
    assert_memory_equal(ids + LENGTH, ((int32_t[]){CLS, SEP, THE, SEP, 0}), 20);
    assert_int_equal(types[5], 0);
    assert_int_equal(types[6], 1);
    assert_string_equal(safetensors_metadata(&file, "labels"), "[\"no\",\"yes\"]");
    assert_memory_equal(tensor(&file, "labels", DTYPE_I32, 2), ((int32_t[]){1, 0}), 8);
    FREED_WITH(arena_free) Arena arena = {0};
    size_t count;
    const char *const *names = label_names_read(safetensors_metadata(&file, "labels"), &arena, &count);
    assert_int_equal(count, 2);
    assert_string_equal(names[1], "yes");
    safetensors_close(&file);
}

static void numbers_that_are_not_whole_are_values(void **state)
{
    (void)state;
    must_tokenize("text\tlabel\nthe\t2.5\ncat\t3\nthe\t-1e-1\n", by_name);
    SafeTensors file = open_file(output.path);
    assert_memory_equal(tensor(&file, "labels", DTYPE_F32, 3), ((float[]){2.5f, 3, -0.1f}), 12);
    safetensors_close(&file);
    DatasetOptions options = by_name;
    options.regression = true;
    must_tokenize("text\tlabel\nthe\t2\ncat\t3\n", options);
    file = open_file(output.path);
    assert_memory_equal(tensor(&file, "labels", DTYPE_F32, 2), ((float[]){2, 3}), 8);
    safetensors_close(&file);
    options = by_name;
    options.format = TABLE_JSONL;
    must_tokenize("{\"text\": \"the\", \"label\": 2.0}\n{\"text\": \"cat\", \"label\": 3.0}\n", options);
    file = open_file(output.path);
    tensor(&file, "labels", DTYPE_F32, 2);
    safetensors_close(&file);
}

static void several_columns_of_labels_are_a_matrix(void **state)
{
    (void)state;
    DatasetOptions options = by_name;
    options.label_column = "rude,kind,long";
    must_tokenize("kind\ttext\tlong\trude\n0\tthe\t1\t1\n1.0\tcat\t0\t0\n", options);
    SafeTensors file = open_file(output.path);
    assert_memory_equal(tensor(&file, "labels", DTYPE_F32, 2), ((float[]){1, 0, 1, 0, 1, 0}), 24);
    assert_int_equal(safetensors_find(&file, "labels")->shape.dim[1], 3);
    assert_string_equal(safetensors_metadata(&file, "labels"), "[\"rude\",\"kind\",\"long\"]");
    assert_string_equal(safetensors_metadata(&file, "problem_type"), "multi_label_classification");
    safetensors_close(&file);
    options.format = TABLE_JSONL;
    must_tokenize("{\"long\": true, \"text\": \"the\", \"kind\": false, \"rude\": 0}\n", options);
    file = open_file(output.path);
    assert_memory_equal(tensor(&file, "labels", DTYPE_F32, 1), ((float[]){0, 0, 1}), 12);
    safetensors_close(&file);
    options.regression = true;
    options.format = TABLE_CSV;
    must_tokenize("text,rude,kind,long\nthe,0.5,-2,7\n", options);
    file = open_file(output.path);
    assert_memory_equal(tensor(&file, "labels", DTYPE_F32, 1), ((float[]){0.5f, -2, 7}), 12);
    assert_string_equal(safetensors_metadata(&file, "problem_type"), "regression");
    safetensors_close(&file);
}

static void labels_of_another_file_are_kept(void **state)
{
    (void)state;
    Scratch former = scratch_text("");
    must_tokenize("text\tlabel\nthe\tnews\ncat\tarts\nthe\tsports\n", by_name);
    assert_int_equal(rename(output.path, former.path), 0);
    DatasetOptions options = by_name;
    options.labels_of = former.path;
    must_tokenize("text\tlabel\nthe\tsports\ncat\tnews\n", options);
    SafeTensors file = open_file(output.path);
    assert_memory_equal(tensor(&file, "labels", DTYPE_I32, 2), ((int32_t[]){2, 1}), 8);
    assert_string_equal(safetensors_metadata(&file, "labels"), "[\"arts\",\"news\",\"sports\"]");
    safetensors_close(&file);
    static const char unknown[] = "text\tlabel\nthe\tsports\ncat\tweather\ncat\tweather\n";
    int code;
    char *messages = tokenize(unknown, strlen(unknown), options, &code);
    assert_non_null(strstr(messages, ":3: error: 'weather' is not a label of"));
    assert_non_null(strstr(messages, "arts, news, sports"));
    assert_null(strstr(messages, ":4: error")); /* each once */
    assert_int_equal(code, EXIT_BAD_INPUT);
    free(messages);
    unlink(former.path);
}

/* Libraries write the same label in several ways: whole numbers as 1 and 1.0, truths as true and True. */
static void labels_of_another_file_may_be_written_otherwise(void **state)
{
    (void)state;
    static const struct {
        const char *former, *table;
        int32_t labels[2];
        bool classes;
    } cases[] = {{"text\tlabel\na\t5\nb\t3\n", "text\tlabel\na\t5.0\nb\t3.0\n", {1, 0}, true},
                 {"text\tlabel\na\t2\nb\t0\n", "text\tlabel\na\t2.0\nb\t00\n", {2, 0}, false},
                 {"text\tlabel\na\ttrue\nb\tfalse\n", "text\tlabel\na\tTrue\nb\tFALSE\n", {1, 0}, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Scratch former = scratch_text("");
        DatasetOptions options = by_name;
        options.classes = cases[i].classes;
        must_tokenize(cases[i].former, options);
        assert_int_equal(rename(output.path, former.path), 0);
        options.labels_of = former.path;
        must_tokenize(cases[i].table, options);
        SafeTensors file = open_file(output.path);
        assert_memory_equal(tensor(&file, "labels", DTYPE_I32, 2), cases[i].labels, 8);
        safetensors_close(&file);
        unlink(former.path);
    }
    Scratch former = scratch_text("");
    DatasetOptions options = by_name;
    options.classes = true;
    must_tokenize("text\tlabel\na\t1\nb\t01\n", options);
    assert_int_equal(rename(output.path, former.path), 0);
    options.labels_of = former.path;
    int code;
    char *messages = tokenize("text\tlabel\na\t1.0\n", 17, options, &code);
    assert_non_null(strstr(messages, "'1.0' is not a label of"));
    free(messages);
    unlink(former.path);
}

static void rows_are_held_out_by_the_seed(void **state)
{
    (void)state;
    enum { ROWS = 50 };
    FREED_WITH(buffer_free) Buffer text = {0};
    buffer_print(&text, "text\tlabel\n");
    for (int i = 0; i < ROWS; i++) buffer_print(&text, "the\t%d\n", i);
    int32_t former[5] = {0};
    for (int run = 0; run < 3; run++) {
        DatasetOptions options = by_name;
        options.holdout = run == 2 ? 5 : 0.1;
        options.seed = run == 2 ? 2 : 1;
        must_tokenize(buffer_text(&text), options);
        SafeTensors rest = open_file(output.path), held = open_file(held_out);
        const int32_t *kept = tensor(&rest, "labels", DTYPE_I32, ROWS - 5),
                      *taken = tensor(&held, "labels", DTYPE_I32, 5);
        int at = 0;
        for (int32_t i = 0; i < ROWS; i++) { /* both in order, and every row in one of them */
            if (at < 5 && taken[at] == i)
                at++;
            else
                assert_int_equal(kept[i - at], i);
        }
        assert_int_equal(at, 5);
        if (run == 1) assert_memory_equal(taken, former, sizeof former);
        if (run == 2) assert_memory_not_equal(taken, former, sizeof former);
        memcpy(former, taken, sizeof former);
        safetensors_close(&rest), safetensors_close(&held);
    }
}

static void rarer_labels_are_repeated(void **state)
{
    (void)state;
    enum { ROWS = 23, KINDS = 3 };
    static const int sizes[KINDS] = {12, 4, 7};
    FREED_WITH(buffer_free) Buffer text = {0};
    buffer_print(&text, "text\tlabel\n");
    for (int i = 0; i < ROWS; i++) buffer_print(&text, "%d\t%d\n", i, 5 * (i >= 12) + 2 * (i >= 16));
    DatasetOptions options = by_name;
    options.balance = true;
    must_tokenize(buffer_text(&text), options);
    SafeTensors file = open_file(output.path);
    const int32_t *labels = tensor(&file, "labels", DTYPE_I32, KINDS * sizes[0]);
    const int32_t *ids = safetensors_find(&file, "input_ids")->data;
    int copies[ROWS] = {0}, row = -1;
    for (int i = 0; i < KINDS * sizes[0]; i++) {
        for (row = 0; row < i && row < ROWS &&
                      memcmp(ids + (ptrdiff_t)row * LENGTH, ids + (ptrdiff_t)i * LENGTH, 4 * LENGTH) != 0;)
            row++;
        assert_in_range(row, 0, ROWS - 1); /* those of the table come first, in order */
        copies[row]++;
        assert_int_equal(labels[i], labels[row]);
    }
    for (int i = 0; i < ROWS; i++) {
        int size = sizes[(i >= 12) + (i >= 16)];
        assert_in_range(copies[i], sizes[0] / size, (sizes[0] + size - 1) / size);
    }
    safetensors_close(&file);
    options.holdout = 3;
    must_tokenize(buffer_text(&text), options);
    SafeTensors held = open_file(held_out);
    tensor(&held, "labels", DTYPE_I32, 3);
    safetensors_close(&held);
}

static void refuses(const char *text, size_t size, DatasetOptions options, int exit_code, const char *expected)
{
    int code;
    FREED char *messages = tokenize(text, size, options, &code);
    if (!messages || !strstr(messages, expected)) fail_msg("'%s' is not in: %s", expected, messages ? messages : "");
    assert_int_equal(code, exit_code);
}

static void malformed_tables_are_refused_with_their_places(void **state)
{
    (void)state;
    static const struct {
        TableFormat format;
        const char *text, *expected;
    } cases[] = {
        {TABLE_TSV, "", "holds no examples"},
        {TABLE_TSV, "text\tlabel\n", "holds no examples"},
        {TABLE_TSV, "review\tlabel\na\t1\n",
         ":1: error: names no column 'text'\n    hint: the columns are review, label"},
        {TABLE_TSV, "text\tlabel\ttext\na\t1\tb\n", ":1: error: names the column 'text' twice"},
        {TABLE_TSV, "text\tlabel\na\n", ":2: error: has 1 columns where the first line has 2"},
        {TABLE_TSV, "text\tlabel\na\t\n", ":2: error: has no label"},
        {TABLE_TSV, "text\tlabel\na\t1\nb\tx\n", ":3: warning: 'x' is not a number, but 1 of the 2"},
        {TABLE_CSV, "text,label\na,\"1\nb,2\n", ":2:3: error: the quote that opens here is never closed"},
        {TABLE_CSV, "text,label\n\"a\"b,1\n", ":2:4: error: text follows a closing quote"},
        {TABLE_CSV, "text,label\na\"b\",1\n", ":2:2: error: a quote inside a field"},
        {TABLE_CSV, "text,label\n\"a\n\nb\",1\nc\n", ":5: error: has 1 columns"},
        {TABLE_CSV, "text,label\n\xff,1\n", ":2: error: is not UTF-8: byte 1"},
        {TABLE_CSV, "text,label\ra,1\rb,2\r", ":1: error: its lines end with carriage returns alone"},
        {TABLE_JSONL, "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\"}\n", ":2: error: has no label"},
        {TABLE_JSONL, "{\"label\": 1}\n", ":1: error: has no 'text'"},
        {TABLE_JSONL, "{\"text\": null, \"label\": 1}\n", ":1: error: has no 'text'"},
        {TABLE_JSONL, "{\"text\": [1], \"label\": 1}\n", ":1: error: 'text' is neither text nor a number"},
        {TABLE_JSONL, "{\"text\": \"a\", \"text\": \"b\"}\n", ":1:20: error: duplicate object key"},
        {TABLE_JSONL, "\n[1]\n", ":1: error: is not a JSON object"},
        {TABLE_JSONL, "{\"text\": \"a\", \"label\": 1}\n[1]\n", ":2: error: is not a JSON object"},
        {TABLE_JSONL, "{\"text\": \"a\"\n", ":1:12: error: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        DatasetOptions options = by_name;
        options.format = cases[i].format;
        refuses(cases[i].text, strlen(cases[i].text), options,
                strstr(cases[i].expected, "warning") ? 0 : EXIT_BAD_INPUT, cases[i].expected);
    }
    DatasetOptions options = by_name;
    refuses("text\tlabel\na\tx\0y\n", 17, options, EXIT_BAD_INPUT, ":2: error: the label contains a zero byte");
    options.text_columns = "a,,b";
    refuses("a\tb\n", 4, options, EXIT_USAGE, "--text takes column names");
    options = by_name;
    options.regression = true;
    refuses("text\tlabel\na\thigh\n", 18, options, EXIT_BAD_INPUT, ":2: error: the label 'high' is not a number");
    options = by_name;
    options.label_column = "label,more";
    refuses("text\tlabel\na\t1\n", 15, options, EXIT_BAD_INPUT, ":1: error: names no column 'more'");
    refuses("text\tmore\tlabel\na\t2\t1\n", 23, options, EXIT_BAD_INPUT,
            "'2' of 'more' is neither 0 nor 1\n    hint: with --regression");
    refuses("text\tmore\tlabel\na\t1\t\n", 22, options, EXIT_BAD_INPUT, "has no 'label'");
    options.labels_of = output.path;
    refuses("text\tmore\tlabel\na\t1\t1\n", 23, options, EXIT_USAGE,
            "several labels take their names from their columns");
    options = by_name;
    options.balance = true;
    refuses("text\tlabel\na\t0.5\n", 17, options, EXIT_BAD_INPUT,
            "--balance needs one class per row, but these rows have values");
    options.label_column = NULL;
    options.unlabelled = true;
    refuses("text\tlabel\na\t0.5\n", 17, options, EXIT_BAD_INPUT, "but these rows have no labels");
    options = by_name;
    options.holdout = 0.1;
    refuses("text\tlabel\na\t1\nb\t1\n", 19, options, EXIT_BAD_INPUT,
            "has 2 examples: --holdout leaves none to hold out");
    options.holdout = 2;
    refuses("text\tlabel\na\t1\nb\t1\n", 19, options, EXIT_BAD_INPUT,
            "has 2 examples: --holdout leaves none to train on");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_gives_the_same_rows),
        cmocka_unit_test(quotes_of_csv_are_taken_off),
        cmocka_unit_test(numbers_that_are_not_whole_are_values),
        cmocka_unit_test(several_columns_of_labels_are_a_matrix),
        cmocka_unit_test(labels_of_another_file_are_kept),
        cmocka_unit_test(labels_of_another_file_may_be_written_otherwise),
        cmocka_unit_test(rows_are_held_out_by_the_seed),
        cmocka_unit_test(rarer_labels_are_repeated),
        cmocka_unit_test(malformed_tables_are_refused_with_their_places),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
