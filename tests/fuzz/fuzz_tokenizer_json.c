/* A tokenizer.json, a text and its pair, with zero bytes between them; the texts are tokenised and framed. */
#include <stdlib.h>

#include "frontend/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

enum { LENGTH = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    Diagnostics diagnostics = {0};
    FuzzPart json = fuzz_part(&data, &size), text = fuzz_part(&data, &size);
    fuzz_file("tokenizer.json", json.data, json.size);
    Tokenizer *tokenizer = tokenizer_open_json("tokenizer.json", &diagnostics);
    if (tokenizer) {
        TokenIds texts[2] = {{0}, {0}};
        bool pair = size > 0, cut;
        bool valid = !tokenizer_encode(tokenizer, (const char *)text.data, text.size, &texts[0]) &&
                     !tokenizer_encode(tokenizer, (const char *)data, size, &texts[1]);
        int32_t ids[LENGTH], mask[LENGTH], types[LENGTH];
        const TokenRow row = {.ids = ids, .mask = mask, .types = types, .length = LENGTH};
        if (valid && tokenizer_least_length(tokenizer, pair) <= LENGTH)
            tokenizer_frame(tokenizer, texts, pair, &row, &cut);
        free(texts[0].items);
        free(texts[1].items);
    }
    fuzz_end(tokenizer != NULL, &diagnostics);
    tokenizer_free(tokenizer);
    return 0;
}
