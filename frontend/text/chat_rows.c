/* Conversations, and documents in windows: rows in which every token has itself as its label, or none. */
#include <stdlib.h>
#include <string.h>

#include "frontend/text/cells.h"
#include "frontend/text/dataset_job.h"

enum { MOST_MESSAGES = 10000 };
#define OWN_TEMPLATE "take the template of the tokenizer's folder: --chat-template folder"

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
        &job->reader, "there are system, user and assistant; for others, " OWN_TEMPLATE,
        word ? "has a message of the role '%.60s', which is not supported" : "has a message without role", word);
}

static const char *const thoughts[] = {"reasoning_content", "thinking", "reasoning"};

/* A text, or a list of parts that are texts, which become one; NULL after reporting. */
static const char *content_of(Job *job, const json_t *message, const json_t *content)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    if (json_array_size(calls) || (calls && !json_is_null(calls) && !json_is_string(content))) {
        table_error(&job->reader, OWN_TEMPLATE, "calls tools, which the chat template %s does not write",
                    chat_template_name(job->options->chat_template));
        return NULL;
    }
    for (size_t i = 0; i < sizeof thoughts / sizeof *thoughts; i++)
        if (json_string_length(json_object_get(message, thoughts[i]))) {
            table_error(&job->reader, OWN_TEMPLATE, "has '%s', which the chat template %s does not write", thoughts[i],
                        chat_template_name(job->options->chat_template));
            return NULL;
        }
    if (json_is_string(content)) return json_string_value(content);
    FREED_WITH(buffer_free) Buffer joined = {0};
    bool ok = json_is_array(content);
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const char *text = json_string_value(json_object_get(json_array_get(content, i), "text"));
        ok = text != NULL;
        if (ok) buffer_print(&joined, "%s", text);
    }
    const char *text = ok ? arena_string(&job->row_arena, buffer_text(&joined)) : NULL;
    if (!ok) table_error(&job->reader, "only texts are supported", "has a message whose content is not a text");
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

/* A row of a text that is written; `whole`: with its first tokens. */
static void add_text(Job *job, const Buffer *text, const ChatSpan *spans, size_t learned, bool whole)
{
    bool all = job->options->learns_all;
    TokenIds row = {0};
    job->texts[0].count = 0;
    if (!learned && !all) {
        table_error(&job->reader, "or learn everything: --train-on all", "has no response that could be learned");
    } else if (job_encode(job, 0, text->bytes, text->size)) {
        const bool *own = find_learned(job, text, spans, learned);
        if (!whole) begin_row(job, &row);
        size_t before = row.count, count = job->texts[0].count;
        for (size_t i = 0; i < count; i++) array_push(row.items, row.count, row.capacity, job->texts[0].items[i]);
        bool *labelled = arena_new_array(&job->row_arena, bool, row.count);
        memcpy(labelled + before, own, count * sizeof *own);
        add_row(job, row.items, all ? NULL : labelled, row.count);
    }
    free(row.items);
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
    FREED_WITH(buffer_free) Buffer text = {0}, end = {0};
    ChatSpan *spans = arena_new_array(&job->row_arena, ChatSpan, chat->count);
    tokenizer_piece(job->tokenizer, job->options->end_of_text, &end);
    size_t learned = chat_template_write(template, chat->messages, chat->count, buffer_text(&end), &text, spans);
    add_text(job, &text, spans, learned, chat_template_is_whole(template));
}

/* ---- By the folder's own template ---- */

static const char *const extras[] = {"tools", "documents", "chat_template_kwargs"};

void job_find_extras(Job *job)
{
    for (size_t e = 0; e < sizeof extras / sizeof *extras; e++)
        for (size_t i = 0; i < job->reader.field_count; i++)
            if (table_field_is(job->reader.fields[i], extras[e])) job->extras[e] = i + 1;
}

/* What a column next to the messages says, which may be JSON in a text; NULL: nothing. The caller frees it. */
static json_t *read_extra(Job *job, size_t extra, bool *ok)
{
    const json_t *given = json_object_get(job->reader.object, extras[extra]);
    const TableField *cell = job->extras[extra] ? &job->reader.fields[job->extras[extra] - 1] : NULL;
    const char *text = cell ? cell->text : json_string_value(given);
    size_t length = cell ? cell->length : json_string_length(given);
    json_t *value = NULL;
    if (text && length) {
        value = json_loadb(text, length, 0, NULL);
        *ok &= value || table_error(&job->reader, NULL, "'%s' is not valid JSON", extras[extra]);
    } else if (json_is_array(given) || json_is_object(given)) {
        value = json_incref((json_t *)given);
    }
    if (!json_object_size(value) && !json_array_size(value)) json_decref(value), value = NULL;
    return value;
}

/* skycc's own templates have no place for what stands next to messages. */
static bool refuse_beside(Job *job)
{
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++) {
        bool ok = true;
        json_t *value = read_extra(job, i, &ok);
        json_decref(value);
        if (value)
            return table_error(&job->reader, OWN_TEMPLATE, "has '%s', which the chat template %s does not write",
                               extras[i], chat_template_name(job->options->chat_template));
        if (!ok) return false;
    }
    return true;
}

/* A message as templates know it: "from" and "value" become "role" and "content", members that are null are left out,
 * and reasoning has the names that templates read. */
static json_t *own_message(Job *job, const json_t *message)
{
    static const char *const names[CHAT_ROLE_COUNT] = {"system", "user", "user", "assistant"};
    const char *from = json_string_value(json_object_get(message, "from")), *key;
    json_t *own = json_is_object(message) ? json_object() : NULL, *member, *thought = NULL;
    ChatRole role = CHAT_USER;
    bool turned = from && !json_object_get(message, "role");
    if (turned && !find_role(job, from, &role)) return json_decref(own), NULL;
    json_object_foreach((json_t *)message, key, member)
    {
        if (json_is_null(member) || (turned && strcmp(key, "from") == 0)) continue;
        json_object_set(own, turned && strcmp(key, "value") == 0 ? "content" : key, member);
    }
    if (turned) json_object_set_new(own, "role", json_string(names[role]));
    for (size_t i = 0; !thought && i < sizeof thoughts / sizeof *thoughts; i++)
        thought = json_object_get(own, thoughts[i]);
    if (thought && !json_object_get(own, "thinking")) json_object_set(own, "thinking", thought);
    if (thought) json_object_set(own, "reasoning_content", thought);
    return own;
}

/* Appends a column's messages, or its text as one of that role. An input goes on with the question before it. */
static bool append_column(Job *job, json_t *messages, TableField field, const char *role, const char *column)
{
    json_auto_t *list = field.nested || job->text_count == 1 ? cell_read(field) : NULL;
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    bool ok = true;
    if (field.nested || job->text_count == 1) {
        ok = (json_is_array(list) && json_array_size(list) && json_array_size(list) <= MOST_MESSAGES) ||
             table_error(&job->reader, "write [{\"role\": \"user\", \"content\": \"...\"}, ...]",
                         "'%s' is not a list of messages", column);
        for (size_t i = 0; ok && i < json_array_size(list); i++) {
            json_t *message = own_message(job, json_array_get(list, i));
            ok = json_is_object(message) || table_error(&job->reader, NULL, "has a message that is not an object");
            if (ok) json_array_append_new(messages, message);
        }
    } else if (role) {
        json_array_append_new(messages, json_pack("{s:s, s:s%}", "role", role, "content", field.text, field.length));
    } else if (field.length) {
        json_object_set_new(last, "content",
                            json_sprintf("%s\n%.*s", json_string_value(json_object_get(last, "content")),
                                         (int)field.length, field.text));
    }
    return ok;
}

/* The row as variables of a template; *given: how many messages are no responses to learn. */
static json_t *own_chat(Job *job, size_t *given)
{
    json_t *chat = json_object(), *messages = json_array();
    bool ok = true;
    json_object_set_new(chat, "messages", messages);
    for (size_t i = 0; ok && i < job->text_count; i++) {
        bool last = i + 1 == job->text_count;
        if (last) *given = job->text_count > 1 ? json_array_size(messages) : 0;
        ok = append_column(job, messages, job->reader.fields[job->columns.text[i]],
                           last ? "assistant"
                           : i  ? NULL
                                : "user",
                           job->names[i]);
    }
    for (size_t i = 0; ok && i < sizeof extras / sizeof *extras; i++) {
        json_t *value = read_extra(job, i, &ok);
        if (i == 2)
            json_object_update_missing(chat, value);
        else if (value)
            json_object_set(chat, extras[i], value);
        json_decref(value);
    }
    if (!ok) json_decref(chat);
    return ok ? chat : NULL;
}

/* Leaves out the spans of messages with the weight 0, and of those that are given. Returns how many are left; SIZE_MAX:
 * it is not known whose they are. */
static size_t drop_spans(const json_t *messages, size_t given, ChatSpan *spans, size_t count)
{
    size_t at = 0, kept = 0, dropped = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i), *weight = json_object_get(message, "weight");
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role || (strcmp(role, "assistant") != 0 && strcmp(role, "model") != 0)) continue;
        bool drops = i < given || (json_is_number(weight) && json_number_value(weight) == 0);
        dropped += drops;
        if (!drops && at < count) spans[kept++] = spans[at];
        at++;
    }
    return at == count ? kept : dropped ? SIZE_MAX : count;
}

static void read_own_chat(Job *job)
{
    size_t given = 0, count = 0;
    json_t *chat = own_chat(job, &given);
    FREED_WITH(buffer_free) Buffer text = {0}, problem = {0};
    FREED ChatSpan *spans = NULL;
    if (!chat) return;
    bool ok = folder_template_write(job->options->folder_template, chat, &text, &spans, &count, &problem);
    size_t learned = ok ? drop_spans(json_object_get(chat, "messages"), given, spans, count) : 0;
    if (ok && learned == SIZE_MAX)
        table_error(&job->reader, NULL, "has answers that are not to be learned, but the template marks %zu parts",
                    count);
    else if (ok)
        add_text(job, &text, spans, learned, true);
    else
        table_error(&job->reader, "one of skycc's templates: --chat-template NAME", "cannot be written: %s",
                    buffer_text(&problem));
    json_decref(chat);
}

static void read_chat(Job *job)
{
    Chat chat = {0};
    json_t *lists[3] = {NULL};
    if (refuse_beside(job) && add_columns(job, &chat, lists)) add_chat(job, &chat);
    for (int i = 0; i < 3; i++) json_decref(lists[i]);
    free(chat.messages);
}

void job_read_chat(Job *job)
{
    (job->options->folder_template ? read_own_chat : read_chat)(job);
    arena_free(&job->row_arena);
    job->row_arena = (Arena){0};
}
