/* A vocabulary, a zero byte, and a TSV file, which is tokenised for each task in turn. */
#include "frontend/text/text_dataset.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    Diagnostics diagnostics = {0};
    DatasetOptions options = {.task = (DatasetTask)(size % DATASET_COLUMNS),
                              .max_length = size & 64 ? 16 : DATASET_LEAST_LENGTH,
                              .seed = size};
    bool lowercase = size / DATASET_COLUMNS % 2 == 0;
    FuzzPart part = fuzz_part(&data, &size);
    fuzz_file("vocab.txt", part.data, part.size);
    fuzz_file("rows.tsv", data, size);
    Tokenizer *tokenizer = tokenizer_open("vocab.txt", lowercase, &diagnostics);
    DatasetSummary summary;
    bool ok = tokenizer && dataset_tokenize(tokenizer, &options, "rows.tsv", "-", &summary, &diagnostics);
    if (tokenizer) tokenizer_free(tokenizer);
    fuzz_end(ok, &diagnostics);
    return 0;
}
