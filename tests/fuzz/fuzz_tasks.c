/* Rows of words with tags, questions with answers, pairs and lists of labels: the first byte says which, and the form
 * of the table. */
#include "frontend/text/text_dataset.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char pieces[] = "[UNK]\n[CLS]\n[SEP]\na\nb\n##b\nc\n";
    static const DatasetOptions tasks[] = {
        {.task = DATASET_NER},
        {.task = DATASET_QA, .stride = 1},
        {.task = DATASET_QA, .text_columns = "question,context", .label_column = "answer,start"},
        {.task = DATASET_PAIRS, .text_columns = "a,b"},
        {.task = DATASET_MULTI_LABEL, .text_columns = "a", .label_column = "labels"},
        {.task = DATASET_COLUMNS, .text_columns = "a", .label_column = "labels"}};
    enum { TASKS = sizeof tasks / sizeof *tasks };
    static const TableFormat formats[] = {TABLE_TSV, TABLE_CSV, TABLE_JSONL, TABLE_CONLL};
    fuzz_begin();
    Diagnostics diagnostics = {0};
    DatasetOptions options = tasks[size ? *data / 4 % TASKS : 0];
    options.format = formats[size ? *data % 4 : 0];
    options.max_length = 12;
    fuzz_file("vocab.txt", (const uint8_t *)pieces, sizeof pieces - 1);
    fuzz_file("rows", data + (size > 0), size - (size > 0));
    Tokenizer *tokenizer = tokenizer_open("vocab.txt", true, &diagnostics);
    DatasetSummary summary;
    bool ok = dataset_tokenize(tokenizer, &options, "rows", "-", &summary, &diagnostics);
    tokenizer_free(tokenizer);
    fuzz_end(ok, &diagnostics);
    return 0;
}
