#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

int32_t text_character(const char *text, size_t size, size_t *used)
{
    static const int32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    size_t length = bytes[0] < 0x80 ? 1 : bytes[0] < 0xc0 ? 0 : bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
    *used = 1;
    if (length == 1) return bytes[0];
    if (length == 0 || length > size || bytes[0] > 0xf4) return -1;
    int32_t character = bytes[0] & (0x7f >> length);
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) return -1;
        character = character << 6 | (bytes[i] & 0x3f);
    }
    bool surrogate = character >= 0xd800 && character <= 0xdfff;
    if (character < smallest[length] || character > 0x10ffff || surrogate) return -1;
    *used = length;
    return character;
}

bool text_is_control(int32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

/* ---- Escaping ---- */

bool text_escape(char escaped[static TEXT_LONGEST_ESCAPE], const char *text, size_t size, size_t *used)
{
    static const char digits[] = "0123456789abcdef", special[] = "\n\t\r", letters[] = "ntr";
    int32_t c = text_character(text, size, used);
    bool escapes = c < 0 || text_is_control(c);
    size_t length = 0;
    if (!escapes) {
        for (; length < *used; length++) escaped[length] = text[length];
    } else {
        const char *found = c > 0 && c < 0x20 ? strchr(special, (char)c) : NULL;
        uint32_t code = c < 0 ? (unsigned char)*text : (uint32_t)c;
        escaped[length++] = '\\';
        escaped[length++] = found ? letters[found - special] : c < 0x80 ? 'x' : 'u';
        for (int shift = found ? -4 : c < 0x80 ? 4 : 12; shift >= 0; shift -= 4)
            escaped[length++] = digits[code >> shift & 15];
    }
    escaped[length] = '\0';
    return escapes;
}

void text_append(Buffer *buffer, const char *text, size_t size)
{
    char escaped[TEXT_LONGEST_ESCAPE];
    size_t plain = 0; /* where what is not appended yet and needs no escape begins */
    for (size_t at = 0, used; at < size; at += used) {
        if (!text_escape(escaped, text + at, size - at, &used)) continue;
        buffer_append(buffer, text + plain, at - plain);
        buffer_append(buffer, escaped, strlen(escaped));
        plain = at + used;
    }
    buffer_append(buffer, text + plain, size - plain);
}

void text_append_lines(Buffer *buffer, const char *text, size_t size)
{
    size_t begin = 0;
    for (size_t at = 0; at < size; at++) {
        if (text[at] != '\n' && text[at] != '\t') continue;
        text_append(buffer, text + begin, at - begin);
        buffer_append(buffer, text + at, 1);
        begin = at + 1;
    }
    text_append(buffer, text + begin, size - begin);
}

void text_append_word(Buffer *buffer, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,%+@";
    char escaped[TEXT_LONGEST_ESCAPE];
    size_t size = strlen(text), used;
    bool is_plain = size && strspn(text, plain) == size, has_escapes = false;
    for (size_t at = 0; at < size; at += used) has_escapes |= text_escape(escaped, text + at, size - at, &used);
    if (!is_plain) buffer_print(buffer, has_escapes ? "$'" : "'");
    for (size_t at = 0; at < size; at += used) {
        text_escape(escaped, text + at, size - at, &used);
        if (has_escapes && text[at] == '\\')
            buffer_print(buffer, "\\\\");
        else if (text[at] == '\'')
            buffer_print(buffer, has_escapes ? "\\'" : "'\\''"); /* the latter ends the quotes, and begins others */
        else
            buffer_print(buffer, "%s", escaped);
    }
    if (!is_plain) buffer_print(buffer, "'");
}

const char *text_word(Arena *arena, const char *text)
{
    FREED_WITH(buffer_free) Buffer word = {0};
    text_append_word(&word, text);
    return arena_string_n(arena, buffer_text(&word), word.size);
}

/* ---- Formatting ---- */

/* One conversion of a format, as printf takes it alone. */
typedef struct Conversion {
    char text[64]; /* from % to before the length, numbers in the place of * */
    size_t size;
    int width, precision; /* -1: none */
    char length;          /* 'l', 'L' for ll, 'z', 'j', 't'; 0: none, or h */
    char kind;
} Conversion;

static void keep(Conversion *conversion, const char *text, size_t size)
{
    if (conversion->size + size + 4 > sizeof conversion->text) abort(); /* bug() prints by this file */
    memcpy(conversion->text + conversion->size, text, size);
    conversion->size += size;
    conversion->text[conversion->size] = '\0';
}

/* A number of the format, or of the arguments for a *; -1: none. */
static int read_number(Conversion *conversion, const char **at, va_list *arguments)
{
    char digits[16];
    size_t size = strspn(*at, "0123456789");
    int number = -1;
    if (**at == '*') {
        number = va_arg(*arguments, int);
        size = 1;
    } else if (size) {
        number = (int)strtol(*at, NULL, 10);
    }
    *at += size;
    if (size) keep(conversion, digits, (size_t)snprintf(digits, sizeof digits, "%d", number));
    return number;
}

/* Reads what stands after a %, which takes the arguments of its stars. */
static const char *read_conversion(Conversion *conversion, const char *at, va_list *arguments)
{
    *conversion = (Conversion){.text = "%", .size = 1, .precision = -1};
    size_t flags = strspn(at, "-+ #0");
    keep(conversion, at, flags);
    at += flags;
    conversion->width = read_number(conversion, &at, arguments);
    if (*at == '.') {
        keep(conversion, at++, 1);
        int precision = read_number(conversion, &at, arguments);
        conversion->precision = precision > 0 ? precision : 0;
    }
    for (; strchr("hlzjt", *at); at++) conversion->length = *at == 'l' && conversion->length ? 'L' : *at;
    conversion->kind = *at;
    return at + 1;
}

static long long read_signed(const Conversion *conversion, va_list *arguments)
{
    switch (conversion->length) {
    case 'l': return va_arg(*arguments, long);
    case 'L': return va_arg(*arguments, long long);
    case 'z': return (long long)va_arg(*arguments, size_t);
    case 'j': return va_arg(*arguments, intmax_t);
    case 't': return va_arg(*arguments, ptrdiff_t);
    default: return va_arg(*arguments, int);
    }
}

static unsigned long long read_unsigned(const Conversion *conversion, va_list *arguments)
{
    if (conversion->length == 'l') return va_arg(*arguments, unsigned long);
    return conversion->length ? (unsigned long long)read_signed(conversion, arguments) : va_arg(*arguments, unsigned);
}

static void append_string(Buffer *buffer, const Conversion *conversion, const char *text)
{
    if (!text) text = "(null)";
    FREED_WITH(buffer_free) Buffer escaped = {0};
    text_append(&escaped, text,
                conversion->precision < 0 ? strlen(text) : strnlen(text, (size_t)conversion->precision));
    bool left = memchr(conversion->text, '-', conversion->size) != NULL;
    int width = conversion->width > 0 ? conversion->width : 0;
    buffer_print(buffer, left ? "%-*s" : "%*s", width, buffer_text(&escaped));
}

static void append_conversion(Buffer *buffer, Conversion *conversion, va_list *arguments)
{
    char *end = conversion->text + conversion->size, kind = conversion->kind;
    switch (kind) {
    case 's': append_string(buffer, conversion, va_arg(*arguments, const char *)); break;
    case 'c': text_append(buffer, &(char){(char)va_arg(*arguments, int)}, 1); break;
    case '%': buffer_append(buffer, "%", 1); break;
    case 'd':
    case 'i':
        memcpy(end, "lld", 4);
        buffer_print(buffer, conversion->text, read_signed(conversion, arguments));
        break;
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        memcpy(end, (char[]){'l', 'l', kind, 0}, 4);
        buffer_print(buffer, conversion->text, read_unsigned(conversion, arguments));
        break;
    default:
        if (!strchr("eEfFgGaA", kind)) abort();
        memcpy(end, (char[]){kind, 0}, 2);
        buffer_print(buffer, conversion->text, va_arg(*arguments, double));
    }
}

void text_format_va(Buffer *buffer, const char *format, va_list arguments)
{
    va_list rest;
    va_copy(rest, arguments);
    while (*format) {
        size_t plain = strcspn(format, "%");
        buffer_append(buffer, format, plain);
        format += plain;
        if (!*format) break;
        Conversion conversion;
        format = read_conversion(&conversion, format + 1, &rest);
        append_conversion(buffer, &conversion, &rest);
    }
    va_end(rest);
}

void text_format(Buffer *buffer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    text_format_va(buffer, format, arguments);
    va_end(arguments);
}

void text_print_va(FILE *stream, const char *format, va_list arguments)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    text_format_va(&text, format, arguments);
    fwrite(text.bytes, 1, text.size, stream);
}

void text_print(FILE *stream, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    text_print_va(stream, format, arguments);
    va_end(arguments);
}

/* ---- Misspellings ---- */

enum { LONGEST_COMPARED = 63 };

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static bool same_letter(char a, char b) { return tolower((unsigned char)a) == tolower((unsigned char)b); }

/* Letters to insert, remove or replace, or neighbours to swap, capitals or not. */
static size_t edit_distance(const char *a, const char *b, size_t length)
{
    size_t rows[3][LONGEST_COMPARED + 1], line = 0;
    for (size_t i = 0; i <= length; i++) rows[0][i] = i;
    for (; a[line]; line++) {
        size_t *row = rows[(line + 1) % 3], *last = rows[line % 3], *before = rows[(line + 2) % 3];
        row[0] = line + 1;
        for (size_t i = 1; i <= length; i++) {
            row[i] = smaller(last[i - 1] + !same_letter(a[line], b[i - 1]), smaller(last[i], row[i - 1]) + 1);
            bool swapped = line && i > 1 && same_letter(a[line], b[i - 2]) && same_letter(a[line - 1], b[i - 1]);
            if (swapped) row[i] = smaller(row[i], before[i - 2] + 1);
        }
    }
    return rows[line % 3][length];
}

const char *text_nearest(const char *text, const char *const *candidates, size_t count)
{
    size_t length = strlen(text), least = length < 4 ? 2 : smaller(length / 4 + 2, 5);
    const char *nearest = NULL;
    for (size_t i = 0; i < count && length <= LONGEST_COMPARED; i++) {
        size_t size = strlen(candidates[i]), gap = size > length ? size - length : length - size;
        size_t distance = size <= LONGEST_COMPARED && gap < least ? edit_distance(text, candidates[i], size) : least;
        if (distance < least && distance < length) least = distance, nearest = candidates[i];
    }
    return nearest;
}

bool text_has_line(const char *text, const char *line)
{
    size_t length = strlen(line);
    for (const char *at = text, *end; at; at = end ? end + 1 : NULL) {
        end = strchr(at, '\n');
        if (strncmp(at, line, length) == 0 && (!at[length] || at[length] == '\n')) return true;
    }
    return false;
}
