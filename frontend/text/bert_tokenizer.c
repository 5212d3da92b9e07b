#include "frontend/text/bert_tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/file.h"
#include "frontend/text/subwords.h"
#include "frontend/text/unicode.h"

enum { MAX_WORD_CHARACTERS = 200, MAX_VOCABULARY_BYTES = 1 << 28, MAX_PIECE_BYTES = 1 << 12 };

/* Codepoints of one word; malloc'ed. */
typedef struct Word {
    int32_t *items;
    size_t count, capacity;
} Word;

struct BertTokenizer {
    Arena arena;
    bool lowercase;
    const char **pieces; /* as in the file */
    int32_t count;
    Subwords model;
    BertSpecials specials;
    /* scratch */
    Word word, decomposed;
    Buffer chunk;
};

/* ---- character classes ---- */

static bool is_whitespace(int32_t c)
{
    if (c < 0x80) return c == ' ' || c == '\t' || c == '\n' || c == '\r';
    /* Line and paragraph separators are no "space separators", but text is also split at them. */
    return c == 0x2028 || c == 0x2029 || utf8proc_category(c) == UTF8PROC_CATEGORY_ZS;
}

/* Characters that cleaning drops; the caller tests whitespace before. */
static bool is_dropped(int32_t c)
{
    if (c < 0x80) return c < 0x20 || c == 0x7f;
    utf8proc_category_t category = utf8proc_category(c);
    return c == 0xfffd || category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF;
}

static bool is_punctuation(int32_t c)
{
    if (c < 0x80) return unicode_is_punctuation(c);
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

/* The blocks of CJK ideographs; Hangul, Hiragana and Katakana are written with words and are not among them. */
static bool is_ideograph(int32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b820 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* Unicode's properties Case_Ignorable and Cased (less what is both), which decide the form of a final sigma. */
static bool is_case_ignorable(int32_t c)
{
    static const int32_t inside_words[] = {'\'',   '.',    ':',    0xb7,   0x387,  0x55f,  0x5f4,  0x2018, 0x2019,
                                           0x2024, 0x2027, 0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
    for (size_t i = 0; i < sizeof inside_words / sizeof *inside_words; i++)
        if (c == inside_words[i]) return true;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return false;
    }
}

static bool is_cased(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT) || c == 0xaa || c == 0xba ||
           (c >= 0x2160 && c <= 0x217f) || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

/* ---- words ---- */

/* A capital sigma ends a word if a cased letter comes before it and none after it. */
static bool is_final(const Word *word, size_t at)
{
    size_t i = at;
    while (i > 0 && is_case_ignorable(word->items[i - 1])) i--;
    if (i == 0 || !is_cased(word->items[i - 1])) return false;
    for (i = at + 1; i < word->count && is_case_ignorable(word->items[i]);) i++;
    return i == word->count || !is_cased(word->items[i]);
}

static void lower(Word *word)
{
    enum { CAPITAL_SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2 };
    /* The original word is the context: lowercase letters before a sigma are still cased. */
    for (size_t i = 0; i < word->count; i++)
        word->items[i] =
            word->items[i] == CAPITAL_SIGMA && is_final(word, i) ? FINAL_SIGMA : utf8proc_tolower(word->items[i]);
}

/* Replaces the word by its canonical decomposition without nonspacing marks. */
static void strip_accents(BertTokenizer *tokenizer)
{
    Word *word = &tokenizer->word, *decomposed = &tokenizer->decomposed;
    decomposed->count = 0;
    for (size_t i = 0; i < word->count; i++) {
        int32_t parts[UNICODE_MOST_PARTS];
        utf8proc_ssize_t count = utf8proc_decompose_char(word->items[i], parts, UNICODE_MOST_PARTS,
                                                         UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, NULL);
        if (count < 0) bug("utf8proc: %s", utf8proc_errmsg(count));
        for (utf8proc_ssize_t k = 0; k < count; k++)
            array_push(decomposed->items, decomposed->count, decomposed->capacity, parts[k]);
    }
    unicode_order_marks(decomposed->items, decomposed->count);
    word->count = 0;
    for (size_t i = 0; i < decomposed->count; i++)
        if (utf8proc_category(decomposed->items[i]) != UTF8PROC_CATEGORY_MN)
            array_push(word->items, word->count, word->capacity, decomposed->items[i]);
}

/* ---- pieces ---- */

/* Appends the pieces of `count` characters without whitespace or punctuation, or of one punctuation character. */
static void encode_chunk(BertTokenizer *tokenizer, const int32_t *characters, size_t count, TokenIds *ids)
{
    Buffer *chunk = &tokenizer->chunk;
    chunk->size = 0;
    for (size_t i = 0; i < count; i++) unicode_append(chunk, characters[i]);
    subwords_encode(&tokenizer->model, chunk->bytes, chunk->size, ids);
}

static void encode_word(BertTokenizer *tokenizer, bool ascii, TokenIds *ids)
{
    Word *word = &tokenizer->word;
    if (tokenizer->lowercase && ascii) {
        for (size_t i = 0; i < word->count; i++)
            if (word->items[i] >= 'A' && word->items[i] <= 'Z') word->items[i] += 'a' - 'A';
    } else if (tokenizer->lowercase) {
        lower(word);
        strip_accents(tokenizer);
    }
    for (size_t start = 0, end; start < word->count; start = end) {
        end = start + 1;
        if (!is_punctuation(word->items[start]))
            while (end < word->count && !is_punctuation(word->items[end])) end++;
        encode_chunk(tokenizer, word->items + start, end - start, ids);
    }
    word->count = 0;
}

bool bert_tokenizer_encode(BertTokenizer *tokenizer, const char *text, size_t length, TokenIds *ids)
{
    Word *word = &tokenizer->word;
    bool ascii = true; /* of the word so far */
    if (!unicode_is_valid(text, length)) return false;
    word->count = 0;
    for (size_t at = 0, used; at < length; at += used) {
        int32_t c = unicode_read(text + at, length - at, &used);
        bool space = is_whitespace(c), ideograph = is_ideograph(c);
        if (!space && !ideograph && is_dropped(c)) continue;
        if ((space || ideograph) && word->count) {
            encode_word(tokenizer, ascii, ids);
            ascii = true;
        }
        if (space) continue;
        array_push(word->items, word->count, word->capacity, c);
        ascii &= c < 0x80;
        if (ideograph) {
            encode_word(tokenizer, ascii, ids);
            ascii = true;
        }
    }
    if (word->count) encode_word(tokenizer, ascii, ids);
    return true;
}

/* ---- the vocabulary ---- */

static bool refuse_line(const char *path, int32_t line, Diagnostics *diagnostics, const char *problem)
{
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = path, .line = (int)line + 1}, NULL, "%s",
                             problem);
}

/* Cuts whitespace at both ends, as the reference does. */
static void trim(const char **text, size_t *length)
{
    size_t used;
    while (*length && is_whitespace(unicode_read(*text, *length, &used))) *text += used, *length -= used;
    while (*length) {
        size_t last = unicode_before(*text, *length);
        if (!is_whitespace(unicode_read(*text + last, *length - last, &used))) return;
        *length = last;
    }
}

static bool read_pieces(BertTokenizer *tokenizer, const char *path, const char *text, size_t size,
                        Diagnostics *diagnostics)
{
    size_t lines = 0;
    for (size_t i = 0; i < size; i++) lines += text[i] == '\n' || i + 1 == size;
    tokenizer->pieces = arena_new_array(&tokenizer->arena, const char *, lines);
    for (const char *line = text, *end = text + size; line < end; tokenizer->count++) {
        const char *newline = memchr(line, '\n', (size_t)(end - line)), *piece = line;
        size_t length = (size_t)((newline ? newline : end) - line);
        line = newline ? newline + 1 : end;
        if (!unicode_is_valid(piece, length)) return refuse_line(path, tokenizer->count, diagnostics, "is not UTF-8");
        if (memchr(piece, '\0', length))
            return refuse_line(path, tokenizer->count, diagnostics, "contains a zero byte");
        trim(&piece, &length);
        if (length > MAX_PIECE_BYTES)
            return refuse_line(path, tokenizer->count, diagnostics, "is too long for a piece of a vocabulary");
        tokenizer->pieces[tokenizer->count] = arena_string_n(&tokenizer->arena, piece, length);
        if (!trie_insert(&tokenizer->model.vocabulary, piece, length, tokenizer->count))
            return input_error(diagnostics, path, NULL, "is too large for a vocabulary");
    }
    return true;
}

static int32_t find_special(const BertTokenizer *tokenizer, const char *name)
{
    return trie_find(&tokenizer->model.vocabulary, name, strlen(name));
}

static bool find_specials(BertTokenizer *tokenizer, const char *path, Diagnostics *diagnostics)
{
    BertSpecials *specials = &tokenizer->specials;
    const struct {
        const char *name;
        int32_t *id;
    } needed[] = {{"[UNK]", &specials->unknown}, {"[CLS]", &specials->classify}, {"[SEP]", &specials->separate}};
    bool ok = true;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        *needed[i].id = find_special(tokenizer, needed[i].name);
        if (*needed[i].id < 0)
            ok = input_error(diagnostics, path, "a BERT vocabulary has one piece per line", "has no piece %s",
                             needed[i].name);
    }
    specials->mask = find_special(tokenizer, "[MASK]");
    specials->pad = find_special(tokenizer, "[PAD]");
    if (specials->pad < 0) specials->pad = 0;
    return ok;
}

BertTokenizer *bert_tokenizer_open(const char *path, bool lowercase, Diagnostics *diagnostics)
{
    MappedFile file;
    if (!file_map(&file, path, diagnostics)) return NULL;
    BertTokenizer *tokenizer = memory_allocate(sizeof *tokenizer);
    tokenizer->lowercase = lowercase;
    bool ok =
        file.size <= MAX_VOCABULARY_BYTES || input_error(diagnostics, path, NULL, "is too large for a vocabulary");
    ok = ok && read_pieces(tokenizer, path, file.size ? (const char *)file.bytes : "", file.size, diagnostics);
    file_unmap(&file);
    ok = ok && find_specials(tokenizer, path, diagnostics);
    tokenizer->model.most_characters = MAX_WORD_CHARACTERS;
    tokenizer->model.unknown = tokenizer->specials.unknown;
    subwords_set_continuation(&tokenizer->model, "##");
    if (ok) return tokenizer;
    bert_tokenizer_free(tokenizer);
    return NULL;
}

void bert_tokenizer_free(BertTokenizer *tokenizer)
{
    if (!tokenizer) return;
    arena_free(&tokenizer->arena);
    subwords_free(&tokenizer->model);
    buffer_free(&tokenizer->chunk);
    free(tokenizer->word.items);
    free(tokenizer->decomposed.items);
    free(tokenizer);
}

const BertSpecials *bert_tokenizer_specials(const BertTokenizer *tokenizer) { return &tokenizer->specials; }
int32_t bert_tokenizer_size(const BertTokenizer *tokenizer) { return tokenizer->count; }
const char *bert_tokenizer_piece(const BertTokenizer *tokenizer, int32_t id) { return tokenizer->pieces[id]; }
