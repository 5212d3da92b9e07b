/* Conversations, and documents in windows: rows in which every token has itself as its label, or none. */
#include <stdlib.h>
#include <string.h>

#include "frontend/text/cells.h"
#include "frontend/text/dataset_job.h"

enum { MOST_MESSAGES = 10000 };

/* ---- Rows ---- */

/* Appends the frame's tokens before a text. */
static void begin_row(Job *job, TokenIds *ids)
{
    const TokenFrame *frame = tokenizer_text_frame(job->tokenizer);
    for (size_t i = 0; i < frame->count && frame->pieces[i].text < 0; i++)
        array_push(ids->items, ids->count, ids->capacity, frame->pieces[i].id);
}

/* The next example: `count` tokens, of which those with `learned` (NULL: all) are their own labels. */
static void add_row(Job *job, const int32_t *ids, const bool *learned, size_t count)
{
    Examples *examples = &job->examples;
    TokenRow row = examples_room(examples, false);
    int32_t *labels = examples_at(examples, PART_TOKENS, examples->count);
    bool any = false;
    if (count > row.length) job->summary->truncated++, count = row.length;
    for (size_t i = 0; i < row.length; i++) {
        bool is_text = i < count, is_learned = is_text && (!learned || learned[i]);
        row.ids[i] = is_text ? ids[i] : tokenizer_specials(job->tokenizer)->pad;
        row.mask[i] = is_text;
        row.types[i] = 0;
        labels[i] = is_learned ? ids[i] : DATASET_IGNORED_LABEL;
        any |= is_learned && i > 0;
    }
    *examples_at(examples, PART_LENGTHS, examples->count) = (int32_t)count;
    if (any)
        examples->count++;
    else
        job->summary->left_out++; /* cut before its first response */
}

/* ---- Documents ---- */

void job_add_document(Job *job, const char *text, size_t length)
{
    TokenIds window = {0};
    TokenIds *ids = &job->texts[0];
    ids->count = 0;
    if (!job_encode(job, 0, text, length)) return;
    array_push(ids->items, ids->count, ids->capacity, job->options->end_of_text);
    begin_row(job, &window);
    size_t before = window.count;
    for (size_t at = 0; at < ids->count && before < job->examples.length;) {
        window.count = before;
        while (window.count < job->examples.length && at < ids->count)
            array_push(window.items, window.count, window.capacity, ids->items[at++]);
        if (window.count > 1) add_row(job, window.items, NULL, window.count);
    }
    free(window.items);
}

/* ---- Conversations ---- */

typedef struct Chat {
    ChatMessage *messages;
    size_t count, capacity;
} Chat;

static bool find_role(Job *job, const char *word, ChatRole *role)
{
    static const struct {
        const char *word;
        ChatRole role;
    } words[] = {{"system", CHAT_SYSTEM}, {"developer", CHAT_SYSTEM}, {"user", CHAT_USER},
                 {"human", CHAT_USER},    {"prompter", CHAT_USER},    {"assistant", CHAT_ASSISTANT},
                 {"gpt", CHAT_ASSISTANT}, {"model", CHAT_ASSISTANT}};
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].word, word) == 0) return *role = words[i].role, true;
    return table_error(
        &job->reader, "there are system, user and assistant",
        word ? "has a message of the role '%.60s', which is not supported" : "has a message without role", word);
}

/* A text, or a list of parts that are texts, which become one; NULL after reporting. */
static const char *content_of(Job *job, const json_t *message, const json_t *content)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    if (json_array_size(calls) || (calls && !json_is_null(calls) && !json_is_string(content))) {
        table_error(&job->reader, NULL, "calls tools, which is not supported");
        return NULL;
    }
    if (json_is_string(content)) return json_string_value(content);
    Buffer joined = {0};
    bool ok = json_is_array(content);
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const char *text = json_string_value(json_object_get(json_array_get(content, i), "text"));
        ok = text != NULL;
        if (ok) buffer_print(&joined, "%s", text);
    }
    const char *text = ok ? arena_string(&job->row_arena, buffer_text(&joined)) : NULL;
    if (!ok) table_error(&job->reader, "only texts are supported", "has a message whose content is not a text");
    buffer_free(&joined);
    return text;
}

static void add_message(Chat *chat, ChatRole role, const char *text, size_t length, bool ignored)
{
    const ChatMessage message = {role, text, length, ignored};
    array_push(chat->messages, chat->count, chat->capacity, message);
}

/* Members "role" and "content", or "from" and "value"; `prompt`: no response among them is learned. */
static bool add_list(Job *job, Chat *chat, const json_t *list, const char *column, bool prompt)
{
    if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > MOST_MESSAGES)
        return table_error(&job->reader, "write [{\"role\": \"user\", \"content\": \"...\"}, ...]",
                           "'%s' is not a list of messages", column);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *message = json_array_get(list, i), *named = json_object_get(message, "role"),
                     *weight = json_object_get(message, "weight");
        ChatRole role = CHAT_USER;
        if (!find_role(job, json_string_value(named ? named : json_object_get(message, "from")), &role)) return false;
        if (role == CHAT_SYSTEM && chat->count > 0)
            return table_error(&job->reader, NULL, "has a system message that is not the first one");
        const char *text = content_of(job, message, json_object_get(message, named ? "content" : "value"));
        if (!text) return false;
        add_message(chat, role, text, strlen(text),
                    prompt || (json_is_number(weight) && json_number_value(weight) == 0));
    }
    return true;
}

/* Columns of a prompt and a response, perhaps with an input between them; each is a text, or a list of messages. The
 * texts live as long as `lists`. */
static bool add_columns(Job *job, Chat *chat, json_t *lists[static 3])
{
    const ChatRole roles[2][3] = {{CHAT_USER, CHAT_ASSISTANT}, {CHAT_USER, CHAT_INPUT, CHAT_ASSISTANT}};
    for (size_t i = 0; i < job->text_count; i++) {
        TableField field = job->reader.fields[job->columns.text[i]];
        ChatRole role = roles[job->text_count == 3][i];
        if (role == CHAT_INPUT && !field.length) continue;
        if (!field.nested && job->text_count > 1) {
            add_message(chat, role, field.text, field.length, false);
            continue;
        }
        lists[i] = cell_read(field);
        if (!add_list(job, chat, lists[i], job->names[i], i + 1 < job->text_count)) return false;
    }
    return true;
}

/* How many tokens of the text end before byte `at`. */
static size_t tokens_before(Job *job, const Buffer *text, size_t at)
{
    TokenIds before = {0};
    const TokenIds *ids = &job->texts[0];
    size_t same = 0;
    (void)tokenizer_encode(job->tokenizer, text->bytes, at, &before);
    while (same < before.count && same < ids->count && before.items[same] == ids->items[same]) same++;
    free(before.items);
    return same;
}

/* Whether each token of the text is learned; a token that reaches into a response is. In the job's row arena. */
static bool *find_learned(Job *job, const Buffer *text, const ChatSpan *spans, size_t count)
{
    bool *learned = arena_new_array(&job->row_arena, bool, job->texts[0].count + 1);
    for (size_t i = 0; i < count; i++) {
        size_t begin = tokens_before(job, text, spans[i].begin),
               end = spans[i].end == text->size ? job->texts[0].count : tokens_before(job, text, spans[i].end);
        for (size_t t = begin; t < end; t++) learned[t] = true;
    }
    return learned;
}

static void add_chat(Job *job, const Chat *chat)
{
    const ChatTemplate *template = job->options->chat_template;
    const char *misfit = chat_template_misfit(template, chat->messages, chat->count);
    if (misfit) {
        table_error(&job->reader, "another template: --chat-template, or join the messages",
                    "has %s, which the chat template %s cannot write", misfit, chat_template_name(template));
        return;
    }
    bool all = job->options->learns_all;
    Buffer text = {0}, end = {0};
    ChatSpan *spans = arena_new_array(&job->row_arena, ChatSpan, chat->count);
    TokenIds row = {0};
    tokenizer_piece(job->tokenizer, job->options->end_of_text, &end);
    size_t learned = chat_template_write(template, chat->messages, chat->count, buffer_text(&end), &text, spans);
    job->texts[0].count = 0;
    if (!learned && !all) {
        table_error(&job->reader, "or learn everything: --train-on all", "has no response that could be learned");
    } else if (job_encode(job, 0, text.bytes, text.size)) {
        const bool *own = find_learned(job, &text, spans, learned);
        if (!chat_template_is_whole(template)) begin_row(job, &row);
        size_t before = row.count, count = job->texts[0].count;
        for (size_t i = 0; i < count; i++) array_push(row.items, row.count, row.capacity, job->texts[0].items[i]);
        bool *labelled = arena_new_array(&job->row_arena, bool, row.count);
        memcpy(labelled + before, own, count * sizeof *own);
        add_row(job, row.items, all ? NULL : labelled, row.count);
    }
    buffer_free(&text);
    buffer_free(&end);
    free(row.items);
}

void job_read_chat(Job *job)
{
    Chat chat = {0};
    json_t *lists[3] = {NULL};
    if (add_columns(job, &chat, lists)) add_chat(job, &chat);
    for (int i = 0; i < 3; i++) json_decref(lists[i]);
    free(chat.messages);
    arena_free(&job->row_arena);
    job->row_arena = (Arena){0};
}
