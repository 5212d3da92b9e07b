/* How conversations are written as one text, and which part of it a model learns.
 *
 * chatml   <|im_start|>user\nQUESTION<|im_end|>\n<|im_start|>assistant\nANSWER<|im_end|>\n
 * llama3   <|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nQUESTION<|eot_id|>...
 * gemma    <bos><start_of_turn>user\nQUESTION<end_of_turn>\n<start_of_turn>model\nANSWER<end_of_turn>\n
 * mistral  <s>[INST] QUESTION[/INST] ANSWER</s>
 * alpaca   a sentence of introduction, "### Instruction:", "### Input:", "### Response:"; then the end of text
 * plain    prompt and response, one after the other; then the end of text
 *
 * gemma and mistral have no system message: it goes before the first question. Blanks around contents are trimmed as by
 * the templates of Llama 3, Gemma 3 and Mistral 7B v0.3: all of them; all but the system message's; the assistant's. */
#ifndef FRONTEND_TEXT_CHAT_TEMPLATE_H
#define FRONTEND_TEXT_CHAT_TEMPLATE_H

#include "base/buffer.h"
#include "base/diagnostics.h"
#include "frontend/text/tokenizer.h"

#define CHAT_TEMPLATE_WORDS "chatml", "llama3", "gemma", "mistral", "alpaca", "plain"
#define CHAT_TEMPLATE_FOLDER "folder" /* the folder's own: folder_template.h */

typedef enum ChatRole { CHAT_SYSTEM, CHAT_USER, CHAT_INPUT, CHAT_ASSISTANT, CHAT_ROLE_COUNT } ChatRole;

typedef struct ChatMessage {
    ChatRole role; /* CHAT_INPUT: what an instruction is about */
    const char *text;
    size_t length;
    bool ignored; /* of the assistant: it is not learned */
} ChatMessage;

typedef struct ChatTemplate ChatTemplate;

/* Bytes of the text that a model learns: a response, and what ends it. */
typedef struct ChatSpan {
    size_t begin, end;
} ChatSpan;

/* The template of that name, or without one that whose tokens the tokenizer has; alpaca if it has none of them. NULL
 * after reporting a template whose tokens the tokenizer lacks. */
const ChatTemplate *chat_template_choose(const char *name, Tokenizer *tokenizer, Diagnostics *diagnostics);
const char *chat_template_name(const ChatTemplate *template);
/* Whether the text has its first tokens itself; otherwise those of the tokenizer's frame come before it. */
bool chat_template_is_whole(const ChatTemplate *template);

/* What keeps the messages from being written, as "a user's message where ..."; NULL: nothing. */
const char *chat_template_misfit(const ChatTemplate *template, const ChatMessage *messages, size_t count);

/* Writes the messages; `end` is the token that ends a text. `spans` has room for one a message. Returns how many there
 * are. */
size_t chat_template_write(const ChatTemplate *template, const ChatMessage *messages, size_t count, const char *end,
                           Buffer *text, ChatSpan *spans);

/* Whether the prompt is written in the template already: it begins with a mark of it, or has that of an answer. */
bool chat_template_is_written(const ChatTemplate *template, const char *prompt);

/* The token that ends a text: `name`, or what `folder`'s tokenizer_config.json says (NULL: none), or else the usual
 * one that the tokenizer has. -1 after reporting that there is none. */
int32_t chat_end_of_text(const char *name, const char *folder, Tokenizer *tokenizer, Diagnostics *diagnostics);
/* The token that ends an answer: the template's own, or the one that ends a text, as above. */
int32_t chat_template_end(const ChatTemplate *template, const char *name, const char *folder, Tokenizer *tokenizer,
                          Diagnostics *diagnostics);

#endif
