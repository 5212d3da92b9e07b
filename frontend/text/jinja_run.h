/* A rendering, for the files of Jinja: jinja_tokens, jinja_values, jinja_filters, jinja_expressions and jinja_tags. */
#ifndef FRONTEND_TEXT_JINJA_RUN_H
#define FRONTEND_TEXT_JINJA_RUN_H

#include "base/arena.h"
#include "frontend/text/jinja.h"

typedef enum JinjaKind {
    JINJA_TEXT,
    JINJA_PRINT,
    JINJA_PRINT_END,
    JINJA_TAG,
    JINJA_TAG_END,
    JINJA_NAME,
    JINJA_STRING,
    JINJA_INTEGER,
    JINJA_REAL,
    JINJA_SIGN,
    JINJA_END
} JinjaKind;

typedef struct JinjaToken {
    JinjaKind kind;
    const char *text; /* ends with a zero byte */
    size_t length;
    int line;
} JinjaToken;

struct JinjaTemplate {
    Arena arena;
    JinjaToken *tokens; /* the last is JINJA_END */
    size_t count, capacity;
};

typedef enum JinjaLeaving { JINJA_STAYS, JINJA_BREAKS, JINJA_CONTINUES } JinjaLeaving;

enum { JINJA_MOST_SCOPES = 64, JINJA_MOST_DEPTH = 100, JINJA_MOST_ARGUMENTS = 8 };

/* Values are JSON's; NULL is undefined. Every value that a rendering makes lives until its end. */
typedef struct JinjaRun {
    const JinjaTemplate *template;
    JinjaText *result;
    Buffer *out; /* what is printed now: the text, or what a macro makes */
    size_t at;   /* the next token */
    int skipped; /* above 0: expressions are read, not computed */
    bool failed;
    JinjaLeaving leaving;
    int depth;
    size_t steps, bytes;
    json_t **kept; /* values that were made */
    size_t kept_count, kept_capacity;
    json_t *scopes[JINJA_MOST_SCOPES]; /* the first is the template's */
    size_t scope_count, scope_base;    /* of a macro, it sees its own scopes and the first */
    json_t *macros;                    /* where each begins: numbers of tokens */
    json_t **namespaces;               /* nothing but variables may hold one: values are never in circles */
    size_t namespace_count, namespace_capacity;
    void (*execute)(struct JinjaRun *run); /* the statements up to the next tag that ends them, which stays */
} JinjaRun;

typedef struct JinjaArguments {
    json_t *values[JINJA_MOST_ARGUMENTS];
    const char *names[JINJA_MOST_ARGUMENTS]; /* NULL: by position */
    size_t count;
} JinjaArguments;

/* ---- jinja_values ---- */

/* Reports the first problem, with the line; NULL. */
json_t *jinja_fail(JinjaRun *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts what a rendering does; fails where it does too much. */
void jinja_step(JinjaRun *run);
bool jinja_is_namespace(const JinjaRun *run, const json_t *value);
/* Keeps a value, made of about so many bytes, until the end. */
json_t *jinja_keep(JinjaRun *run, json_t *value, size_t bytes);
json_t *jinja_string(JinjaRun *run, const char *text, size_t length);
json_t *jinja_take(JinjaRun *run, Buffer *text); /* a string of it, which is freed */
json_t *jinja_integer(JinjaRun *run, json_int_t value);
json_t *jinja_array(JinjaRun *run);
/* Appends to an array that jinja_array made; undefined becomes none. */
void jinja_push(JinjaRun *run, json_t *array, json_t *value);

bool jinja_truth(const json_t *value);
bool jinja_equal(JinjaRun *run, const json_t *a, const json_t *b);
/* Below 0, 0 or above; fails where they have no order. */
int jinja_compare(JinjaRun *run, const json_t *a, const json_t *b);
bool jinja_contains(JinjaRun *run, const json_t *container, const json_t *item);
/* How many items or characters; fails of what has none. */
size_t jinja_length(JinjaRun *run, const json_t *value);
/* An array of its items, characters or keys. */
json_t *jinja_list(JinjaRun *run, const json_t *value);
json_t *jinja_member(JinjaRun *run, const json_t *value, const json_t *key);
/* value[bounds[0]:bounds[1]:bounds[2]], undefined where there is none. */
json_t *jinja_slice(JinjaRun *run, const json_t *value, json_t *const bounds[static 3]);
/* As Python's str() prints it. */
void jinja_print(JinjaRun *run, Buffer *out, const json_t *value);
void jinja_print_json(JinjaRun *run, Buffer *out, const json_t *value, int indent, int depth);

/* ---- jinja_filters ---- */

/* The argument of that position or name; NULL: none, or undefined. */
json_t *jinja_argument(const JinjaArguments *arguments, size_t position, const char *name);
json_t *jinja_filter(JinjaRun *run, const char *name, json_t *value, const JinjaArguments *arguments);
bool jinja_test(JinjaRun *run, const char *name, json_t *value, json_t *argument);
json_t *jinja_method(JinjaRun *run, const char *name, json_t *value, const JinjaArguments *arguments);

/* ---- jinja_expressions ---- */

bool jinja_accept(JinjaRun *run, JinjaKind kind, const char *text); /* and skips it */
void jinja_expect(JinjaRun *run, JinjaKind kind, const char *text); /* or fails */
const char *jinja_expect_name(JinjaRun *run);
json_t *jinja_expression(JinjaRun *run);
json_t *jinja_alternative(JinjaRun *run); /* the same without "if" at its end */
void jinja_enter(JinjaRun *run);          /* a scope; fails where there are too many */
void jinja_leave(JinjaRun *run);
json_t *jinja_find(const JinjaRun *run, const char *name);
void jinja_set(JinjaRun *run, const char *name, json_t *value); /* in the innermost scope */

#endif
