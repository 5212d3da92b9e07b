#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>

#include "base/buffer.h"
#include "base/safetensors.h"
#include "frontend/text/bert_tokenizer.h"
#include "frontend/text/text_dataset.h"
#include "tests/common/command.h"
#include "tests/common/scratch.h"

#define GLUE SKY_TEST_DATA "/glue"
#define MODELS SKY_TEST_DATA "/../../models/glue"

/* One tokenised file and what was said about it. */
typedef struct Result {
    bool ok;
    SafeTensors file; /* open if ok */
    DatasetSummary summary;
    char *messages;
    int exit_code;
} Result;

static Tokenizer *tokenizer;
static BertTokenizer *vocabulary; /* the same, for its pieces */

static int open_tokenizer(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    tokenizer = tokenizer_open(MODELS "/bert-base-uncased-vocab.txt", true, &diagnostics);
    vocabulary = bert_tokenizer_open(MODELS "/bert-base-uncased-vocab.txt", true, &diagnostics);
    return tokenizer && vocabulary ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_free(tokenizer);
    bert_tokenizer_free(vocabulary);
    return 0;
}

static Result tokenize(const char *tsv, DatasetOptions options)
{
    Scratch output = scratch_text("");
    Diagnostics diagnostics = {0};
    Result result = {0};
    result.ok = dataset_tokenize(tokenizer, &options, tsv, output.path, &result.summary, &diagnostics);
    if (result.ok) assert_true(safetensors_open(&result.file, output.path, &diagnostics));
    result.messages = diagnostics_text(&diagnostics);
    result.exit_code = diagnostics.exit_code;
    diagnostics_free(&diagnostics);
    unlink(output.path);
    return result;
}

static Result tokenize_text(const char *text, DatasetTask task, int max_length)
{
    Scratch tsv = scratch_text(text);
    Result result = tokenize(tsv.path, (DatasetOptions){.task = task, .max_length = max_length});
    unlink(tsv.path);
    return result;
}

static void discard(Result *result)
{
    if (result->ok) safetensors_close(&result->file);
    free(result->messages);
}

static const int32_t *values(const Result *result, const char *name)
{
    const SafeTensor *tensor = safetensors_find(&result->file, name);
    assert_non_null(tensor);
    assert_int_equal(tensor->dtype, DTYPE_I32);
    return tensor->data;
}

/* Checks one row against expected ids; `first` tokens belong to segment 0. */
static void expect_row(const Result *result, size_t row, size_t length, const json_t *ids, size_t first)
{
    const int32_t *input = values(result, "input_ids") + row * length,
                  *mask = values(result, "attention_mask") + row * length,
                  *types = values(result, "token_type_ids") + row * length;
    size_t count = json_array_size(ids);
    assert_true(count <= length);
    assert_int_equal(values(result, "lengths")[row], count);
    for (size_t i = 0; i < length; i++) {
        assert_int_equal(input[i], i < count ? json_integer_value(json_array_get(ids, i)) : 0);
        assert_int_equal(mask[i], i < count);
        assert_int_equal(types[i], i >= first && i < count);
    }
}

static int32_t mnli_label(const char *name)
{
    return strcmp(name, "contradiction") == 0 ? 0 : strcmp(name, "entailment") == 0 ? 1 : 2;
}

static void glue_mnli_files_give_the_known_ids(void **state)
{
    (void)state;
    FILE *golden = fopen(GLUE "/fastnlp-mnli.jsonl", "r");
    assert_non_null(golden);
    int lines = 0;
    for (json_t *entry; (entry = json_loadf(golden, JSON_DISABLE_EOF_CHECK, NULL)); lines++) {
        char path[512];
        snprintf(path, sizeof path, GLUE "/mnli-%s.tsv", json_string_value(json_object_get(entry, "file")));
        int length = (int)json_integer_value(json_object_get(entry, "max_len"));
        size_t row = (size_t)strtoul(json_string_value(json_object_get(entry, "index")), NULL, 10);
        Result result = tokenize(path, (DatasetOptions){.task = DATASET_MNLI, .max_length = length});
        assert_true(result.ok);
        if (row == 11) row = 5; /* the sample of train.tsv leaves out numbers 5 to 10 */
        const json_t *types = json_object_get(entry, "token_type_ids");
        size_t first = 0;
        while (json_integer_value(json_array_get(types, first)) == 0) first++;
        expect_row(&result, row, (size_t)length, json_object_get(entry, "input_ids"), first);
        assert_int_equal(values(&result, "labels")[row],
                         mnli_label(json_string_value(json_object_get(entry, "label"))));
        discard(&result);
        json_decref(entry);
    }
    assert_int_equal(lines, 48);
    fclose(golden);
}

static void ten_thousand_pairs_give_the_known_ids(void **state)
{
    (void)state;
    Scratch tsv = scratch_text("");
    must_run("xz -dc '" MODELS "/mnli-dev-matched-num.tsv.xz' > '%s'", tsv.path);
    Result result = tokenize(tsv.path, (DatasetOptions){.task = DATASET_MNLI, .max_length = 128});
    assert_true(result.ok);
    assert_int_equal(result.summary.examples, 9815);
    assert_string_equal(safetensors_metadata(&result.file, "labels"), "[\"contradiction\",\"entailment\",\"neutral\"]");
    assert_string_equal(safetensors_metadata(&result.file, "vocabulary_size"), "30522");
    FILE *golden = fopen(GLUE "/tokenizer-mnli-num.jsonl", "r");
    int lines = 0;
    for (json_t *entry; (entry = json_loadf(golden, JSON_DISABLE_EOF_CHECK, NULL)); lines++) {
        size_t row = (size_t)strtoul(json_string_value(json_object_get(entry, "index")), NULL, 10);
        expect_row(&result, row, 128, json_object_get(entry, "input_ids"),
                   (size_t)json_integer_value(json_object_get(entry, "n_first")));
        assert_int_equal(values(&result, "labels")[row],
                         mnli_label(json_string_value(json_object_get(entry, "label"))));
        json_decref(entry);
    }
    assert_int_equal(lines, 600);
    fclose(golden);
    discard(&result);
    unlink(tsv.path);
}

static void test_sets_have_no_labels(void **state)
{
    (void)state;
    Result result = tokenize(GLUE "/mnli-test_matched.tsv", (DatasetOptions){.task = DATASET_MNLI, .max_length = 64});
    assert_true(result.ok);
    assert_null(safetensors_find(&result.file, "labels"));
    assert_non_null(strstr(result.messages, "warning: has no label column"));
    discard(&result);
}

static void mrpc_is_read_by_its_own_column_names(void **state)
{
    (void)state;
    Result result = tokenize(GLUE "/mrpc-dev.tsv", (DatasetOptions){.task = DATASET_MRPC, .max_length = 64});
    assert_true(result.ok);
    assert_int_equal(values(&result, "labels")[0], 1);
    assert_int_equal(values(&result, "labels")[1], 0);
    assert_int_equal(values(&result, "input_ids")[1], 2002); /* "he" */
    discard(&result);
}

static void columns_are_found_by_name_or_position(void **state)
{
    (void)state;
    static const struct {
        DatasetTask task;
        const char *text;
        int rows, label; /* the first row's */
    } cases[] = {
        {DATASET_SST2, "sentence\tlabel\nthe cat\t1\nthe dog\t0\n", 2, 1},
        {DATASET_SST2, "label\tsentence\n1\tthe cat\n", 1, 1},
        {DATASET_SST2, "a\tb\nthe cat\t1\n", 1, 1},       /* an unknown header */
        {DATASET_SST2, "the cat\t1\nthe dog\t0\n", 2, 1}, /* none: the first line has a label */
        {DATASET_SST2, "sentence\tlabel\r\nthe cat\t1\r\n\r\n", 1, 1},
        {DATASET_SST2, "\xef\xbb\xbfsentence\tlabel\nthe cat\t0", 1, 0},
        {DATASET_SINGLE, "the cat\tsports\nthe dog\tarts\n", 2, 1},
        {DATASET_SINGLE, "the cat\t7\nthe dog\t0\nthe cow\t7\n", 3, 7},
        {DATASET_MNLI, "gold_label\tsentence2\tsentence1\nneutral\tb\tthe cat\n-\tb\tthe cat\n", 1, 2},
        {DATASET_MNLI, "0\t\t\t\t\t\t\t\tthe cat\tb\tentailment\n", 1, 1},
        {DATASET_PAIR, "the cat\tb\tno\nthe dog\tb\tyes\nthe cow\tb\tno\n", 3, 0},
        {DATASET_MRPC, "1\t2\t3\tthe cat\tb\n", 1, 1},
        {DATASET_MRPC, "x\ti\tj\ta\tb\n0\t2\t3\tthe cat\tb\n", 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Result result = tokenize_text(cases[i].text, cases[i].task, 16);
        if (!result.ok) fail_msg("case %zu: %s", i, result.messages);
        assert_int_equal(result.summary.examples, cases[i].rows);
        assert_int_equal(values(&result, "labels")[0], cases[i].label);
        assert_int_equal(values(&result, "input_ids")[1], 1996); /* "the" */
        discard(&result);
    }
}

static void label_names_are_numbered_and_kept(void **state)
{
    (void)state;
    Result result = tokenize_text("a\tyes\nb\tno\nc\tyes\nd\t\"?\"\n", DATASET_SINGLE, 8);
    assert_true(result.ok);
    assert_string_equal(safetensors_metadata(&result.file, "labels"), "[\"\\\"?\\\"\",\"no\",\"yes\"]");
    assert_memory_equal(values(&result, "labels"), ((int32_t[]){2, 1, 2, 0}), 16);
    discard(&result);
}

static void long_texts_are_cut_from_the_longer_side(void **state)
{
    (void)state;
    Result result = tokenize_text("a b c d e f\tx y\t0\na b\tx y z u v w\t0\na b c\tx y z\t0\n", DATASET_PAIR, 8);
    static const char *const expected[] = {"[CLS] a b c [SEP] x y [SEP]", "[CLS] a b [SEP] x y z [SEP]",
                                           "[CLS] a b c [SEP] x y [SEP]"};
    assert_true(result.ok);
    assert_int_equal(result.summary.truncated, 3);
    for (size_t row = 0; row < 3; row++) {
        FREED_WITH(buffer_free) Buffer text = {0};
        for (size_t i = 0; i < 8; i++)
            buffer_print(&text, "%s%s", i ? " " : "",
                         bert_tokenizer_piece(vocabulary, values(&result, "input_ids")[8 * row + i]));
        assert_string_equal(buffer_text(&text), expected[row]);
    }
    discard(&result);
}

static void masking_follows_the_recipe(void **state)
{
    (void)state;
    enum { ROWS = 400, LENGTH = 64 };
    Buffer text = {0};
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < 40; i++) buffer_print(&text, "dog ");
        buffer_print(&text, "\n");
    }
    Result result = tokenize_text(buffer_text(&text), DATASET_MLM, LENGTH);
    assert_true(result.ok);
    const int32_t *ids = values(&result, "input_ids"), *labels = values(&result, "labels");
    int32_t mask = tokenizer_specials(tokenizer)->mask;
    int chosen = 0, masked = 0, kept = 0;
    for (int row = 0; row < ROWS; row++) {
        int here = 0;
        for (int i = 0; i < LENGTH; i++) {
            int at = row * LENGTH + i;
            if (labels[at] == DATASET_IGNORED_LABEL) continue;
            here++;
            assert_true(i >= 1 && i <= 40); /* never framing or padding */
            assert_int_equal(labels[at], 3899);
            masked += ids[at] == mask;
            kept += ids[at] == 3899;
        }
        assert_int_equal(here, 6); /* 15% of 40 */
        chosen += here;
    }
    assert_in_range(masked * 100 / chosen, 76, 84);
    assert_in_range(kept * 100 / chosen, 7, 13);
    /* The same seed gives the same file, another one another. */
    Scratch tsv = scratch_text(buffer_text(&text));
    Result again = tokenize(tsv.path, (DatasetOptions){.task = DATASET_MLM, .max_length = LENGTH});
    Result other = tokenize(tsv.path, (DatasetOptions){.task = DATASET_MLM, .max_length = LENGTH, .seed = 1});
    assert_int_equal(again.file.file.size, result.file.file.size);
    assert_memory_equal(again.file.file.bytes, result.file.file.bytes, result.file.file.size);
    assert_memory_not_equal(other.file.file.bytes, result.file.file.bytes, result.file.file.size);
    discard(&result), discard(&again), discard(&other);
    unlink(tsv.path);
    buffer_free(&text);
    /* A pair's separator is not masked either. */
    result = tokenize_text("sentence1\tsentence2\ndog\tdog\n", DATASET_MLM, 8);
    assert_true(result.ok);
    assert_int_equal(values(&result, "labels")[2], DATASET_IGNORED_LABEL);
    discard(&result);
}

static void refuses(const char *text, DatasetTask task, const char *expected)
{
    Result result = tokenize_text(text, task, 16);
    assert_false(result.ok);
    if (!strstr(result.messages, expected)) fail_msg("'%s' is not in: %s", expected, result.messages);
    assert_int_equal(result.exit_code, EXIT_BAD_INPUT);
    discard(&result);
}

static void malformed_files_are_refused_with_their_lines(void **state)
{
    (void)state;
    refuses("", DATASET_MNLI, "holds no examples");
    refuses("sentence\tlabel\n", DATASET_SST2, "holds no examples");
    refuses("sentence\tlabel\nfine\t1\nbad\n", DATASET_SST2, ":3: error: has 1 columns where the first line has 2");
    refuses("sentence\tlabel\nfine\t1\nb\ta\td\n", DATASET_SST2, ":3: error: has 3 columns");
    refuses("sentence\tlabel\n\nfine\t2\n", DATASET_SST2, ":3: error: '2' is not a label of sst2");
    refuses("sentence1\tsentence2\tgold_label\na\tb\t1\n", DATASET_MNLI, ":2: error: '1' is not a label of mnli");
    refuses("a\tb\tneutral\n", DATASET_MNLI, ":1: error: the text must be in column 9, but the row has only 3");
    refuses("sentence\tlabel\nfine\t1\nb\xff"
            "d\t1\n",
            DATASET_SST2, ":3: error: is not UTF-8: byte 2 of the line is 0xff");
    refuses("only one column\n", DATASET_PAIR, "must be in column 2");
    refuses("sentence1\tlabel\na\t1\n", DATASET_PAIR, ":1: error: names columns, but none is sentence2");
    refuses("sentence2\tlabel\na\t1\n", DATASET_MNLI, ":1: error: names columns, but none is sentence1");
    refuses("review\tlabel\na\t1\n", DATASET_SST2, ":1: error: names columns, but none is sentence");
    Result result = tokenize(scratch_absent().path, (DatasetOptions){.task = DATASET_SST2, .max_length = 8});
    assert_false(result.ok);
    assert_int_equal(result.exit_code, EXIT_BAD_INPUT);
    discard(&result);
    FREED_WITH(buffer_free) Buffer many = {0};
    buffer_print(&many, "sentence\tlabel\n");
    for (int i = 0; i < 100; i++) buffer_print(&many, "x\n");
    refuses(buffer_text(&many), DATASET_SST2, "error: 100 rows are wrong; above are the first 20 errors");
}

static void nothing_is_written_for_a_malformed_file(void **state)
{
    (void)state;
    Scratch tsv = scratch_text("sentence\tlabel\nbad\n"), output = scratch_text("former");
    Diagnostics diagnostics = {0};
    DatasetSummary summary;
    const DatasetOptions options = {.task = DATASET_SST2, .max_length = 8};
    assert_false(dataset_tokenize(tokenizer, &options, tsv.path, output.path, &summary, &diagnostics));
    MappedFile file;
    assert_true(file_map(&file, output.path, &diagnostics));
    assert_int_equal(file.size, 6);
    file_unmap(&file);
    diagnostics_free(&diagnostics);
    unlink(tsv.path), unlink(output.path);
}

/* Every prefix and many changed bytes of a small file, for every task: read or refused, never worse. */
static void damaged_files_are_survived(void **state)
{
    (void)state;
    static const char text[] =
        "\xef\xbb\xbfsentence1\tsentence2\tlabel\r\nThe c\xc3\xa9t\tsat \xe5\x8d\x9a\t1\nA dog's\t\t0\n";
    static const char replacements[] = {0, '\n', '\t', '\r', '-', 'A', (char)0x80, (char)0xe2, (char)0xff};
    size_t size = sizeof text - 1;
    int read = 0, refused = 0;
    for (int task = 0; task < DATASET_COLUMNS; task++)
        for (size_t at = 0; at < size; at++)
            for (size_t r = 0; r <= sizeof replacements; r++) {
                char damaged[sizeof text];
                memcpy(damaged, text, size);
                if (r < sizeof replacements) damaged[at] = replacements[r];
                Scratch tsv = scratch_file(damaged, r < sizeof replacements ? size : at);
                Result result = tokenize(tsv.path, (DatasetOptions){.task = (DatasetTask)task, .max_length = 8});
                if (!result.ok) assert_int_equal(result.exit_code, EXIT_BAD_INPUT);
                read += result.ok, refused += !result.ok;
                discard(&result);
                unlink(tsv.path);
            }
    assert_true(read > 100 && refused > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(glue_mnli_files_give_the_known_ids),
        cmocka_unit_test(ten_thousand_pairs_give_the_known_ids),
        cmocka_unit_test(test_sets_have_no_labels),
        cmocka_unit_test(mrpc_is_read_by_its_own_column_names),
        cmocka_unit_test(columns_are_found_by_name_or_position),
        cmocka_unit_test(label_names_are_numbered_and_kept),
        cmocka_unit_test(long_texts_are_cut_from_the_longer_side),
        cmocka_unit_test(masking_follows_the_recipe),
        cmocka_unit_test(malformed_files_are_refused_with_their_lines),
        cmocka_unit_test(nothing_is_written_for_a_malformed_file),
        cmocka_unit_test(damaged_files_are_survived),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
