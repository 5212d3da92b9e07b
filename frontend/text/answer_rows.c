/* Questions with a text each, and answers that are parts of the text. A long text becomes several examples: windows of
 * its tokens, of which neighbours share `stride` tokens. An answer that is not wholly in a window is on its first
 * token there. */
#include <stdlib.h>
#include <string.h>

#include "frontend/text/cells.h"
#include "frontend/text/dataset_job.h"
#include "frontend/text/unicode.h"

typedef struct Answer {
    bool found;
    size_t begin, end;  /* bytes of the text */
    size_t first, last; /* tokens of it */
} Answer;

/* ---- Where the answer is ---- */

static bool is_space(char c) { return c && strchr(" \t\r\n", c); }

/* The byte of the character with that number; `length` if there are fewer. */
static size_t byte_of(TableField text, json_int_t characters)
{
    size_t at = 0;
    for (; at < text.length && (characters > 0 || ((unsigned char)text.text[at] & 0xc0) == 0x80); at++)
        characters -= (at + 1 == text.length || ((unsigned char)text.text[at + 1] & 0xc0) != 0x80);
    return at;
}

/* Without a place, the answer is where it stands first. */
static bool place_answer(Job *job, TableField text, const char *words, size_t length, const json_t *start,
                         Answer *answer)
{
    if (json_is_integer(start) && json_integer_value(start) >= 0) {
        answer->begin = byte_of(text, json_integer_value(start));
        answer->found = text.length - answer->begin >= length && !memcmp(text.text + answer->begin, words, length);
    } else {
        const char *found = memmem(text.text, text.length, words, length);
        answer->found = found != NULL;
        answer->begin = found ? (size_t)(found - text.text) : 0;
        job->searched++;
    }
    answer->end = answer->begin + length;
    return answer->found ||
           table_error(&job->reader, "answer_start counts the characters of the text before the answer, from 0",
                       "the answer '%.*s' is not %s", (int)(length < 40 ? length : 40), words,
                       start ? "at answer_start" : "in the text");
}

/* The first of several, as the Hugging Face library trains. */
static const json_t *first_of(const json_t *value) { return json_is_array(value) ? json_array_get(value, 0) : value; }

/* {text, answer_start}, either or both lists; a list of such; or the answer itself. */
static bool read_answer(Job *job, TableField text, Answer *answer)
{
    TableField field = job->reader.fields[job->columns.label];
    const int *columns = job->columns.labels;
    if (!field.text) return true;
    json_t *cell = cell_read(field), *where = NULL;
    const json_t *value = first_of(cell), *start = NULL;
    if (json_is_object(value)) {
        start = first_of(json_object_get(value, "answer_start"));
        value = first_of(json_object_get(value, "text"));
    } else if (!cell && !field.nested && field.length) {
        value = cell = json_stringn(field.text, field.length);
    }
    if (job->label_count > 1 && job->reader.fields[columns[1]].text) {
        where = cell_list(job->reader.fields[columns[1]], " ");
        start = first_of(where);
    }
    char *digits_end;
    json_t *number = NULL;
    if (json_is_string(start)) {
        number = json_integer(strtoll(json_string_value(start), &digits_end, 10));
        start = *digits_end ? NULL : number;
    }
    bool ok = true;
    if (json_string_length(value))
        ok = place_answer(job, text, json_string_value(value), json_string_length(value), start, answer);
    else if (value && !json_is_string(value) && !json_is_null(value))
        ok = table_error(&job->reader, "write {\"text\": [\"...\"], \"answer_start\": [7]}", "the answer is no text");
    json_decref(number);
    json_decref(where);
    json_decref(cell);
    return ok;
}

static size_t step_on(const char *text, size_t at)
{
    do at++;
    while (((unsigned char)text[at] & 0xc0) == 0x80);
    return at;
}

/* Whether the token is SentencePiece's or GPT-2's mark of a blank, alone. */
static bool is_mark(const Job *job, int32_t id)
{
    FREED_WITH(buffer_free) Buffer piece = {0};
    bool known = tokenizer_piece(job->tokenizer, id, &piece);
    return known && (!strcmp(buffer_text(&piece), "\xe2\x96\x81") || !strcmp(buffer_text(&piece), "\xc4\xa0"));
}

/* Finds the tokens that the answer begins and ends in, as the Hugging Face library does: the last one that begins no
 * later, and the first one that ends no sooner. They differ where several tokens make one character. */
static void find_tokens(Job *job, TableField text, Answer *answer)
{
    const TokenIds *ids = &job->texts[1];
    const char *bytes = text.text;
    size_t begin = answer->begin, end = answer->end, count, next, former;
    while (begin < end && is_space(bytes[begin])) begin++;
    while (end > begin && is_space(bytes[end - 1])) end--;
    next = step_on(bytes, begin), former = unicode_before(bytes, end);
    if (tokenizer_parts_at(job->tokenizer, bytes, text.length, next, ids, &count) && count) {
        answer->first = count - 1;
    } else {
        while (begin && !tokenizer_parts_at(job->tokenizer, bytes, text.length, begin, ids, &count))
            begin = unicode_before(bytes, begin);
        answer->first = begin ? count : 0;
        while (answer->first + 1 < ids->count && is_mark(job, ids->items[answer->first])) answer->first++;
    }
    if (tokenizer_parts_at(job->tokenizer, bytes, text.length, former, ids, &answer->last))
        count = answer->last + 1;
    else {
        count = ids->count;
        while (end < text.length && !tokenizer_parts_at(job->tokenizer, bytes, text.length, end, ids, &count)) end++;
        if (end >= text.length) count = ids->count;
    }
    answer->last = count ? count - 1 : 0;
    while (answer->last + 1 < ids->count && is_mark(job, ids->items[answer->last])) answer->last++;
    if (answer->last < answer->first) answer->last = answer->first;
    answer->found = answer->last < ids->count;
}

/* ---- Which bytes tokens stand for ---- */

typedef struct TokenSpan {
    size_t begin, end;
} TokenSpan;

/* Of the tokens from `first` to `after`, which are those of the bytes from `begin` to `end`. Tokens that no character
 * divides have the same span. */
static void divide(Job *job, const char *bytes, size_t begin, size_t end, size_t first, size_t after, TokenSpan *spans)
{
    size_t length = end - begin, former = 0, done = 0, count;
    const TokenIds ids = {.items = job->texts[1].items + first, .count = after - first};
    for (size_t at = step_on(bytes + begin, 0); done < ids.count && at <= length;
         at = at < length ? step_on(bytes + begin, at) : length + 1) {
        if (at == length)
            count = ids.count;
        else if (!tokenizer_parts_at(job->tokenizer, bytes + begin, length, at, &ids, &count))
            continue;
        size_t from = former;
        while (from < at && is_space(bytes[begin + from])) from++;
        for (size_t t = done; t < count; t++) spans[first + t] = (TokenSpan){begin + from, begin + at};
        if (count > done) former = at;
        done = count > done ? count : done;
    }
}

/* Words between blanks have tokens of their own, as a rule; where they do not, the whole text is divided. */
static void find_spans(Job *job, TableField text, TokenSpan *spans)
{
    const TokenIds *ids = &job->texts[1];
    TokenIds word = {0};
    size_t done = 0, begin = 0;
    bool apart = true;
    while (apart && begin < text.length) {
        size_t end = begin;
        while (end < text.length && is_space(text.text[end])) end++;
        while (end < text.length && !is_space(text.text[end])) end++;
        word.count = 0;
        apart = !tokenizer_encode(job->tokenizer, text.text + begin, end - begin, &word) &&
                word.count <= ids->count - done &&
                !memcmp(word.items, ids->items + done, word.count * sizeof *word.items);
        if (apart && word.count) divide(job, text.text, begin, end, done, done + word.count, spans);
        done += word.count;
        begin = end;
    }
    free(word.items);
    if (!apart || done != ids->count) divide(job, text.text, 0, text.length, 0, ids->count, spans);
}

static void keep_spans(const Examples *examples, size_t row, size_t begin, const TokenSpan *spans, size_t count)
{
    int32_t *begins = examples_at(examples, PART_TEXT_BEGIN, row), *ends = examples_at(examples, PART_TEXT_END, row);
    for (size_t t = 0; t < examples->length; t++) {
        bool inside = t >= begin && t - begin < count;
        begins[t] = inside ? (int32_t)spans[t - begin].begin : -1;
        ends[t] = inside ? (int32_t)spans[t - begin].end : -1;
    }
}

/* ---- Windows ---- */

static void add_windows(Job *job, const Answer *answer, const TokenSpan *spans, size_t room)
{
    Examples *examples = &job->examples;
    size_t count = job->texts[1].count, step = room - (size_t)job->options->stride, first = 0, end;
    do {
        end = count - first < room ? count : first + room;
        const TokenIds texts[2] = {job->texts[0],
                                   {.items = count ? job->texts[1].items + first : NULL, .count = end - first}};
        size_t row = examples->count, begin[2];
        job_add_example(job, texts, true, begin);
        *examples_at(examples, PART_ROW, row) = (int32_t)job->table_rows;
        if (job->columns.label >= 0) {
            bool inside = answer->found && answer->first >= first && answer->last < end;
            *examples_at(examples, PART_START, row) = inside ? (int32_t)(begin[1] + answer->first - first) : 0;
            *examples_at(examples, PART_END, row) = inside ? (int32_t)(begin[1] + answer->last - first) : 0;
            job->summary->answered += inside;
            keep_spans(examples, row, begin[1], spans + first, end - first);
        }
        first += step;
    } while (end < count);
    job->table_rows++;
}

static void add_text(Buffer *texts, const char *text, size_t length)
{
    if (length && !memchr(text, 0, length)) buffer_append(texts, text, length), buffer_append(texts, "", 1);
}

/* The text and all its right answers. */
static void keep_texts(Job *job, TableField text)
{
    Buffer *texts = &job->answer_texts;
    TableField field = job->reader.fields[job->columns.label];
    buffer_append(texts, text.text, text.length);
    buffer_append(texts, "", 1);
    json_t *cell = field.text ? cell_read(field) : NULL;
    const json_t *list = json_is_object(cell) ? json_object_get(cell, "text") : cell, *item;
    if (json_is_string(list)) add_text(texts, json_string_value(list), json_string_length(list));
    if (field.text && !cell && !field.nested) add_text(texts, field.text, field.length);
    size_t i;
    json_array_foreach(list, i, item)
    {
        if (json_is_object(item)) item = first_of(json_object_get(item, "text"));
        if (json_is_string(item)) add_text(texts, json_string_value(item), json_string_length(item));
    }
    buffer_append(texts, "", 1);
    array_push(job->text_ends, job->text_end_count, job->text_end_capacity, texts->size);
    json_decref(cell);
}

void job_read_answers(Job *job)
{
    TableReader *reader = &job->reader;
    TableField question = reader->fields[job->columns.text[0]], text = reader->fields[job->columns.text[1]];
    Answer answer = {0};
    job->texts[0].count = job->texts[1].count = 0;
    while (question.length && is_space(*question.text)) question.text++, question.length--;
    if (!job_encode(job, 0, question.text, question.length) || !job_encode(job, 1, text.text, text.length)) return;
    if (job->columns.label >= 0 && !read_answer(job, text, &answer)) return;
    if (answer.found) find_tokens(job, text, &answer);
    size_t taken = tokenizer_least_length(job->tokenizer, true) - 2 + job->texts[0].count;
    size_t stride = (size_t)job->options->stride;
    if (taken + stride >= job->examples.length) {
        table_error(reader, "raise --max-length, or lower --stride",
                    "the question leaves %zu tokens for the text, but windows share %zu",
                    taken < job->examples.length ? job->examples.length - taken : 0, stride);
        return;
    }
    FREED TokenSpan *spans = memory_allocate((job->texts[1].count + 1) * sizeof *spans);
    if (job->columns.label >= 0) {
        find_spans(job, text, spans);
        keep_texts(job, text);
    }
    add_windows(job, &answer, spans, job->examples.length - taken);
}
