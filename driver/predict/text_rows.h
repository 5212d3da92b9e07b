/* The rows of token ids for a model: from a text or a pair, a table, or a data set of skycc tokenize. */
#ifndef DRIVER_PREDICT_TEXT_ROWS_H
#define DRIVER_PREDICT_TEXT_ROWS_H

#include "base/safetensors.h"
#include "frontend/text/tokenizer.h"

/* The values [count, width] of one model input, integers. */
typedef struct RowTensor {
    const char *name;
    DType dtype;
    const void *data;
} RowTensor;

/* The words of a row that the table lists, in its text: word i ends at byte ends[i], and the next begins one later. */
typedef struct ListedWords {
    size_t *ends;
    size_t count;
} ListedWords;

enum { ROW_TENSORS = 6 };

typedef struct TextRows {
    Arena arena;
    const char *file; /* for messages; NULL: the command line */
    SafeTensors data;
    bool open;
    /* input_ids, attention_mask, token_type_ids, and those of a second text; data NULL: the data set has none */
    RowTensor tensors[ROW_TENSORS];
    int64_t count, width;
    int64_t longest; /* later columns are padding in all rows */
    /* [count]; those of the command line, or that text_rows_read_texts read; NULL: not known */
    const char *(*texts)[2];
    ListedWords *words; /* [count]; NULL: blanks in the texts part the words */
} TextRows;

/* Encodes texts[0] and, unless it is NULL, texts[1]: in one row together or, with `apart`, in a row each. `width`
 * columns; 0: as many as they need, at most `most`. Warns if a text is cut. Free with text_rows_free in any case. */
bool text_rows_encode(TextRows *rows, Tokenizer *tokenizer, const char *const texts[2], bool apart, int64_t width,
                      int64_t most, Diagnostics *diagnostics);
/* Reads the texts of the table that these rows come from: one column, or two with a comma between; `listed`: one with
 * lists of words. */
bool text_rows_read_texts(TextRows *rows, const char *table, const char *columns, bool listed,
                          Diagnostics *diagnostics);
/* Of a data set. */
bool text_rows_open(TextRows *rows, const char *path, Diagnostics *diagnostics);
void text_rows_free(TextRows *rows);

/* NULL if there is none of that name. */
const RowTensor *text_rows_find(const TextRows *rows, const char *name);

/* Opens the tokenizer of a Hugging Face folder: tokenizer.json, else vocab.txt, which is cased if `cased` or
 * tokenizer_config.json says so. `folder` NULL: not known. NULL after reporting. */
Tokenizer *text_tokenizer_of_folder(const char *folder, const char *model, bool cased, Diagnostics *diagnostics);

/* The suffix that the table of this text would have as a file, by its first lines: .jsonl, .conll, .csv or .tsv.
 * `words`: the column of words with tags, which a line with a word and its tag does not name; NULL: there are none. */
const char *text_rows_suffix(const char *text, size_t size, const char *words);

#endif
