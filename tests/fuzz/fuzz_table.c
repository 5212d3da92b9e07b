/* A table, read as TSV, CSV or JSON lines in turn, with its columns named `text`, `pair` and `label`. */
#include "frontend/text/text_dataset.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char pieces[] = "[UNK]\n[CLS]\n[SEP]\na\nb\n##b\n";
    fuzz_begin();
    Diagnostics diagnostics = {0};
    const TableFormat formats[] = {TABLE_TSV, TABLE_CSV, TABLE_JSONL};
    DatasetOptions options = {.task = DATASET_COLUMNS,
                              .format = formats[size % 3],
                              .text_columns = size & 4 ? "text" : "text,pair",
                              .label_column = "label",
                              .regression = (size & 24) == 24,
                              .max_length = 8};
    fuzz_file("vocab.txt", (const uint8_t *)pieces, sizeof pieces - 1);
    fuzz_file("rows", data, size);
    Tokenizer *tokenizer = tokenizer_open("vocab.txt", true, &diagnostics);
    DatasetSummary summary;
    bool ok = dataset_tokenize(tokenizer, &options, "rows", "-", &summary, &diagnostics);
    tokenizer_free(tokenizer);
    fuzz_end(ok, &diagnostics);
    return 0;
}
