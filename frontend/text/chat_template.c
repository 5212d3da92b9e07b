#include "frontend/text/chat_template.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "frontend/text/unicode.h"

struct ChatTemplate {
    const char *name;
    const char *tokens[4]; /* that the tokenizer must have */
    const char *sign;      /* a token that tells the template's tokenizers from others; NULL: the tokens do */
    const char *begin;     /* of the whole text */
    const char *before[CHAT_ROLE_COUNT]; /* a message; NULL of CHAT_SYSTEM: it goes before the first question */
    const char *after[CHAT_ROLE_COUNT];  /* a message; of the assistant's, the model learns it too */
    const char *between;                 /* after that: not learned */
    bool trims[CHAT_ROLE_COUNT];         /* blanks around the contents of that role's messages */
    bool whole, alternates;              /* user and assistant take turns */
    const char *introduction[2];         /* without a system message: without an input, with one */
};

#define HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"

static const ChatTemplate templates[] = {
    {.name = "chatml",
     .tokens = {"<|im_start|>", "<|im_end|>"},
     .begin = "",
     .before = {"<|im_start|>system\n", "<|im_start|>user\n", "\n", "<|im_start|>assistant\n"},
     .after = {"<|im_end|>\n", "<|im_end|>\n", "", "<|im_end|>"},
     .between = "\n",
     .whole = true},
    {.name = "llama3",
     .tokens = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .begin = "<|begin_of_text|>",
     .before = {HEADER("system"), HEADER("user"), "\n", HEADER("assistant")},
     .after = {"<|eot_id|>", "<|eot_id|>", "", "<|eot_id|>"},
     .between = "",
     .trims = {true, true, true, true},
     .whole = true},
    {.name = "gemma",
     .tokens = {"<bos>", "<start_of_turn>", "<end_of_turn>"},
     .begin = "<bos>",
     .before = {NULL, "<start_of_turn>user\n", "\n", "<start_of_turn>model\n"},
     .after = {"\n\n", "<end_of_turn>\n", "", "<end_of_turn>"},
     .between = "\n",
     .trims = {false, true, true, true},
     .whole = true,
     .alternates = true},
    {.name = "mistral",
     .tokens = {"<s>", "</s>"},
     .sign = "[INST]",
     .begin = "<s>",
     .before = {NULL, "[INST] ", "\n", " "},
     .after = {"\n\n", "[/INST]", "", "</s>"},
     .between = "",
     .trims = {[CHAT_ASSISTANT] = true},
     .whole = true,
     .alternates = true},
    {.name = "alpaca",
     .begin = "",
     .before = {"", "### Instruction:\n", "### Input:\n", "### Response:\n"},
     .after = {"\n\n", "\n\n", "\n\n", ""},
     .between = "\n\n",
     .introduction = {"Below is an instruction that describes a task. Write a response that appropriately completes "
                      "the request.\n\n",
                      "Below is an instruction that describes a task, paired with an input that provides further "
                      "context. Write a response that appropriately completes the request.\n\n"}},
    {.name = "plain", .begin = "", .before = {"", "", "\n", ""}, .after = {"\n\n", "", "", ""}, .between = "\n\n"},
};

enum { TEMPLATES = sizeof templates / sizeof *templates };

/* The special token that the text is; -1: it is none. */
static int32_t token_of(Tokenizer *tokenizer, const char *text)
{
    TokenIds ids = {0};
    bool one = !tokenizer_encode(tokenizer, text, strlen(text), &ids) && ids.count == 1 &&
               tokenizer_is_special(tokenizer, ids.items[0]);
    int32_t id = one ? ids.items[0] : -1;
    free(ids.items);
    return id;
}

static const char *missing_token(const ChatTemplate *template, Tokenizer *tokenizer)
{
    for (int i = 0; i < 4 && template->tokens[i]; i++)
        if (token_of(tokenizer, template->tokens[i]) < 0) return template->tokens[i];
    return NULL;
}

const ChatTemplate *chat_template_choose(const char *name, Tokenizer *tokenizer, Diagnostics *diagnostics)
{
    for (int i = 0; i < TEMPLATES; i++) {
        const ChatTemplate *template = &templates[i];
        const char *missing = missing_token(template, tokenizer);
        bool told = !template->sign || token_of(tokenizer, template->sign) >= 0;
        if (!name && !missing && told) return template;
        if (!name || strcmp(template->name, name) != 0) continue;
        if (!missing) return template;
        usage_error(diagnostics, "alpaca and plain need no tokens of their own",
                    "--chat-template %s writes the token %s, which the tokenizer does not have", name, missing);
        return NULL;
    }
    bug("no chat template '%s'", name ? name : "");
}

const char *chat_template_name(const ChatTemplate *template) { return template->name; }

bool chat_template_is_whole(const ChatTemplate *template) { return template->whole; }

const char *chat_template_misfit(const ChatTemplate *template, const ChatMessage *messages, size_t count)
{
    ChatRole next = CHAT_USER;
    for (size_t i = 0; template->alternates && i < count; i++) {
        if (messages[i].role == CHAT_SYSTEM || messages[i].role == CHAT_INPUT) continue;
        if (messages[i].role != next)
            return next == CHAT_USER ? "an assistant's message where the user's is next"
                                     : "a user's message where the assistant's is next";
        next = next == CHAT_USER ? CHAT_ASSISTANT : CHAT_USER;
    }
    return NULL;
}

/* What "trim" of a template in Jinja takes away: white space, and the four separators that Python counts as such. */
static bool is_trimmed(int32_t c) { return unicode_is_space(c) || (c >= 0x1c && c <= 0x1f); }

static void add_content(const ChatTemplate *template, const ChatMessage *message, Buffer *text)
{
    size_t begin = 0, end = message->length, used = 0;
    if (template->trims[message->role]) {
        size_t kept = 0;
        for (size_t at = 0; at < message->length; at += used) {
            if (is_trimmed(unicode_read(message->text + at, message->length - at, &used))) continue;
            if (!kept) begin = at;
            kept = at + used;
        }
        end = kept ? kept : begin;
    }
    buffer_append(text, message->text + begin, end - begin);
}

/* Before the first message, and before a question: what a system message says where it has no place of its own. */
static void introduce(const ChatTemplate *template, const ChatMessage *messages, size_t count, Buffer *text)
{
    bool system = count && messages[0].role == CHAT_SYSTEM, input = false;
    for (size_t i = 0; i < count; i++) input |= messages[i].role == CHAT_INPUT;
    buffer_print(text, "%s", template->begin);
    if (template->introduction[input] && !system) buffer_print(text, "%s", template->introduction[input]);
}

/* Between a question and its input there is no end of the message. */
static const char *end_of(const ChatTemplate *template, const ChatMessage *messages, size_t count, size_t i,
                          const char *end)
{
    ChatRole role = messages[i].role;
    bool input_follows = i + 1 < count && messages[i + 1].role == CHAT_INPUT;
    if (!template->whole) return role == CHAT_ASSISTANT ? end : template->after[role];
    if (input_follows) return "";
    return template->after[role == CHAT_INPUT ? CHAT_USER : role];
}

size_t chat_template_write(const ChatTemplate *template, const ChatMessage *messages, size_t count, const char *end,
                           Buffer *text, ChatSpan *spans)
{
    const ChatMessage *system = NULL;
    size_t learned = 0;
    introduce(template, messages, count, text);
    for (size_t i = 0; i < count; i++) {
        const ChatMessage *message = &messages[i];
        if (message->role == CHAT_SYSTEM && !template->before[CHAT_SYSTEM]) {
            system = message;
            continue;
        }
        buffer_print(text, "%s", template->before[message->role]);
        if (system && message->role == CHAT_USER) {
            add_content(template, system, text);
            buffer_print(text, "%s", template->after[CHAT_SYSTEM]);
            system = NULL;
        }
        size_t begin = text->size;
        add_content(template, message, text);
        buffer_print(text, "%s", end_of(template, messages, count, i, end));
        if (message->role != CHAT_ASSISTANT) continue;
        if (!message->ignored) spans[learned++] = (ChatSpan){begin, text->size};
        if (template->whole || i + 1 < count) buffer_print(text, "%s", template->between);
    }
    return learned;
}

/* A mark without the line breaks around it; empty: the template has none. */
static const char *trimmed(const char *mark, size_t *length)
{
    mark += strspn(mark, " \n");
    for (*length = strlen(mark); *length && strchr(" \n", mark[*length - 1]);) --*length;
    return mark;
}

bool chat_template_is_written(const ChatTemplate *template, const char *prompt)
{
    /* A system message is in no template alone, and mistral marks the end of the question, not the answer. */
    const char *const marks[] = {template->begin, template->before[CHAT_SYSTEM], template->before[CHAT_USER],
                                 template->introduction[0], template->introduction[1]};
    size_t length;
    prompt += strspn(prompt, " \n");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const char *mark = marks[i] ? trimmed(marks[i], &length) : NULL;
        if (mark && length && strncmp(prompt, mark, length) == 0) return true;
    }
    const char *answer = trimmed(template->before[CHAT_ASSISTANT], &length);
    if (!length) answer = trimmed(template->after[CHAT_USER], &length);
    return length && memmem(prompt, strlen(prompt), answer, length);
}

/* "eos_token" of tokenizer_config.json, a text or an object with its "content", as *id; -1: it names none. */
static bool configured_end(const char *folder, Tokenizer *tokenizer, int32_t *id, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer path = {0};
    buffer_print(&path, "%s/tokenizer_config.json", folder);
    bool there = access(buffer_text(&path), F_OK) == 0;
    json_auto_t *root = there ? json_read_reals(buffer_text(&path), diagnostics) : NULL;
    const json_t *value = json_object_get(root, "eos_token");
    const char *name = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    *id = name ? token_of(tokenizer, name) : -1;
    bool ok = root || !there;
    if (name && *id < 0)
        ok = input_error(diagnostics, buffer_text(&path), "name the token: --end-of-text TOKEN",
                         "names '%.60s' as eos_token, which is not a special token of the tokenizer", name);
    return ok;
}

int32_t chat_end_of_text(const char *name, const char *folder, Tokenizer *tokenizer, Diagnostics *diagnostics)
{
    static const char *const usual[] = {"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>"};
    int32_t id = name ? token_of(tokenizer, name) : -1;
    if (!name && folder && !configured_end(folder, tokenizer, &id, diagnostics)) return -1;
    for (size_t i = 0; id < 0 && !name && i < sizeof usual / sizeof *usual; i++) id = token_of(tokenizer, usual[i]);
    if (id < 0)
        usage_error(diagnostics, "name the token: --end-of-text TOKEN",
                    name ? "--end-of-text %s is not a special token of the tokenizer"
                         : "the tokenizer does not say which token ends a text",
                    name);
    return id;
}

int32_t chat_template_end(const ChatTemplate *template, const char *name, const char *folder, Tokenizer *tokenizer,
                          Diagnostics *diagnostics)
{
    return template->whole ? token_of(tokenizer, template->after[CHAT_ASSISTANT])
                           : chat_end_of_text(name, folder, tokenizer, diagnostics);
}
