/* Expressions are computed while they are read. What is not to be computed, such as the other side of "or", is read
 * with run->skipped above 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parts.h"
#include "frontend/text/jinja_run.h"

static bool lives(const JinjaRun *run) { return !run->failed && !run->skipped; }

/* ---- Tokens ---- */

static const JinjaToken *next(const JinjaRun *run) { return &run->template->tokens[run->at]; }

static bool jinja_is(const JinjaRun *run, JinjaKind kind, const char *text)
{
    return next(run)->kind == kind && strcmp(next(run)->text, text) == 0;
}

bool jinja_accept(JinjaRun *run, JinjaKind kind, const char *text)
{
    bool is = !run->failed && jinja_is(run, kind, text);
    run->at += is;
    return is;
}

void jinja_expect(JinjaRun *run, JinjaKind kind, const char *text)
{
    if (!jinja_accept(run, kind, text))
        jinja_fail(run, "'%.40s' stands where %s is expected", next(run)->text, *text ? text : "the end of the tag");
}

const char *jinja_expect_name(JinjaRun *run)
{
    if (next(run)->kind == JINJA_NAME) return run->template->tokens[run->at++].text;
    jinja_fail(run, "'%.40s' stands where a name is expected", next(run)->text);
    return "";
}

static bool sign(JinjaRun *run, const char *text) { return jinja_accept(run, JINJA_SIGN, text); }

static bool word(JinjaRun *run, const char *text) { return jinja_accept(run, JINJA_NAME, text); }

/* ---- Variables ---- */

void jinja_enter(JinjaRun *run)
{
    if (run->scope_count == JINJA_MOST_SCOPES)
        jinja_fail(run, "loops and macros are too deep");
    else
        run->scopes[run->scope_count++] = json_object();
}

void jinja_leave(JinjaRun *run) { json_decref(run->scopes[--run->scope_count]); }

void jinja_set(JinjaRun *run, const char *name, json_t *value)
{
    json_t *scope = run->scopes[run->scope_count - 1];
    if (value)
        json_object_set_new(scope, name, json_incref(value));
    else
        json_object_del(scope, name);
}

static const char *const functions[] = {"namespace", "dict", "range", "raise_exception", "strftime_now"};

json_t *jinja_find(const JinjaRun *run, const char *name)
{
    for (size_t i = run->scope_count; i-- > 0;) {
        if (i > 0 && i < run->scope_base) continue;
        json_t *value = json_object_get(run->scopes[i], name);
        if (value) return value;
    }
    return word_index(name, functions, sizeof functions / sizeof *functions) < 0 ? NULL : json_true();
}

/* ---- Calls ---- */

/* "(" stands before. */
static void read_arguments(JinjaRun *run, JinjaArguments *arguments)
{
    arguments->count = 0;
    while (!run->failed && !sign(run, ")")) {
        if (arguments->count == JINJA_MOST_ARGUMENTS) {
            jinja_fail(run, "there are too many arguments");
            return;
        }
        const JinjaToken *token = next(run);
        bool named = token->kind == JINJA_NAME && token[1].kind == JINJA_SIGN && strcmp(token[1].text, "=") == 0;
        if (named) run->at += 2;
        arguments->names[arguments->count] = named ? token->text : NULL;
        arguments->values[arguments->count++] = jinja_expression(run);
        if (!jinja_is(run, JINJA_SIGN, ")")) jinja_expect(run, JINJA_SIGN, ",");
    }
}

/* The parameters of a macro, whose list is next. */
static void take_parameters(JinjaRun *run, const JinjaArguments *arguments)
{
    jinja_expect(run, JINJA_SIGN, "(");
    for (size_t i = 0; !run->failed && !sign(run, ")"); i++) {
        const char *name = jinja_expect_name(run);
        json_t *value = jinja_argument(arguments, i, name), *usual = sign(run, "=") ? jinja_expression(run) : NULL;
        jinja_set(run, name, value ? value : usual);
        if (!jinja_is(run, JINJA_SIGN, ")")) jinja_expect(run, JINJA_SIGN, ",");
    }
    jinja_expect(run, JINJA_TAG_END, "");
}

static json_t *call_macro(JinjaRun *run, size_t place, const JinjaArguments *arguments)
{
    Buffer text = {0}, *out = run->out;
    size_t at = run->at, base = run->scope_base;
    if (++run->depth > JINJA_MOST_DEPTH) return jinja_fail(run, "macros call each other too deeply");
    jinja_enter(run);
    if (run->failed) return NULL;
    run->scope_base = run->scope_count - 1, run->at = place, run->out = &text;
    take_parameters(run, arguments);
    run->execute(run);
    run->out = out, run->scope_base = base;
    if (!run->failed) run->at = at;
    jinja_leave(run);
    run->depth--;
    return jinja_take(run, &text);
}

static json_t *make_object(JinjaRun *run, const JinjaArguments *arguments)
{
    json_t *object = jinja_keep(run, json_object(), 0);
    for (size_t i = 0; object && i < arguments->count; i++) {
        if (!arguments->names[i] || jinja_is_namespace(run, arguments->values[i]))
            return jinja_fail(run, "makes an object of something that skycc does not support");
        json_t *value = arguments->values[i];
        json_object_set_new(object, arguments->names[i], value ? json_incref(value) : json_null());
    }
    return object;
}

static json_t *make_range(JinjaRun *run, const JinjaArguments *arguments)
{
    bool one = arguments->count == 1;
    json_int_t begin = one ? 0 : json_integer_value(jinja_argument(arguments, 0, "")),
               end = json_integer_value(jinja_argument(arguments, !one, "")),
               step = arguments->count > 2 ? json_integer_value(jinja_argument(arguments, 2, "")) : 1;
    json_t *list = jinja_array(run);
    if (!step) return jinja_fail(run, "range has a step of 0");
    for (json_int_t i = begin; (step > 0 ? i < end : i > end) && !run->failed; i += step)
        jinja_push(run, list, jinja_integer(run, i));
    return list;
}

static json_t *now(JinjaRun *run, const json_t *format)
{
    char text[200];
    time_t seconds = time(NULL);
    struct tm day;
    if (!json_is_string(format) || !localtime_r(&seconds, &day)) return jinja_fail(run, "strftime_now has no format");
    return jinja_string(run, text, strftime(text, sizeof text, json_string_value(format), &day));
}

static json_t *call(JinjaRun *run, const char *name, const JinjaArguments *arguments)
{
    const json_t *macro = json_object_get(run->macros, name), *first = jinja_argument(arguments, 0, "");
    if (!lives(run)) return NULL;
    if (macro) return call_macro(run, (size_t)json_integer_value(macro), arguments);
    switch (word_index(name, functions, sizeof functions / sizeof *functions)) {
    case 0:
        array_push(run->namespaces, run->namespace_count, run->namespace_capacity, make_object(run, arguments));
        return run->namespaces[run->namespace_count - 1];
    case 1: return make_object(run, arguments);
    case 2: return make_range(run, arguments);
    case 3: return jinja_fail(run, "%.200s", json_is_string(first) ? json_string_value(first) : "it refuses");
    case 4: return now(run, first);
    default: return jinja_fail(run, "calls '%.40s', a function that skycc does not know", name);
    }
}

/* ---- Operands ---- */

static json_t *read_list(JinjaRun *run, const char *end)
{
    json_t *list = jinja_array(run);
    while (!run->failed && !sign(run, end)) {
        jinja_push(run, list, jinja_expression(run));
        if (!jinja_is(run, JINJA_SIGN, end)) jinja_expect(run, JINJA_SIGN, ",");
    }
    return list;
}

static json_t *read_object(JinjaRun *run)
{
    json_t *object = jinja_keep(run, json_object(), 0);
    while (!run->failed && !sign(run, "}")) {
        const json_t *key = jinja_expression(run);
        jinja_expect(run, JINJA_SIGN, ":");
        json_t *value = jinja_expression(run);
        if (lives(run) && !json_is_string(key)) return jinja_fail(run, "an object has a key that is not a text");
        if (jinja_is_namespace(run, value)) return jinja_fail(run, "keeps a namespace in an object");
        if (lives(run)) json_object_set_new(object, json_string_value(key), value ? json_incref(value) : json_null());
        if (!jinja_is(run, JINJA_SIGN, "}")) jinja_expect(run, JINJA_SIGN, ",");
    }
    return object;
}

/* A value in brackets, or a list of several. */
static json_t *read_brackets(JinjaRun *run)
{
    json_t *value = jinja_is(run, JINJA_SIGN, ")") ? NULL : jinja_expression(run);
    if (value && sign(run, ")")) return value;
    if (!jinja_is(run, JINJA_SIGN, ",")) return jinja_expect(run, JINJA_SIGN, ")"), NULL;
    run->at++;
    json_t *list = jinja_array(run), *rest = read_list(run, ")");
    jinja_push(run, list, value);
    for (size_t i = 0; i < json_array_size(rest); i++) jinja_push(run, list, json_array_get(rest, i));
    return list;
}

static json_t *read_strings(JinjaRun *run)
{
    Buffer text = {0};
    for (; next(run)->kind == JINJA_STRING; run->at++) buffer_append(&text, next(run)->text, next(run)->length);
    return jinja_take(run, &text);
}

static json_t *read_name(JinjaRun *run)
{
    static const char *const constants[] = {"true", "True", "false", "False", "none", "None"};
    const char *name = jinja_expect_name(run);
    JinjaArguments arguments;
    int constant = word_index(name, constants, sizeof constants / sizeof *constants);
    if (constant >= 0) return constant < 2 ? json_true() : constant < 4 ? json_false() : json_null();
    if (!sign(run, "(")) return jinja_find(run, name);
    read_arguments(run, &arguments);
    return call(run, name, &arguments);
}

static json_t *primary(JinjaRun *run)
{
    const JinjaToken *token = next(run);
    jinja_step(run);
    if (run->failed) return NULL;
    switch (token->kind) {
    case JINJA_NAME: return read_name(run);
    case JINJA_STRING: return read_strings(run);
    case JINJA_INTEGER: run->at++; return jinja_integer(run, atoll(token->text));
    case JINJA_REAL: run->at++; return jinja_keep(run, json_real(strtod(token->text, NULL)), 0);
    default: break;
    }
    if (sign(run, "(")) return read_brackets(run);
    if (sign(run, "[")) return read_list(run, "]");
    if (sign(run, "{")) return read_object(run);
    return jinja_fail(run, "'%.40s' stands where a value is expected", token->text);
}

/* An item or a slice; "[" stands before. */
static json_t *read_item(JinjaRun *run, const json_t *value)
{
    json_t *bounds[3] = {NULL};
    int colons = 0;
    while (!run->failed && !sign(run, "]"))
        if (sign(run, ":"))
            colons++;
        else if (colons > 2)
            return jinja_fail(run, "a slice has too many bounds");
        else
            bounds[colons] = jinja_expression(run);
    if (!lives(run)) return NULL;
    return colons ? jinja_slice(run, value, bounds) : jinja_member(run, value, bounds[0]);
}

/* A value with its members, items and methods. */
static json_t *postfix(JinjaRun *run)
{
    json_t *value = primary(run);
    JinjaArguments arguments;
    while (!run->failed) {
        if (sign(run, "[")) {
            value = read_item(run, value);
        } else if (sign(run, ".")) {
            const char *name = jinja_expect_name(run);
            bool method = sign(run, "(");
            if (method) read_arguments(run, &arguments);
            if (!lives(run))
                value = NULL;
            else if (method)
                value = jinja_method(run, name, value, &arguments);
            else
                value = jinja_member(run, value, jinja_string(run, name, strlen(name)));
        } else {
            break;
        }
    }
    return value;
}

/* "is" stands before. */
static json_t *read_test(JinjaRun *run, json_t *value)
{
    static const char *const with[] = {"equalto", "eq", "in", "ne", "sameas"};
    bool negated = word(run, "not");
    const char *name = jinja_expect_name(run);
    json_t *argument = word_index(name, with, sizeof with / sizeof *with) >= 0 ? postfix(run) : NULL;
    return lives(run) ? json_boolean(jinja_test(run, name, value, argument) != negated) : NULL;
}

static json_t *filtered(JinjaRun *run)
{
    JinjaArguments arguments;
    bool negative = sign(run, "-");
    if (!negative) (void)sign(run, "+");
    json_t *value = postfix(run);
    if (negative && lives(run))
        value = json_is_integer(value) ? jinja_integer(run, -json_integer_value(value))
                                       : jinja_keep(run, json_real(-json_number_value(value)), 0);
    for (;;) {
        if (sign(run, "|")) {
            const char *name = jinja_expect_name(run);
            arguments.count = 0;
            if (sign(run, "(")) read_arguments(run, &arguments);
            value = lives(run) ? jinja_filter(run, name, value, &arguments) : NULL;
        } else if (word(run, "is")) {
            value = read_test(run, value);
        } else {
            return value;
        }
    }
}

/* ---- Operators ---- */

static json_t *add(JinjaRun *run, json_t *a, json_t *b)
{
    if (json_is_string(a) && json_is_string(b)) {
        Buffer text = {0};
        jinja_print(run, &text, a);
        jinja_print(run, &text, b);
        return jinja_take(run, &text);
    }
    if (!json_is_array(a) || !json_is_array(b)) return jinja_fail(run, "adds two values that cannot be added");
    json_t *list = jinja_array(run);
    for (size_t i = 0; i < json_array_size(a); i++) jinja_push(run, list, json_array_get(a, i));
    for (size_t i = 0; i < json_array_size(b); i++) jinja_push(run, list, json_array_get(b, i));
    return list;
}

static json_t *calculate(JinjaRun *run, char operator, json_t * a, json_t *b)
{
    if (!lives(run)) return NULL;
    if (operator== '+' && !json_is_number(a)) return add(run, a, b);
    if (!json_is_number(a) || !json_is_number(b))
        return jinja_fail(run, "calculates with a value that is not a number");
    json_int_t x = json_integer_value(a), y = json_integer_value(b), made = 0;
    double p = json_number_value(a), q = json_number_value(b);
    bool whole = json_is_integer(a) && json_is_integer(b) && operator!= '/', fits = true;
    if (strchr("/%d", operator) && q == 0) return jinja_fail(run, "divides by 0");
    if (!whole && strchr("%d", operator)) return jinja_fail(run, "divides fractions, which is not supported");
    switch (operator) {
    case '+': fits = !__builtin_add_overflow(x, y, &made), p += q; break;
    case '-': fits = !__builtin_sub_overflow(x, y, &made), p -= q; break;
    case '*': fits = !__builtin_mul_overflow(x, y, &made), p *= q; break;
    case '/': p /= q; break;
    default: /* rounded down, as Python does */
        if (y == -1) return jinja_fail(run, "divides by -1, which is not supported");
        made = operator== '%' ? (x % y + y) % y : x / y -(x % y != 0 && (x < 0) != (y < 0));
    }
    if (whole && !fits) return jinja_fail(run, "a number is too large");
    return whole ? jinja_integer(run, made) : jinja_keep(run, json_real(p), 0);
}

static json_t *product(JinjaRun *run)
{
    json_t *value = filtered(run);
    for (;;) {
        char operator= sign(run, "*") ? '*' : sign(run, "//") ? 'd' : sign(run, "/") ? '/' : sign(run, "%") ? '%' : 0;
        if (!operator) return value;
        value = calculate(run, operator, value, filtered(run));
    }
}

static json_t *joined(JinjaRun *run)
{
    json_t *value = product(run);
    while (sign(run, "~")) {
        Buffer text = {0};
        json_t *right = product(run);
        if (lives(run)) jinja_print(run, &text, value), jinja_print(run, &text, right);
        value = jinja_take(run, &text);
    }
    return value;
}

static json_t *sum(JinjaRun *run)
{
    json_t *value = joined(run);
    for (;;) {
        char operator= sign(run, "+") ? '+' : sign(run, "-") ? '-' : 0;
        if (!operator) return value;
        value = calculate(run, operator, value, joined(run));
    }
}

static json_t *comparison(JinjaRun *run)
{
    static const char *const signs[] = {"==", "!=", "<", "<=", ">", ">="};
    json_t *value = sum(run);
    while (!run->failed) {
        const JinjaToken *token = next(run);
        int kind = token->kind == JINJA_SIGN ? word_index(token->text, signs, 6) : -1;
        bool negated = jinja_is(run, JINJA_NAME, "not") && token[1].kind == JINJA_NAME && !strcmp(token[1].text, "in");
        bool in = negated || jinja_is(run, JINJA_NAME, "in");
        if (kind < 0 && !in) break;
        run->at += negated ? 2 : 1;
        json_t *right = sum(run);
        if (!lives(run)) continue;
        bool is;
        if (in)
            is = jinja_contains(run, right, value) != negated;
        else if (kind < 2)
            is = jinja_equal(run, value, right) == (kind == 0);
        else {
            int order = jinja_compare(run, value, right);
            is = kind == 2 ? order < 0 : kind == 3 ? order <= 0 : kind == 4 ? order > 0 : order >= 0;
        }
        value = json_boolean(is);
    }
    return value;
}

static json_t *negation(JinjaRun *run)
{
    int count = 0;
    while (word(run, "not")) count++;
    json_t *value = comparison(run);
    return count && lives(run) ? json_boolean(jinja_truth(value) == (count % 2 == 0)) : value;
}

/* Operands with a word between, of which those after one whose truth is `decides` are skipped. */
static json_t *until(JinjaRun *run, bool decides, const char *between, json_t *(*operand)(JinjaRun *run))
{
    json_t *value = operand(run);
    while (word(run, between)) {
        bool stays = lives(run) && jinja_truth(value) == decides;
        run->skipped += stays;
        json_t *right = operand(run);
        run->skipped -= stays;
        if (!stays) value = right;
    }
    return value;
}

static json_t *both(JinjaRun *run) { return until(run, false, "and", negation); }
json_t *jinja_alternative(JinjaRun *run) { return until(run, true, "or", both); }

/* Where the "if" of this expression stands; 0: it has none. */
static size_t find_condition(const JinjaRun *run)
{
    const JinjaToken *tokens = run->template->tokens;
    int depth = 0;
    for (size_t i = run->at;; i++) {
        const JinjaToken *token = &tokens[i];
        bool sign = token->kind == JINJA_SIGN;
        if (token->kind == JINJA_TAG_END || token->kind == JINJA_PRINT_END || token->kind == JINJA_END) return 0;
        if (sign && strchr("([{", *token->text)) depth++;
        if (sign && strchr(")]}", *token->text) && depth-- == 0) return 0;
        if (depth) continue;
        if (sign && strchr(",:", *token->text)) return 0;
        if (token->kind == JINJA_NAME && strcmp(token->text, "else") == 0) return 0;
        if (token->kind == JINJA_NAME && strcmp(token->text, "if") == 0) return i;
    }
}

json_t *jinja_expression(JinjaRun *run)
{
    size_t condition = find_condition(run), begin = run->at;
    json_t *value = NULL, *other = NULL;
    if (++run->depth > JINJA_MOST_DEPTH) return jinja_fail(run, "brackets are too deep");
    if (!condition) {
        value = jinja_alternative(run);
    } else {
        run->at = condition + 1;
        bool taken = jinja_truth(jinja_alternative(run)) && lives(run);
        size_t after = run->at;
        run->at = begin;
        run->skipped += !taken;
        value = jinja_alternative(run);
        run->skipped -= !taken;
        if (!run->failed) run->at = after;
        run->skipped += taken;
        if (word(run, "else")) other = jinja_expression(run);
        run->skipped -= taken;
        if (!taken) value = other;
    }
    run->depth--;
    return value;
}
