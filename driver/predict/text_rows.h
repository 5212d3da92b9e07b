/* What a model is to judge, as rows of token ids: a text or a pair of them, the rows of a table, or a data set that
 * skycc tokenize wrote. */
#ifndef DRIVER_PREDICT_TEXT_ROWS_H
#define DRIVER_PREDICT_TEXT_ROWS_H

#include "base/safetensors.h"
#include "frontend/text/tokenizer.h"

/* Values of one input of the model, [count, width], of a type of integers. */
typedef struct RowTensor {
    const char *name;
    DType dtype;
    const void *data;
} RowTensor;

typedef struct TextRows {
    Arena arena;
    const char *file; /* for messages; NULL: the command line */
    SafeTensors data;
    bool open;
    RowTensor tensors[3]; /* input_ids, attention_mask, token_type_ids; data NULL: the data set has none */
    int64_t count, width;
    int64_t longest; /* columns behind are padding in all rows */
    /* [count]; those of the command line, or that text_rows_read_texts read; NULL: not known */
    const char *(*texts)[2];
} TextRows;

/* Of one text, or two unless texts[1] is NULL, which are a row together or, `apart`, a row each; in `width` columns, 0:
 * as many as they need, at most `most`. Warns if a text is cut. Free with text_rows_free in any case. */
bool text_rows_encode(TextRows *rows, Tokenizer *tokenizer, const char *const texts[2], bool apart, int64_t width,
                      int64_t most, Diagnostics *diagnostics);
/* The texts of a table whose rows these are: of its column, or its two columns, with a comma between. */
bool text_rows_read_texts(TextRows *rows, const char *table, const char *columns, Diagnostics *diagnostics);
/* Of a data set. */
bool text_rows_open(TextRows *rows, const char *path, Diagnostics *diagnostics);
void text_rows_free(TextRows *rows);

/* NULL if there is none of that name. */
const RowTensor *text_rows_find(const TextRows *rows, const char *name);

/* The tokenizer in `file`: a tokenizer.json, or by any other suffix a vocabulary. NULL after reporting. */
Tokenizer *text_tokenizer_open(const char *file, bool cased, Diagnostics *diagnostics);
/* The one in a Hugging Face folder: tokenizer.json, else vocab.txt, which is cased if `cased` or if
 * tokenizer_config.json says so. `folder` NULL: none is known. NULL after reporting that there is none. */
Tokenizer *text_tokenizer_of_folder(const char *folder, const char *model, bool cased, Diagnostics *diagnostics);

#endif
