#include "frontend/text/bert_tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/file.h"
#include "base/hash.h"
#include "frontend/text/unicode.h"

enum { MAX_WORD_CHARACTERS = 200, MAX_VOCABULARY_BYTES = 1 << 28, MAX_PIECE_BYTES = 1 << 12 };

typedef struct Subword {
    const char *text; /* as in the file */
    uint32_t start;   /* where the piece itself begins: after "##" of a continuation */
    uint32_t length;  /* of what follows */
} Subword;

/* Codepoints of one word; malloc'ed. */
typedef struct Word {
    int32_t *items;
    size_t count, capacity;
} Word;

struct BertTokenizer {
    Arena arena;
    bool lowercase;
    Subword *pieces;
    int32_t count;
    int32_t *slots; /* hash table of ids, -1 where empty; the size is a power of two */
    size_t slot_mask;
    size_t longest; /* bytes of the longest piece */
    BertSpecials specials;
    /* scratch */
    Word word, decomposed;
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
    /* All ASCII characters except letters and digits count, even symbols such as '$' and '^'. */
    if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return true;
    default: return false;
    }
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
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT: return true;
    default: break;
    }
    return c == 0xaa || c == 0xba || (c >= 0x2160 && c <= 0x217f) || (c >= 0x24b6 && c <= 0x24e9) ||
           (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
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

static size_t first_slot(const BertTokenizer *tokenizer, const char *text, size_t length, bool continuation)
{
    return (size_t)(hash_bytes(text, length).low + continuation) & tokenizer->slot_mask;
}

/* The slot of the piece, or the empty one where it would be entered. */
static int32_t *find_slot(const BertTokenizer *tokenizer, const char *text, size_t length, bool continuation)
{
    for (size_t i = first_slot(tokenizer, text, length, continuation);; i = (i + 1) & tokenizer->slot_mask) {
        int32_t *slot = &tokenizer->slots[i];
        if (*slot < 0) return slot;
        const Subword *piece = &tokenizer->pieces[*slot];
        if (piece->length == length && (piece->start > 0) == continuation &&
            memcmp(piece->text + piece->start, text, length) == 0)
            return slot;
    }
}

/* Appends the pieces of `count` characters without whitespace or punctuation, or of one punctuation character. */
static void encode_chunk(BertTokenizer *tokenizer, const int32_t *characters, size_t count, TokenIds *ids)
{
    char bytes[4 * MAX_WORD_CHARACTERS];
    size_t offsets[MAX_WORD_CHARACTERS + 1] = {0};
    if (count > MAX_WORD_CHARACTERS) {
        array_push(ids->items, ids->count, ids->capacity, tokenizer->specials.unknown);
        return;
    }
    for (size_t i = 0; i < count; i++)
        offsets[i + 1] =
            offsets[i] + (size_t)utf8proc_encode_char(characters[i], (utf8proc_uint8_t *)bytes + offsets[i]);
    size_t former = ids->count;
    for (size_t start = 0, end; start < count; start = end) {
        int32_t id = -1;
        for (end = count; end > start; end--) {
            size_t length = offsets[end] - offsets[start];
            if (length > tokenizer->longest) continue;
            id = *find_slot(tokenizer, bytes + offsets[start], length, start > 0);
            if (id >= 0) break;
        }
        if (id < 0) { /* the whole word is unknown then */
            ids->count = former;
            array_push(ids->items, ids->count, ids->capacity, tokenizer->specials.unknown);
            return;
        }
        array_push(ids->items, ids->count, ids->capacity, id);
    }
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
    word->count = 0;
    for (size_t at = 0; at < length;) {
        int32_t c;
        utf8proc_ssize_t used =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(length - at), &c);
        if (used <= 0) return false;
        at += (size_t)used;
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
    int32_t c;
    utf8proc_ssize_t used;
    while (*length && (used = utf8proc_iterate((const utf8proc_uint8_t *)*text, (utf8proc_ssize_t)*length, &c)) > 0 &&
           is_whitespace(c))
        *text += used, *length -= (size_t)used;
    while (*length) {
        size_t start = *length - 1;
        while (start > 0 && ((*text)[start] & 0xc0) == 0x80) start--;
        used = utf8proc_iterate((const utf8proc_uint8_t *)*text + start, (utf8proc_ssize_t)(*length - start), &c);
        if (used <= 0 || !is_whitespace(c)) return;
        *length = start;
    }
}

static bool is_utf8(const char *text, size_t length)
{
    int32_t c;
    for (size_t at = 0; at < length;) {
        utf8proc_ssize_t used =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(length - at), &c);
        if (used <= 0) return false;
        at += (size_t)used;
    }
    return true;
}

static bool read_pieces(BertTokenizer *tokenizer, const char *path, const char *text, size_t size,
                        Diagnostics *diagnostics)
{
    size_t lines = 0;
    for (size_t i = 0; i < size; i++) lines += text[i] == '\n' || i + 1 == size;
    if (lines > INT32_MAX / 4) return input_error(diagnostics, path, NULL, "is too long");
    tokenizer->pieces = arena_new_array(&tokenizer->arena, Subword, lines);
    for (const char *line = text, *end = text + size; line < end; tokenizer->count++) {
        const char *newline = memchr(line, '\n', (size_t)(end - line)), *piece = line;
        size_t length = (size_t)((newline ? newline : end) - line);
        line = newline ? newline + 1 : end;
        if (!is_utf8(piece, length)) return refuse_line(path, tokenizer->count, diagnostics, "is not UTF-8");
        if (memchr(piece, '\0', length))
            return refuse_line(path, tokenizer->count, diagnostics, "contains a zero byte");
        trim(&piece, &length);
        if (length > MAX_PIECE_BYTES)
            return refuse_line(path, tokenizer->count, diagnostics, "is too long for a piece of a vocabulary");
        uint32_t start = length > 2 && memcmp(piece, "##", 2) == 0 ? 2 : 0;
        tokenizer->pieces[tokenizer->count] =
            (Subword){arena_string_n(&tokenizer->arena, piece, length), start, (uint32_t)length - start};
        if (length > tokenizer->longest) tokenizer->longest = length;
    }
    return true;
}

static void enter_pieces(BertTokenizer *tokenizer)
{
    size_t slots = 16;
    while (slots < 2 * (size_t)tokenizer->count) slots *= 2;
    tokenizer->slots = arena_new_array(&tokenizer->arena, int32_t, slots);
    tokenizer->slot_mask = slots - 1;
    memset(tokenizer->slots, 0xff, slots * sizeof *tokenizer->slots);
    for (int32_t id = 0; id < tokenizer->count; id++) {
        const Subword *piece = &tokenizer->pieces[id];
        *find_slot(tokenizer, piece->text + piece->start, piece->length, piece->start > 0) = id;
    }
}

static int32_t find_special(const BertTokenizer *tokenizer, const char *name)
{
    return *find_slot(tokenizer, name, strlen(name), false);
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
    if (ok) {
        enter_pieces(tokenizer);
        ok = find_specials(tokenizer, path, diagnostics);
    }
    if (ok) return tokenizer;
    bert_tokenizer_free(tokenizer);
    return NULL;
}

void bert_tokenizer_free(BertTokenizer *tokenizer)
{
    if (!tokenizer) return;
    arena_free(&tokenizer->arena);
    free(tokenizer->word.items);
    free(tokenizer->decomposed.items);
    free(tokenizer);
}

const BertSpecials *bert_tokenizer_specials(const BertTokenizer *tokenizer) { return &tokenizer->specials; }
int32_t bert_tokenizer_size(const BertTokenizer *tokenizer) { return tokenizer->count; }
const char *bert_tokenizer_piece(const BertTokenizer *tokenizer, int32_t id) { return tokenizer->pieces[id].text; }
