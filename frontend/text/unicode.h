/* Classes and mappings of characters as Hugging Face's tokenizers see them.
 *
 * Their tables come from several versions of Unicode, from 8 on; utf8proc's come from 15. unicode.c lists the
 * characters that differ, found by a sweep over all of Unicode. */
#ifndef FRONTEND_TEXT_UNICODE_H
#define FRONTEND_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

/* The character at `text`, which must be UTF-8, and its bytes. */
int32_t unicode_read(const char *text, size_t length, size_t *used);
size_t unicode_before(const char *text, size_t at); /* where the character begins that ends at `at`, which is not 0 */
void unicode_append(Buffer *buffer, int32_t c);
bool unicode_is_valid(const char *text, size_t length);
bool unicode_is_ascii(const char *text, size_t length);

bool unicode_is_space(int32_t c);       /* property White_Space */
bool unicode_is_number(int32_t c);      /* categories N */
bool unicode_is_word(int32_t c);        /* of words, as \w of regular expressions */
bool unicode_is_mark(int32_t c);        /* categories M */
bool unicode_is_nonspacing(int32_t c);  /* category Mn */
bool unicode_is_control(int32_t c);     /* categories C, less those not assigned */
bool unicode_is_punctuation(int32_t c); /* categories P, and all of ASCII that is neither letter, digit, nor space */
bool unicode_is_ideograph(int32_t c);   /* what BERT's normaliser sets blanks around */

/* Appends the lower case, each character by itself. */
void unicode_append_lower(Buffer *buffer, int32_t c);

enum { UNICODE_MOST_PARTS = 32 }; /* no character's decomposition is longer */
/* Puts each run of combining marks in canonical order; utf8proc's own function takes quadratic time. */
void unicode_order_marks(int32_t *characters, size_t count);

typedef enum UnicodeForm { UNICODE_NFD, UNICODE_NFKD, UNICODE_NFC, UNICODE_NFKC } UnicodeForm;
/* Appends the normalisation form (Unicode Standard Annex 15) of text, which must be UTF-8. */
void unicode_normalize(Buffer *buffer, const char *text, size_t length, UnicodeForm form);

#endif
