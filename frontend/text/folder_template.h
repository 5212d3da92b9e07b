/* The chat template of a model's folder, in Jinja: chat_template.jinja, or that of tokenizer_config.json.
 *
 * It writes what apply_chat_template of the folder's tokenizer writes. What of it is learned: what stands in
 * {% generation %}; where the template has no such marks, an answer begins where the template asks for one
 * (add_generation_prompt) and ends with the token that follows its content. Where that cannot be told, it is a problem
 * of the conversation. */
#ifndef FRONTEND_TEXT_FOLDER_TEMPLATE_H
#define FRONTEND_TEXT_FOLDER_TEMPLATE_H

#include "frontend/text/chat_template.h"
#include "frontend/text/jinja.h"

typedef struct FolderTemplate FolderTemplate;

/* NULL after reporting, also where there is none. Its text is that of the tokenizer. */
FolderTemplate *folder_template_open(const char *folder, Tokenizer *tokenizer, Diagnostics *diagnostics);
void folder_template_free(FolderTemplate *template);
bool folder_template_is_there(const char *folder);

/* Writes `chat`: "messages", perhaps "tools", "documents" and further variables. spans, which the caller frees: of
 * every assistant's message, what a model learns. False with *problem. */
bool folder_template_write(FolderTemplate *template, const json_t *chat, Buffer *text, ChatSpan **spans, size_t *count,
                           Buffer *problem);
/* Once all conversations are written: warns of those that had reasoning for which the template has no place. */
void folder_template_tell(const FolderTemplate *template, Diagnostics *diagnostics);
/* The question, up to where the answer begins, unless the prompt is written in the template already; and the token that
 * ends an answer. -1 with *problem. */
int32_t folder_template_ask(FolderTemplate *template, const char *prompt, Buffer *text, Buffer *problem);

#endif
