#include "runtime/train/answers.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

enum { BEST = 20, MOST_TOKENS = 30 }; /* as the Hugging Face library's example has them */

/* ---- The data set ---- */

static const int32_t *integers(const SafeTensors *data, const char *name, int rank, int64_t rows, int64_t width)
{
    const SafeTensor *tensor = safetensors_find(data, name);
    bool fits = tensor && tensor->dtype == DTYPE_I32 && tensor->shape.rank == rank && tensor->shape.dim[0] == rows &&
                (rank == 1 || tensor->shape.dim[1] == width);
    return fits ? tensor->data : NULL;
}

/* The end of the string at `at`, which must be before `end`; NULL: there is none. */
static const char *string_end(const char *at, const char *end)
{
    return at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;
}

/* For each question TEXT 0 ANSWER 0 ... 0; false if the bytes are not so many of these. */
static bool read_strings(AnswerTexts *texts, const char *at, const char *end)
{
    for (int64_t q = 0; q < texts->count; q++) {
        const char *zero = string_end(at, end);
        if (!zero) return false;
        texts->contexts[q] = at;
        texts->answers[q] = at = zero + 1;
        while ((zero = string_end(at, end)) && zero > at) at = zero + 1;
        if (!zero) return false;
        texts->some_unanswered |= at == texts->answers[q];
        at++;
    }
    return at == end;
}

void answer_texts_open(AnswerTexts *texts, const SafeTensors *data, Arena *arena)
{
    const SafeTensor *ids = safetensors_find(data, "input_ids"), *bytes = safetensors_find(data, "texts");
    *texts = (AnswerTexts){0};
    if (!ids || ids->shape.rank != 2 || !bytes || bytes->dtype != DTYPE_U8 || bytes->shape.rank != 1) return;
    int64_t rows = ids->shape.dim[0], width = ids->shape.dim[1];
    const int32_t *row = integers(data, "row", 1, rows, 0);
    AnswerTexts found = {.windows = rows,
                         .width = width,
                         .begins = integers(data, "text_begin", 2, rows, width),
                         .ends = integers(data, "text_end", 2, rows, width)};
    if (!row || !rows || !found.begins || !found.ends) return;
    found.questions = arena_new_array(arena, int32_t, (size_t)rows);
    for (int64_t w = 0; w < rows; w++) /* windows of a question follow each other */
        found.questions[w] = (int32_t)(found.count += w == 0 || row[w] != row[w - 1]) - 1;
    found.contexts = arena_new_array(arena, const char *, (size_t)found.count);
    found.answers = arena_new_array(arena, const char *, (size_t)found.count);
    if (read_strings(&found, bytes->data, (const char *)bytes->data + bytes->shape.dim[0])) *texts = found;
}

/* ---- Spans ---- */

void best_answers_begin(BestAnswer best[], const AnswerTexts *texts)
{
    for (int64_t q = 0; q < texts->count; q++) best[q] = (BestAnswer){-INFINITY, INFINITY, -1, -1};
}

/* The positions of the largest values, the largest first; returns how many. */
static int find_largest(const double *values, int64_t count, int64_t largest[static BEST])
{
    int found = 0;
    for (int64_t i = 0; i < count; i++) {
        int at = found < BEST ? found++ : BEST;
        for (; at > 0 && values[largest[at - 1]] < values[i]; at--)
            if (at < BEST) largest[at] = largest[at - 1];
        if (at < BEST) largest[at] = i;
    }
    return found;
}

void best_answer_take(BestAnswer best[], const AnswerTexts *texts, int64_t window, const double *starts,
                      const double *ends, int64_t width)
{
    int64_t first[BEST], last[BEST];
    int firsts = find_largest(starts, width, first), lasts = find_largest(ends, width, last);
    const int32_t *begin = texts->begins + window * texts->width, *end = texts->ends + window * texts->width;
    BestAnswer *own = &best[texts->questions[window]];
    size_t length = strlen(texts->contexts[texts->questions[window]]);
    own->none = fmin(own->none, starts[0] + ends[0]);
    for (int i = 0; i < firsts; i++)
        for (int k = 0; k < lasts; k++) {
            int64_t s = first[i], e = last[k];
            double score = starts[s] + ends[e];
            bool fits = s <= e && e < s + MOST_TOKENS && begin[s] >= 0 && end[e] >= begin[s] &&
                        (size_t)end[e] <= length && score > own->score;
            if (fits) *own = (BestAnswer){score, own->none, begin[s], end[e]};
        }
}

void best_answers_merge(BestAnswer best[], const BestAnswer other[], int64_t count)
{
    for (int64_t q = 0; q < count; q++) {
        double none = fmin(best[q].none, other[q].none);
        if (other[q].score > best[q].score) best[q] = other[q];
        best[q].none = none;
    }
}

char *best_answer_text(const BestAnswer *best, const AnswerTexts *texts, int64_t question)
{
    bool none = best->begin < 0 || (texts->some_unanswered && best->none > best->score);
    size_t length = none ? 0 : (size_t)(best->end - best->begin);
    char *text = strndup(none ? "" : texts->contexts[question] + best->begin, length);
    if (!text) memory_exhausted();
    return text;
}

/* ---- Comparing texts ---- */

typedef struct Words {
    wchar_t *letters; /* each word ended by 0 */
    size_t *at;
    size_t count;
} Words;

/* Lower case and letters as Unicode has them, whatever the user's locale. */
static locale_t unicode_locale(void)
{
    static locale_t locale;
    if (!locale) locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    return locale;
}

static bool is_blank(wchar_t c, locale_t locale)
{
    return c == 0xa0 || c == 0x2007 || c == 0x202f || (locale ? iswspace_l((wint_t)c, locale) : iswspace((wint_t)c));
}

static bool is_letter(wchar_t c, locale_t locale)
{
    return locale ? iswalnum_l((wint_t)c, locale) : iswalnum((wint_t)c);
}

/* The next character of valid UTF-8, in lower case. */
static wchar_t read_character(const char **at, locale_t locale)
{
    const unsigned char *c = (const unsigned char *)*at;
    int more = c[0] < 0x80 ? 0 : c[0] < 0xe0 ? 1 : c[0] < 0xf0 ? 2 : 3;
    wchar_t value = more ? c[0] & (0x3f >> more) : c[0];
    for (++*at; more-- && (**at & 0xc0) == 0x80; ++*at) value = value << 6 | (**at & 0x3f);
    return (wchar_t)(locale ? towlower_l((wint_t)value, locale) : towlower((wint_t)value));
}

/* Whether an article stands at `from`, which begins a word of letters; *after: its end. */
static bool is_article(const wchar_t *text, size_t from, size_t end, locale_t locale, size_t *after)
{
    static const wchar_t *const articles[] = {L"a", L"an", L"the"};
    size_t to = from;
    while (to < end && is_letter(text[to], locale)) to++;
    *after = to;
    for (int i = 0; i < 3; i++)
        if (wcslen(articles[i]) == to - from && wmemcmp(articles[i], text + from, to - from) == 0) return true;
    return false;
}

static Words split_words(const char *text)
{
    locale_t locale = unicode_locale();
    size_t size = strlen(text), length = 0, used = 0;
    FREED wchar_t *plain = memory_allocate((size + 1) * sizeof *plain);
    Words words = {memory_allocate((2 * size + 2) * sizeof(wchar_t)), memory_allocate((size + 1) * sizeof(size_t)), 0};
    while (*text) {
        wchar_t c = read_character(&text, locale);
        if (c >= 0x80 || !strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", (int)c)) plain[length++] = c;
    }
    bool inside = false;
    for (size_t i = 0, after; i < length; i++) {
        bool starts = is_letter(plain[i], locale) && (i == 0 || !is_letter(plain[i - 1], locale));
        bool article = starts && is_article(plain, i, length, locale, &after);
        if (article) i = after - 1;
        if (article || is_blank(plain[i], locale)) {
            if (inside) words.letters[used++] = 0;
            inside = false;
            continue;
        }
        if (!inside) words.at[words.count++] = used;
        words.letters[used++] = plain[i];
        inside = true;
    }
    words.letters[used] = 0;
    return words;
}

static void free_words(Words *words)
{
    free(words->letters);
    free(words->at);
}

void answer_compare(const char *found, const char *right, double *exact, double *f1)
{
    Words one = split_words(found), other = split_words(right);
    FREED bool *used = memory_allocate((other.count + 1) * sizeof *used);
    size_t common = 0;
    bool same = one.count == other.count;
    for (size_t i = 0; i < one.count; i++) {
        same = same && wcscmp(one.letters + one.at[i], other.letters + other.at[i]) == 0;
        for (size_t k = 0; k < other.count; k++) {
            if (used[k] || wcscmp(one.letters + one.at[i], other.letters + other.at[k]) != 0) continue;
            used[k] = true;
            common++;
            break;
        }
    }
    *exact = same;
    *f1 = !one.count || !other.count ? same : 2 * (double)common / (double)(one.count + other.count);
    free_words(&one);
    free_words(&other);
}

void best_answer_measure(const BestAnswer *best, const AnswerTexts *texts, int64_t question, double *exact, double *f1)
{
    FREED char *found = best_answer_text(best, texts, question);
    const char *right = texts->answers[question];
    double e, f;
    *exact = *f1 = 0;
    do { /* without an answer it is the empty text */
        answer_compare(found, right, &e, &f);
        *exact = fmax(*exact, e), *f1 = fmax(*f1, f);
        right += strlen(right) + 1;
    } while (*texts->answers[question] && *right);
}

void best_answers_measure(const BestAnswer best[], const AnswerTexts *texts, double *exact, double *f1)
{
    *exact = *f1 = 0;
    for (int64_t q = 0; q < texts->count; q++) {
        double e, f;
        best_answer_measure(&best[q], texts, q, &e, &f);
        *exact += e / (double)texts->count, *f1 += f / (double)texts->count;
    }
}
