#include "frontend/text/jinja.h"

#include <stdlib.h>
#include <string.h>

#include "base/parts.h"
#include "frontend/text/jinja_run.h"

static const JinjaToken *token(const JinjaRun *run, size_t ahead)
{
    size_t at = run->at + ahead, last = run->template->count - 1;
    return &run->template->tokens[at < last ? at : last];
}

/* Whether a tag of that name is next. */
static bool is_tag(const JinjaRun *run, const char *name)
{
    return token(run, 0)->kind == JINJA_TAG && token(run, 1)->kind == JINJA_NAME &&
           strcmp(token(run, 1)->text, name) == 0;
}

static void pass_tag(JinjaRun *run)
{
    while (token(run, 0)->kind != JINJA_TAG_END && token(run, 0)->kind != JINJA_END) run->at++;
    jinja_expect(run, JINJA_TAG_END, "");
}

static bool ends_block(const JinjaRun *run)
{
    static const char *const ends[] = {"elif", "else", "endif", "endfor", "endmacro", "endset", "endgeneration"};
    return token(run, 0)->kind == JINJA_END ||
           (token(run, 0)->kind == JINJA_TAG && word_index(token(run, 1)->text, ends, sizeof ends / sizeof *ends) >= 0);
}

/* {% set NAME %}, whose value is the text up to {% endset %}. */
static bool sets_block(const JinjaRun *run)
{
    return is_tag(run, "set") && token(run, 2)->kind == JINJA_NAME && token(run, 3)->kind == JINJA_TAG_END;
}

/* Goes to the tag that ends the block, or to its "elif" or "else". */
static void skip_block(JinjaRun *run)
{
    for (size_t depth = 0; depth || !ends_block(run); run->at++) {
        if (token(run, 0)->kind == JINJA_END) return;
        depth += is_tag(run, "if") || is_tag(run, "for") || is_tag(run, "macro") || is_tag(run, "generation") ||
                 sets_block(run);
        depth -= depth && ends_block(run) && strncmp(token(run, 1)->text, "end", 3) == 0;
    }
}

static void end_block(JinjaRun *run, const char *name)
{
    if (run->failed) return;
    if (!is_tag(run, name)) {
        jinja_fail(run, "there is no %s", name);
        return;
    }
    run->at += 2;
    jinja_expect(run, JINJA_TAG_END, "");
}

static void run_if(JinjaRun *run)
{
    bool done = false;
    for (bool more = true; more && !run->failed;) {
        bool otherwise = is_tag(run, "else");
        more = !otherwise;
        run->at += 2;
        bool taken = !done && (otherwise || jinja_truth(jinja_expression(run)));
        if (done)
            pass_tag(run);
        else
            jinja_expect(run, JINJA_TAG_END, "");
        if (run->failed) return;
        if (taken)
            run->execute(run);
        else
            skip_block(run);
        done |= taken;
        if (run->leaving) return;
        if (is_tag(run, "endif")) break;
        if (!is_tag(run, "elif") && !is_tag(run, "else")) break;
    }
    end_block(run, "endif");
}

/* ---- Loops ---- */

typedef struct Loop {
    const char *names[JINJA_MOST_ARGUMENTS];
    size_t name_count;
    json_t *items;
    size_t body;
} Loop;

static void set_targets(JinjaRun *run, const Loop *loop, json_t *item)
{
    if (loop->name_count == 1) {
        jinja_set(run, loop->names[0], item);
        return;
    }
    if (json_array_size(item) != loop->name_count) jinja_fail(run, "an item of a loop has another number of parts");
    for (size_t i = 0; i < loop->name_count; i++) jinja_set(run, loop->names[i], json_array_get(item, i));
}

/* What templates know as "loop". */
static json_t *loop_state(JinjaRun *run, const Loop *loop, size_t i)
{
    size_t count = json_array_size(loop->items);
    json_t *state = jinja_keep(run, json_object(), 512);
    const struct {
        const char *name;
        json_int_t value;
    } numbers[] = {{"index", (json_int_t)i + 1},
                   {"index0", (json_int_t)i},
                   {"length", (json_int_t)count},
                   {"revindex", (json_int_t)(count - i)},
                   {"revindex0", (json_int_t)(count - i) - 1}};
    for (size_t n = 0; state && n < sizeof numbers / sizeof *numbers; n++)
        json_object_set_new(state, numbers[n].name, json_integer(numbers[n].value));
    if (!state) return NULL;
    json_object_set_new(state, "first", json_boolean(i == 0));
    json_object_set_new(state, "last", json_boolean(i + 1 == count));
    if (i > 0) json_object_set(state, "previtem", json_array_get(loop->items, i - 1));
    if (i + 1 < count) json_object_set(state, "nextitem", json_array_get(loop->items, i + 1));
    return state;
}

/* Only the items for which the condition, which is next, holds. */
static void choose_items(JinjaRun *run, Loop *loop)
{
    json_t *chosen = jinja_array(run);
    size_t condition = run->at;
    for (size_t i = 0; i < json_array_size(loop->items) && !run->failed; i++) {
        run->at = condition;
        jinja_enter(run);
        if (run->failed) return;
        set_targets(run, loop, json_array_get(loop->items, i));
        if (jinja_truth(jinja_expression(run))) jinja_push(run, chosen, json_array_get(loop->items, i));
        jinja_leave(run);
    }
    loop->items = chosen;
    if (run->failed) return;
    run->at = condition;
    run->skipped++;
    (void)jinja_expression(run);
    run->skipped--;
    jinja_expect(run, JINJA_TAG_END, "");
}

static bool begin_loop(JinjaRun *run, Loop *loop)
{
    do {
        if (loop->name_count == JINJA_MOST_ARGUMENTS) return jinja_fail(run, "a loop has too many names") != NULL;
        loop->names[loop->name_count++] = jinja_expect_name(run);
    } while (jinja_accept(run, JINJA_SIGN, ","));
    jinja_expect(run, JINJA_NAME, "in");
    loop->items = jinja_list(run, jinja_alternative(run));
    if (jinja_accept(run, JINJA_NAME, "if"))
        choose_items(run, loop);
    else
        jinja_expect(run, JINJA_TAG_END, "");
    loop->body = run->at;
    return !run->failed;
}

static void run_for(JinjaRun *run)
{
    Loop loop = {.name_count = 0};
    if (!begin_loop(run, &loop)) return;
    size_t count = json_array_size(loop.items);
    for (size_t i = 0; i < count && !run->failed && run->leaving != JINJA_BREAKS; i++) {
        run->at = loop.body;
        run->leaving = JINJA_STAYS;
        jinja_step(run);
        jinja_enter(run);
        if (run->failed) return;
        set_targets(run, &loop, json_array_get(loop.items, i));
        jinja_set(run, "loop", loop_state(run, &loop, i));
        run->execute(run);
        jinja_leave(run);
    }
    if (run->failed) return;
    run->leaving = JINJA_STAYS;
    run->at = loop.body;
    skip_block(run);
    if (is_tag(run, "else")) {
        pass_tag(run);
        if (count)
            skip_block(run);
        else
            run->execute(run);
    }
    end_block(run, "endfor");
}

/* ---- Other tags ---- */

static void set_member(JinjaRun *run, const char *name, json_t *value, json_t *space)
{
    if (!jinja_is_namespace(run, space))
        jinja_fail(run, "sets a member of a value that is not a namespace");
    else if (jinja_is_namespace(run, value))
        jinja_fail(run, "keeps a namespace in another, which is not supported");
    else
        json_object_set_new(space, name, value ? json_incref(value) : json_null());
}

static void set_text(JinjaRun *run)
{
    const char *name = jinja_expect_name(run);
    Buffer text = {0}, *out = run->out;
    run->at++;
    run->out = &text;
    run->execute(run);
    run->out = out;
    jinja_set(run, name, jinja_take(run, &text));
    end_block(run, "endset");
}

static void run_set(JinjaRun *run)
{
    const char *name = jinja_expect_name(run);
    const char *member = jinja_accept(run, JINJA_SIGN, ".") ? jinja_expect_name(run) : NULL;
    jinja_expect(run, JINJA_SIGN, "=");
    json_t *value = jinja_expression(run);
    jinja_expect(run, JINJA_TAG_END, "");
    if (run->failed) return;
    if (member)
        set_member(run, member, value, jinja_find(run, name));
    else
        jinja_set(run, name, value);
}

/* The text after "(", "endmacro" included, is read when the macro is called. */
static void define_macro(JinjaRun *run)
{
    const char *name = jinja_expect_name(run);
    json_object_set_new(run->macros, name, json_integer((json_int_t)run->at));
    pass_tag(run);
    skip_block(run);
    end_block(run, "endmacro");
}

static void run_generation(JinjaRun *run)
{
    JinjaText *result = run->result;
    JinjaSpan span = {result->text.size, 0};
    jinja_expect(run, JINJA_TAG_END, "");
    if (run->out != &result->text) jinja_fail(run, "'generation' in a macro is not supported");
    run->execute(run);
    span.end = result->text.size;
    array_push(result->spans, result->span_count, result->span_capacity, span);
    if (!run->leaving) end_block(run, "endgeneration");
}

static void run_leaving(JinjaRun *run, JinjaLeaving leaving)
{
    jinja_expect(run, JINJA_TAG_END, "");
    run->leaving = leaving;
}

static void run_tag(JinjaRun *run)
{
    static const char *const tags[] = {"if", "for", "set", "macro", "generation", "break", "continue"};
    int tag = word_index(token(run, 1)->text, tags, sizeof tags / sizeof *tags);
    bool text = sets_block(run);
    if (tag > 0) run->at += 2; /* "if" goes on as "elif" does */
    if (++run->depth > JINJA_MOST_DEPTH) tag = -2;
    switch (tag) {
    case 0: run_if(run); break;
    case 1: run_for(run); break;
    case 2: (text ? set_text : run_set)(run); break;
    case 3: define_macro(run); break;
    case 4: run_generation(run); break;
    case 5: run_leaving(run, JINJA_BREAKS); break;
    case 6: run_leaving(run, JINJA_CONTINUES); break;
    case -2: jinja_fail(run, "blocks are too deep"); break;
    default: jinja_fail(run, "the tag '%.40s' is not supported", token(run, 1)->text);
    }
    run->depth--;
}

static void execute(JinjaRun *run)
{
    while (!run->failed && !run->leaving && !ends_block(run)) {
        const JinjaToken *first = token(run, 0);
        jinja_step(run);
        if (first->kind == JINJA_TAG) {
            run_tag(run);
        } else if (first->kind == JINJA_TEXT) {
            buffer_append(run->out, first->text, first->length);
            run->at++;
        } else {
            run->at++;
            jinja_print(run, run->out, jinja_expression(run));
            jinja_expect(run, JINJA_PRINT_END, "");
        }
    }
}

bool jinja_render(const JinjaTemplate *template, const json_t *variables, JinjaText *result)
{
    JinjaRun run = {.template = template, .result = result, .out = &result->text, .execute = execute};
    run.macros = json_object();
    run.scopes[run.scope_count++] = json_copy((json_t *)variables);
    result->text.size = result->problem.size = result->span_count = 0;
    execute(&run);
    if (!run.failed && token(&run, 0)->kind != JINJA_END)
        jinja_fail(&run, "the tag '%.40s' has no beginning", token(&run, 1)->text);
    while (run.scope_count) jinja_leave(&run);
    for (size_t i = 0; i < run.kept_count; i++) json_decref(run.kept[i]);
    json_decref(run.macros);
    free(run.kept);
    free(run.namespaces);
    return !run.failed;
}

void jinja_text_free(JinjaText *result)
{
    buffer_free(&result->text);
    buffer_free(&result->problem);
    free(result->spans);
    *result = (JinjaText){0};
}
