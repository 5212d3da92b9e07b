#include "frontend/text/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/arena.h"

typedef struct Range {
    int32_t first, last;
} Range;

/* ---- where the libraries' tables differ from utf8proc's ---- */

/* Characters of category Cc, Cf, Cs or Co that cleaning keeps. */
static const Range not_control[] = {{0x890, 0x891}, {0x8e2, 0x8e2}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}};
/* Characters of category P that do not count as punctuation. */
static const Range not_punctuation[] = {{0x61d, 0x61d},     {0x9fd, 0x9fd},     {0xa76, 0xa76},     {0xc77, 0xc77},
                                        {0xc84, 0xc84},     {0x1b7d, 0x1b7e},   {0x2e43, 0x2e4f},   {0x2e52, 0x2e5d},
                                        {0x10ead, 0x10ead}, {0x10f55, 0x10f59}, {0x10f86, 0x10f89}, {0x1144b, 0x1144f},
                                        {0x1145a, 0x1145b}, {0x1145d, 0x1145d}, {0x11660, 0x1166c}, {0x116b9, 0x116b9},
                                        {0x1183b, 0x1183b}, {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46},
                                        {0x11a9a, 0x11a9c}, {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11c41, 0x11c45},
                                        {0x11c70, 0x11c71}, {0x11ef7, 0x11ef8}, {0x11f43, 0x11f4f}, {0x11fff, 0x11fff},
                                        {0x12ff1, 0x12ff2}, {0x16e97, 0x16e9a}, {0x16fe2, 0x16fe2}, {0x1e95e, 0x1e95f}};
/* Nonspacing marks that BERT's normaliser keeps. */
static const Range not_nonspacing[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8e1},     {0x9fe, 0x9fe},     {0xafa, 0xaff},
    {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xd00, 0xd00},     {0xd3b, 0xd3c},
    {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x180f, 0x180f},   {0x1885, 0x1886},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfb},   {0xa82c, 0xa82c},   {0xa8c5, 0xa8c5},   {0xa8ff, 0xa8ff},
    {0xa9bd, 0xa9bd},   {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x111c9, 0x111c9},
    {0x111cf, 0x111cf}, {0x1123e, 0x1123e}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x11438, 0x1143f},
    {0x11442, 0x11444}, {0x11446, 0x11446}, {0x1145e, 0x1145e}, {0x1182f, 0x11837}, {0x11839, 0x1183a},
    {0x1193b, 0x1193c}, {0x1193e, 0x1193e}, {0x11943, 0x11943}, {0x119d4, 0x119d7}, {0x119da, 0x119db},
    {0x119e0, 0x119e0}, {0x11a01, 0x11a0a}, {0x11a33, 0x11a38}, {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47},
    {0x11a51, 0x11a56}, {0x11a59, 0x11a5b}, {0x11a8a, 0x11a96}, {0x11a98, 0x11a99}, {0x11c30, 0x11c36},
    {0x11c38, 0x11c3d}, {0x11c3f, 0x11c3f}, {0x11c92, 0x11ca7}, {0x11caa, 0x11cb0}, {0x11cb2, 0x11cb3},
    {0x11cb5, 0x11cb6}, {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45},
    {0x11d47, 0x11d47}, {0x11d90, 0x11d91}, {0x11d95, 0x11d95}, {0x11d97, 0x11d97}, {0x11ef3, 0x11ef4},
    {0x11f00, 0x11f01}, {0x11f36, 0x11f3a}, {0x11f40, 0x11f40}, {0x11f42, 0x11f42}, {0x13440, 0x13440},
    {0x13447, 0x13455}, {0x16f4f, 0x16f4f}, {0x16fe4, 0x16fe4}, {0x1cf00, 0x1cf2d}, {0x1cf30, 0x1cf46},
    {0x1e000, 0x1e006}, {0x1e008, 0x1e018}, {0x1e01b, 0x1e021}, {0x1e023, 0x1e024}, {0x1e026, 0x1e02a},
    {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
    {0x1e944, 0x1e94a}};
/* Marks that StripAccents keeps. */
static const Range not_mark[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xafa, 0xaff},
    {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xcf3, 0xcf3},     {0xd00, 0xd00},
    {0xd3b, 0xd3c},     {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x1715, 0x1715},
    {0x180f, 0x180f},   {0x1abf, 0x1ace},   {0x1cf7, 0x1cf7},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},
    {0xa8ff, 0xa8ff},   {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x11145, 0x11146},
    {0x111c9, 0x111c9}, {0x111ce, 0x111cf}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x1182c, 0x1183a}, {0x11930, 0x11935}, {0x11937, 0x11938}, {0x1193b, 0x1193e}, {0x11940, 0x11940},
    {0x11942, 0x11943}, {0x119d1, 0x119d7}, {0x119da, 0x119e0}, {0x119e4, 0x119e4}, {0x11a01, 0x11a0a},
    {0x11a33, 0x11a39}, {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47}, {0x11a51, 0x11a5b}, {0x11a8a, 0x11a99},
    {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45}, {0x11d47, 0x11d47},
    {0x11d8a, 0x11d8e}, {0x11d90, 0x11d91}, {0x11d93, 0x11d97}, {0x11ef3, 0x11ef6}, {0x11f00, 0x11f01},
    {0x11f03, 0x11f03}, {0x11f34, 0x11f3a}, {0x11f3e, 0x11f42}, {0x13440, 0x13440}, {0x13447, 0x13455},
    {0x16f4f, 0x16f4f}, {0x16f7f, 0x16f87}, {0x16fe4, 0x16fe4}, {0x16ff0, 0x16ff1}, {0x1cf00, 0x1cf2d},
    {0x1cf30, 0x1cf46}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef}};
/* Characters whose decomposition is newer than the libraries' tables. */
static const Range not_decomposed[] = {{0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xab69, 0xab69},   {0x10781, 0x10785},
                                       {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x11938, 0x11938}, {0x1e030, 0x1e06d},
                                       {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}};
/* Letters. */
static const Range newer_letters[] = {{0x1c89, 0x1c8a},   {0xa7cb, 0xa7cd},   {0xa7da, 0xa7dc},   {0x105c0, 0x105f3},
                                      {0x10d4a, 0x10d65}, {0x10d6f, 0x10d85}, {0x10ec2, 0x10ec4}, {0x11380, 0x11389},
                                      {0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x113b5}, {0x113b7, 0x113b7},
                                      {0x113d1, 0x113d1}, {0x113d3, 0x113d3}, {0x11bc0, 0x11be0}, {0x13460, 0x143fa},
                                      {0x16100, 0x1611d}, {0x16d40, 0x16d6c}, {0x18cff, 0x18cff}, {0x1e5d0, 0x1e5ed},
                                      {0x1e5f0, 0x1e5f0}, {0x2ebf0, 0x2ee5d}};
/* Numbers. */
static const Range newer_numbers[] = {{0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9}, {0x16130, 0x16139},
                                      {0x16d70, 0x16d79}, {0x1ccf0, 0x1ccf9}, {0x1e5f1, 0x1e5fa}};
/* Other parts of words. */
static const Range newer_words[] = {{0x897, 0x897},     {0x10d69, 0x10d6d}, {0x10efc, 0x10efc}, {0x113b8, 0x113c0},
                                    {0x113c2, 0x113c2}, {0x113c5, 0x113c5}, {0x113c7, 0x113ca}, {0x113cc, 0x113d0},
                                    {0x113d2, 0x113d2}, {0x113e1, 0x113e2}, {0x11f5a, 0x11f5a}, {0x1611e, 0x1612f},
                                    {0x1e5ee, 0x1e5ef}};

#define IN(c, ranges) in_ranges((c), (ranges), sizeof(ranges) / sizeof *(ranges))

static bool in_ranges(int32_t c, const Range *ranges, size_t count)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[low].first <= c;
}

/* ---- classes ---- */

static bool between(int32_t c, utf8proc_category_t first, utf8proc_category_t last)
{
    utf8proc_category_t category = utf8proc_category(c);
    return category >= first && category <= last;
}

bool unicode_is_space(int32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool unicode_is_letter(int32_t c)
{
    if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return between(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO) || IN(c, newer_letters);
}

bool unicode_is_number(int32_t c)
{
    if (c < 0x80) return c >= '0' && c <= '9';
    return between(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO) || IN(c, newer_numbers);
}

bool unicode_is_word(int32_t c)
{
    if (c < 0x80) return unicode_is_letter(c) || unicode_is_number(c) || c == '_';
    return unicode_is_letter(c) || between(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME) ||
           between(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NL) ||
           between(c, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PC) || c == 0x200c || c == 0x200d ||
           (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
           (c >= 0x1f170 && c <= 0x1f189) || IN(c, newer_numbers) || IN(c, newer_words);
}

bool unicode_is_mark(int32_t c)
{
    if (c < 0x300) return false;
    if (c == 0x1cf2 || c == 0x1cf3) return true;
    return between(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME) && !IN(c, not_mark);
}

bool unicode_is_nonspacing(int32_t c)
{
    if (c < 0x300) return false;
    return c == 0x1734 || (between(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MN) && !IN(c, not_nonspacing));
}

bool unicode_is_control(int32_t c)
{
    if (c < 0x80) return c < 0x20 || c == 0x7f;
    return between(c, UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO) && !IN(c, not_control);
}

bool unicode_is_punctuation(int32_t c)
{
    if (c < 0x80) return c > ' ' && c < 0x7f && !unicode_is_letter(c) && !unicode_is_number(c);
    if (c == 0x166d || c == 0x111c9) return true;
    return between(c, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO) && !IN(c, not_punctuation);
}

bool unicode_is_ideograph(int32_t c)
{
    /* The fifth block begins at 2b820; 2b920 is what the library has. */
    static const Range blocks[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},  {0x20000, 0x2a6df},
                                   {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
    return c >= 0x3400 && IN(c, blocks);
}

/* ---- text ---- */

int32_t unicode_read(const char *text, size_t length, size_t *used)
{
    int32_t c = (unsigned char)*text;
    *used = 1;
    if (c < 0x80) return c;
    *used = (size_t)utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length, &c);
    return c;
}

size_t unicode_before(const char *text, size_t at)
{
    do at--;
    while (at && ((unsigned char)text[at] & 0xc0) == 0x80);
    return at;
}

void unicode_append(Buffer *buffer, int32_t c)
{
    utf8proc_uint8_t bytes[4];
    buffer_append(buffer, bytes, (size_t)utf8proc_encode_char(c, bytes));
}

bool unicode_is_valid(const char *text, size_t length)
{
    int32_t c;
    for (size_t at = 0; at < length;) {
        if ((unsigned char)text[at] < 0x80) {
            at++;
            continue;
        }
        utf8proc_ssize_t used =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(length - at), &c);
        if (used <= 0) return false;
        at += (size_t)used;
    }
    return true;
}

bool unicode_is_ascii(const char *text, size_t length)
{
    unsigned char bits = 0;
    for (size_t i = 0; i < length; i++) bits |= (unsigned char)text[i];
    return bits < 0x80;
}

void unicode_append_lower(Buffer *buffer, int32_t c)
{
    switch (c) { /* younger than our tables, and the one whose lower case is two characters */
    case 0x130: unicode_append(buffer, 'i'), c = 0x307; break;
    case 0x1c89:
    case 0xa7cc:
    case 0xa7ce:
    case 0xa7d2:
    case 0xa7d4:
    case 0xa7da: c++; break;
    case 0xa7cb: c = 0x264; break;
    case 0xa7dc: c = 0x19b; break;
    default:
        if (c >= 0x10d50 && c <= 0x10d65)
            c += 32;
        else if (c >= 0x16ea0 && c <= 0x16eb8)
            c += 27;
        else
            c = utf8proc_tolower(c);
    }
    unicode_append(buffer, c);
}

/* ---- normalisation forms ---- */

typedef struct Mark {
    int32_t c;
    int class;
    size_t at;
} Mark;

static int compare_marks(const void *a, const void *b)
{
    const Mark *left = a, *right = b;
    if (left->class != right->class) return left->class < right->class ? -1 : 1;
    return left->at < right->at ? -1 : 1;
}

static int combining_class(int32_t c) { return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class; }

void unicode_order_marks(int32_t *characters, size_t count)
{
    for (size_t start = 0, end; start < count; start = end + 1) {
        for (end = start; end < count && combining_class(characters[end]); end++) {}
        if (end - start < 2) continue;
        FREED Mark *marks = memory_allocate((end - start) * sizeof *marks);
        for (size_t i = start; i < end; i++)
            marks[i - start] = (Mark){characters[i], combining_class(characters[i]), i};
        qsort(marks, end - start, sizeof *marks, compare_marks);
        for (size_t i = start; i < end; i++) characters[i] = marks[i - start].c;
    }
}

void unicode_normalize(Buffer *buffer, const char *text, size_t length, UnicodeForm form)
{
    if (unicode_is_ascii(text, length)) {
        buffer_append(buffer, text, length);
        return;
    }
    bool compatible = form == UNICODE_NFKD || form == UNICODE_NFKC, compose = form >= UNICODE_NFC;
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    FREED int32_t *characters = NULL;
    size_t count = 0, capacity = 0;
    for (size_t at = 0, used; at < length; at += used) {
        int32_t c = unicode_read(text + at, length - at, &used), parts[UNICODE_MOST_PARTS];
        utf8proc_ssize_t more = 1;
        parts[0] = c;
        if (c >= 0x80 && !IN(c, not_decomposed))
            more = utf8proc_decompose_char(c, parts, UNICODE_MOST_PARTS, options, NULL);
        for (utf8proc_ssize_t i = 0; i < more; i++) array_push(characters, count, capacity, parts[i]);
    }
    unicode_order_marks(characters, count);
    if (compose)
        count =
            (size_t)utf8proc_normalize_utf32(characters, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (size_t i = 0; i < count; i++) unicode_append(buffer, characters[i]);
}
