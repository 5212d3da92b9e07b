/* BERT's tokenizer: basic tokenization and WordPiece, giving the same ids as the reference implementation of the BERT
 * paper (Devlin et al. 2018; WordPiece: Wu et al. 2016, arXiv 1609.08144).
 *
 * Text is cleaned of control characters, CJK ideographs become words of their own, words are split at whitespace,
 * lowercased and stripped of accents (NFD without nonspacing marks), split at punctuation, and cut into the longest
 * pieces of the vocabulary from left to right; a word of more than 200 characters, or with a part that no piece covers,
 * is [UNK]. Special tokens such as "[CLS]" written in the text are text. */
#ifndef FRONTEND_TEXT_BERT_TOKENIZER_H
#define FRONTEND_TEXT_BERT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diagnostics.h"
#include "frontend/text/token_frame.h"

typedef struct BertTokenizer BertTokenizer;

/* The ids that sequences are framed with. */
typedef struct BertSpecials {
    int32_t unknown, classify, separate, pad; /* [UNK], [CLS], [SEP]; [PAD], or 0 where the vocabulary has none */
    int32_t mask;                             /* -1: the vocabulary has no [MASK] */
} BertSpecials;

/* Reads a vocabulary: one piece per line, UTF-8, its id being the line number counted from 0; the last of repeated
 * pieces counts. `lowercase`: for uncased vocabularies. NULL after reporting. Free with bert_tokenizer_free. */
BertTokenizer *bert_tokenizer_open(const char *path, bool lowercase, Diagnostics *diagnostics);
void bert_tokenizer_free(BertTokenizer *tokenizer);

/* Appends the ids of `length` bytes of text, without framing. False, with nothing reported and some ids perhaps
 * appended, if the text is not UTF-8. Not for two threads at once. */
bool bert_tokenizer_encode(BertTokenizer *tokenizer, const char *text, size_t length, TokenIds *ids);

const BertSpecials *bert_tokenizer_specials(const BertTokenizer *tokenizer);
int32_t bert_tokenizer_size(const BertTokenizer *tokenizer);                  /* ids are below this */
const char *bert_tokenizer_piece(const BertTokenizer *tokenizer, int32_t id); /* as in the vocabulary, "##" included */

#endif
