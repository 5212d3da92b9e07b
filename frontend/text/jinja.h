/* Templates in Jinja, as Hugging Face's chat templates use it: the language, filters, tests and methods that they need.
 * What is not known is a problem of the rendering, with its line; nothing is left out in silence.
 *
 * Templates are strangers' files: a rendering has limits of steps, memory and depth. */
#ifndef FRONTEND_TEXT_JINJA_H
#define FRONTEND_TEXT_JINJA_H

#include "base/buffer.h"
#include "base/json.h"

typedef struct JinjaTemplate JinjaTemplate;

/* Bytes that stand between {% generation %} and {% endgeneration %}. */
typedef struct JinjaSpan {
    size_t begin, end;
} JinjaSpan;

typedef struct JinjaText {
    Buffer text;
    JinjaSpan *spans;
    size_t span_count, span_capacity;
    Buffer problem; /* empty: none */
} JinjaText;

/* Cuts a template, which must be UTF-8, into tokens, with trim_blocks and lstrip_blocks; NULL and *problem. */
JinjaTemplate *jinja_open(const char *source, size_t length, Buffer *problem);
void jinja_free(JinjaTemplate *template);
/* Whether it has the name anywhere, or a string that is the name. */
bool jinja_names(const JinjaTemplate *template, const char *name);

/* Renders with these variables; false with result->problem. */
bool jinja_render(const JinjaTemplate *template, const json_t *variables, JinjaText *result);
void jinja_text_free(JinjaText *result);

#endif
