#include "frontend/text/folder_template.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/directory.h"

/* Of a message whose place in the text is looked for: nothing that a template or a text writes. */
#define SENTINEL "\xee\x80\x81\xee\x80\x83\xee\x80\x82"

struct FolderTemplate {
    Tokenizer *tokenizer;
    JinjaTemplate *usual, *with_tools; /* the second where a folder has one of its own for tools */
    json_t *tokens;                    /* "bos_token" and others: variables */
    JinjaText out[2];
    char *path;         /* where it stands */
    size_t thoughtless; /* conversations with reasoning that it has not written */
};

/* ---- Reading ---- */

static JinjaTemplate *open_text(FolderTemplate *template, const char *text, size_t length, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer problem = {0};
    JinjaTemplate *opened = jinja_open(text, length, &problem);
    if (!opened)
        input_error(diagnostics, template->path, NULL, "has a chat template that skycc cannot read: %s",
                    buffer_text(&problem));
    return opened;
}

/* A text, or a list of {"name", "template"}. */
static bool open_given(FolderTemplate *template, const json_t *given, Diagnostics *diagnostics)
{
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *named = json_array_get(given, i), *text = json_object_get(named, "template");
        const char *name = json_string_value(json_object_get(named, "name"));
        JinjaTemplate **place = name && strcmp(name, "default") == 0    ? &template->usual
                                : name && strcmp(name, "tool_use") == 0 ? &template->with_tools
                                                                        : NULL;
        if (!place || *place || !json_is_string(text)) continue;
        *place = open_text(template, json_string_value(text), json_string_length(text), diagnostics);
        if (!*place) return false;
    }
    if (json_is_string(given))
        template->usual = open_text(template, json_string_value(given), json_string_length(given), diagnostics);
    else if (!template->usual)
        input_error(diagnostics, template->path, "take one of skycc's: --chat-template NAME", "has no chat template");
    return template->usual != NULL;
}

/* "bos_token" and others: a text, or an object with its "content". */
static void take_tokens(FolderTemplate *template, const json_t *config)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *value = json_object_get(config, names[i]);
        if (json_is_object(value)) value = json_object_get(value, "content");
        if (json_is_string(value)) json_object_set(template->tokens, names[i], value);
    }
}

bool folder_template_is_there(const char *folder)
{
    FREED char *alone = directory_join(folder, "chat_template.jinja"),
               *config = directory_join(folder, "tokenizer_config.json");
    bool is = access(alone, F_OK) == 0;
    if (!is && access(config, F_OK) == 0) {
        FREED_WITH(diagnostics_free) Diagnostics quiet = {0};
        json_t *root = json_read_reals(config, &quiet);
        is = json_object_get(root, "chat_template") != NULL;
        json_decref(root);
    }
    return is;
}

static bool open_all(FolderTemplate *template, const char *folder, Diagnostics *diagnostics)
{
    MappedFile file;
    FREED char *alone = directory_join(folder, "chat_template.jinja");
    template->path = directory_join(folder, "tokenizer_config.json");
    bool config = access(template->path, F_OK) == 0, ok = true;
    json_auto_t *root = config ? json_read_reals(template->path, diagnostics) : NULL;
    take_tokens(template, root);
    if (config && !root) {
        ok = false;
    } else if (access(alone, F_OK) == 0) {
        free(template->path);
        template->path = alone;
        alone = NULL;
        ok = file_map(&file, template->path, diagnostics);
        if (ok) template->usual = open_text(template, (const char *)file.bytes, file.size, diagnostics);
        if (ok) file_unmap(&file);
        ok = template->usual != NULL;
    } else {
        ok = open_given(template, json_object_get(root, "chat_template"), diagnostics);
    }
    return ok;
}

FolderTemplate *folder_template_open(const char *folder, Tokenizer *tokenizer, Diagnostics *diagnostics)
{
    FolderTemplate *template = memory_allocate(sizeof *template);
    *template = (FolderTemplate){.tokenizer = tokenizer, .tokens = json_object()};
    if (open_all(template, folder, diagnostics)) return template;
    folder_template_free(template);
    return NULL;
}

void folder_template_free(FolderTemplate *template)
{
    if (!template) return;
    jinja_free(template->usual);
    jinja_free(template->with_tools);
    jinja_text_free(&template->out[0]);
    jinja_text_free(&template->out[1]);
    json_decref(template->tokens);
    free(template->path);
    free(template);
}

/* ---- Writing ---- */

enum { NO_MESSAGE = -1 };

/* Renders the first `count` messages, as `out[to]`; the content of message `replaced` is the sentinel. */
static bool render(FolderTemplate *template, const json_t *chat, size_t count, bool asks, int replaced, int to)
{
    json_t *variables = json_copy(template->tokens), *list = json_array();
    const json_t *messages = json_object_get(chat, "messages"), *tools = json_object_get(chat, "tools");
    for (size_t i = 0; i < count; i++) json_array_append(list, json_array_get(messages, i));
    if (replaced >= 0) {
        json_t *message = json_copy(json_array_get(messages, (size_t)replaced));
        json_object_set_new(message, "content", json_string(SENTINEL));
        json_array_set_new(list, (size_t)replaced, message);
    }
    json_object_set_new(variables, "tools", json_null());
    json_object_set_new(variables, "documents", json_null());
    json_object_update(variables, (json_t *)chat);
    json_object_set_new(variables, "messages", list);
    json_object_set_new(variables, "add_generation_prompt", json_boolean(asks));
    bool own = template->with_tools && tools && !json_is_null(tools);
    bool ok = jinja_render(own ? template->with_tools : template->usual, variables, &template->out[to]);
    if (!ok && to) {
        template->out[0].problem.size = 0;
        buffer_print(&template->out[0].problem, "%s", buffer_text(&template->out[1].problem));
    }
    json_decref(variables);
    return ok;
}

static size_t common(const Buffer *a, const Buffer *b)
{
    size_t i = 0;
    while (i < a->size && i < b->size && a->bytes[i] == b->bytes[i]) i++;
    return i;
}

static bool is_assistant(const json_t *chat, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(json_object_get(chat, "messages"), i), "role"));
    return role && (strcmp(role, "assistant") == 0 || strcmp(role, "model") == 0);
}

static const char *sentinel_in(const Buffer *text)
{
    return text->size ? memmem(text->bytes, text->size, SENTINEL, strlen(SENTINEL)) : NULL;
}

/* Where the content of message i begins in the whole text, which is out[0], and where it ends, if the rest of the text
 * does not depend on it, else where it begins. */
static bool find_content(FolderTemplate *template, const json_t *chat, size_t count, size_t i, ChatSpan *content)
{
    const Buffer *text = &template->out[0].text, *other = &template->out[1].text;
    const char *found = render(template, chat, count, false, (int)i, 1) ? sentinel_in(other) : NULL;
    if (!found) return false;
    content->begin = content->end = (size_t)(found - other->bytes);
    size_t rest = other->size - content->begin - strlen(SENTINEL);
    bool same =
        rest <= text->size && memcmp(text->bytes + text->size - rest, other->bytes + other->size - rest, rest) == 0;
    if (same && text->size - rest > content->begin) content->end = text->size - rest;
    return common(text, other) >= content->begin;
}

/* What follows an answer: the special tokens after it, whether or not it is the last message; of a template that ends
 * the last one otherwise, that token. As text, in `mark`. */
static bool find_end(FolderTemplate *template, const json_t *chat, Buffer *mark)
{
    json_auto_t *other = json_copy((json_t *)chat);
    json_object_set_new(other, "messages",
                        json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "a", "role",
                                  "assistant", "content", SENTINEL, "role", "user", "content", "a"));
    TokenIds ids = {0};
    size_t same = 0;
    const char *found = render(template, other, 2, false, NO_MESSAGE, 1) ? sentinel_in(&template->out[1].text) : NULL;
    if (found) {
        FREED char *after = strdup(found + strlen(SENTINEL));
        (void)tokenizer_encode(template->tokenizer, after, strlen(after), &ids);
        found = render(template, other, 3, false, NO_MESSAGE, 1) ? sentinel_in(&template->out[1].text) : NULL;
        if (found) found += strlen(SENTINEL);
        while (found && after[same] && after[same] == found[same]) same++;
    }
    size_t used = 0;
    for (; used < ids.count && tokenizer_is_special(template->tokenizer, ids.items[used]); used++) {
        size_t before = mark->size;
        tokenizer_piece(template->tokenizer, ids.items[used], mark);
        if (!used || mark->size <= same) continue;
        mark->size = before;
        break;
    }
    free(ids.items);
    return mark->size;
}

/* Where answer i begins, from `least` on, where the template asks for answers otherwise than it answers: after the mark
 * with which it asks, if that stands before the content. out[1] is what asks for the answer. */
static size_t find_asked(FolderTemplate *template, const json_t *chat, size_t i, size_t least, size_t content)
{
    const Buffer *text = &template->out[0].text, *other = &template->out[1].text;
    FREED_WITH(buffer_free) Buffer asked = {0};
    size_t begin = content;
    buffer_append(&asked, buffer_text(other), other->size);
    if (render(template, chat, i, false, NO_MESSAGE, 1)) {
        size_t same = common(&asked, other), length = asked.size - same;
        for (size_t at = least; length && at + length <= content; at++)
            if (memcmp(text->bytes + at, asked.bytes + same, length) == 0) begin = at + length;
    }
    return begin;
}

/* The bytes of answer i in the whole text, which is out[0]; it begins at `least` or after it. */
static bool find_answer(FolderTemplate *template, const json_t *chat, size_t i, size_t least, const Buffer *mark,
                        ChatSpan *span)
{
    const Buffer *text = &template->out[0].text, *other = &template->out[1].text;
    size_t count = json_array_size(json_object_get(chat, "messages"));
    ChatSpan content = {0, 0}, next = {text->size, 0};
    bool known = find_content(template, chat, count, i, &content);
    if (!render(template, chat, i, true, NO_MESSAGE, 1)) return false;
    span->begin = common(text, other);
    if (span->begin < other->size) {
        if (!known || content.begin < least) return false;
        span->begin = find_asked(template, chat, i, least, content.begin);
    }
    size_t after = known && content.end > span->begin ? content.end : span->begin;
    const char *end = memmem(text->bytes + after, text->size - after, mark->bytes, mark->size);
    if (!end || span->begin < least) return false;
    span->end = (size_t)(end - text->bytes) + mark->size;
    if (i + 1 == count || is_assistant(chat, i + 1)) return true; /* whose own beginning is compared with this end */
    return find_content(template, chat, count, i + 1, &next) && span->end <= next.begin;
}

static bool find_answers(FolderTemplate *template, const json_t *chat, ChatSpan **spans, size_t *count)
{
    FREED_WITH(buffer_free) Buffer mark = {0};
    size_t capacity = 0, messages = json_array_size(json_object_get(chat, "messages"));
    bool ok = find_end(template, chat, &mark);
    for (size_t i = 0; ok && i < messages; i++) {
        ChatSpan span;
        if (!is_assistant(chat, i)) continue;
        ok = find_answer(template, chat, i, *count ? (*spans)[*count - 1].end : 0, &mark, &span);
        if (ok) array_push(*spans, *count, capacity, span);
    }
    return ok;
}

static const char reasoning[] = "reasoning_content";

static size_t occurrences(const char *text, size_t size, const char *part, size_t length)
{
    size_t count = 0;
    for (const char *found; (found = memmem(text, size, part, length)); count++) {
        size -= (size_t)(found - text) + length;
        text = found + length;
    }
    return count;
}

/* The same for a template that moves the tools when a conversation goes on, to its last question: without tools it
 * writes the same answers in the same order. False if another part of the text reads as one of them. */
static bool find_without_tools(FolderTemplate *template, const json_t *chat, ChatSpan **spans, size_t *count)
{
    json_auto_t *plain = json_copy((json_t *)chat);
    FREED_WITH(buffer_free) Buffer text = {0};
    const Buffer *other = &template->out[0].text;
    size_t messages = json_array_size(json_object_get(chat, "messages")), at = 0, before = 0;
    *count = 0;
    free(*spans);
    *spans = NULL;
    buffer_append(&text, buffer_text(other), other->size);
    json_object_set_new(plain, "tools", json_null());
    bool ok = !template->with_tools && json_array_size(json_object_get(chat, "tools")) &&
              render(template, plain, messages, false, NO_MESSAGE, 0) && find_answers(template, plain, spans, count);
    for (size_t i = 0; ok && i < *count; i++) {
        ChatSpan *span = &(*spans)[i];
        const char *part = other->bytes + span->begin;
        size_t length = span->end - span->begin;
        ok = length && occurrences(text.bytes + at, text.size - at, part, length) ==
                           occurrences(other->bytes + before, other->size - before, part, length);
        const char *found = ok ? memmem(text.bytes + at, text.size - at, part, length) : NULL;
        if (!found) return false;
        before = span->end;
        span->begin = (size_t)(found - text.bytes);
        span->end = at = span->begin + length;
    }
    return ok;
}

/* What of the chat the template has no place for; NULL: nothing. */
static const char *find_left_out(const json_t *chat, const JinjaTemplate *jinja)
{
    static const char *const names[] = {"tools", "documents"}, *const members[] = {"tool_calls", reasoning};
    for (size_t k = 0; k < 2; k++) {
        if (json_array_size(json_object_get(chat, names[k])) && !jinja_names(jinja, names[k])) return names[k];
        const json_t *messages = json_object_get(chat, "messages");
        bool known = jinja_names(jinja, members[k]) || (k && jinja_names(jinja, "thinking"));
        for (size_t i = 0; i < json_array_size(messages) && !known; i++) {
            const json_t *member = json_object_get(json_array_get(messages, i), members[k]);
            if (json_array_size(member) || json_string_length(member)) return members[k];
        }
    }
    return NULL;
}

bool folder_template_write(FolderTemplate *template, const json_t *chat, Buffer *text, ChatSpan **spans, size_t *count,
                           Buffer *problem)
{
    size_t messages = json_array_size(json_object_get(chat, "messages"));
    const JinjaText *out = &template->out[0];
    bool tools = template->with_tools && json_is_array(json_object_get(chat, "tools"));
    const JinjaTemplate *jinja = tools ? template->with_tools : template->usual;
    const char *left_out = find_left_out(chat, jinja);
    *spans = NULL;
    *count = 0;
    if (left_out && strcmp(left_out, reasoning) == 0) {
        template->thoughtless++;
    } else if (left_out) {
        buffer_print(problem, "%s does not write '%s'", template->path, left_out);
        return false;
    }
    if (!render(template, chat, messages, false, NO_MESSAGE, 0)) {
        buffer_print(problem, "%s, %s", template->path, buffer_text(&out->problem));
        return false;
    }
    buffer_append(text, buffer_text(&out->text), out->text.size);
    if (jinja_names(jinja, "generation")) {
        *spans = memory_allocate((out->span_count + 1) * sizeof **spans);
        for (size_t i = 0; i < out->span_count; i++)
            (*spans)[(*count)++] = (ChatSpan){out->spans[i].begin, out->spans[i].end};
        return true;
    }
    if (find_answers(template, chat, spans, count) || find_without_tools(template, chat, spans, count)) return true;
    buffer_print(problem, "%s does not say where the assistant's part of this conversation begins and ends",
                 template->path);
    return false;
}

void folder_template_tell(const FolderTemplate *template, Diagnostics *diagnostics)
{
    if (template && template->thoughtless)
        diagnostics_warning(diagnostics, PLACE_FILE(template->path), NULL,
                            "does not write '%s', so that %zu conversations are learned without it", reasoning,
                            template->thoughtless);
}

int32_t folder_template_ask(FolderTemplate *template, const char *prompt, Buffer *text, Buffer *problem)
{
    json_auto_t *chat = json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", SENTINEL);
    FREED_WITH(buffer_free) Buffer mark = {0};
    TokenIds ids = {0};
    const Buffer *asked = &template->out[0].text;
    bool ok = chat && render(template, chat, 1, true, NO_MESSAGE, 0);
    const char *place = ok ? sentinel_in(asked) : NULL;
    int32_t end = -1;
    if (place && find_end(template, chat, &mark) &&
        !tokenizer_encode(template->tokenizer, mark.bytes, mark.size, &ids) && ids.count == 1)
        end = ids.items[0];
    if (end < 0) {
        buffer_print(problem, "%s cannot write a question with its answer: %s", template->path,
                     buffer_text(&template->out[0].problem));
    } else {
        const char *after = place + strlen(SENTINEL), *last = asked->bytes + asked->size;
        size_t before = (size_t)(place - asked->bytes), trimmed = (size_t)(last - after);
        while (trimmed && strchr(" \n", after[0])) after++, trimmed--;
        bool written = (before && strncmp(prompt, asked->bytes, before) == 0) ||
                       (trimmed && memmem(prompt, strlen(prompt), after, trimmed));
        if (!written) buffer_append(text, asked->bytes, before);
        buffer_print(text, "%s", prompt);
        after = place + strlen(SENTINEL);
        if (!written) buffer_append(text, after, (size_t)(last - after));
    }
    free(ids.items);
    return end;
}
