#include "codegen/link/script.h"

#include <string.h>

#include "base/diagnostics.h"
#include "script_templates.h" /* template_train, ...: the texts, generated */

static const ScriptWord templates[] = {{"train", template_train},
                                       {"run_sbatch", template_run_sbatch},
                                       {"network", template_network},
                                       {"environment", template_environment},
                                       {NULL, NULL}};

static bool is_name(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && strncmp(name, text, length) == 0;
}

static const char *find_word(const ScriptWord *words, const char *text, size_t length)
{
    for (; words->name; words++)
        if (is_name(words->name, text, length)) return words->text;
    bug("a script says '%.*s'", (int)length, text);
}

static bool find_condition(const ScriptCondition *conditions, const char *text, size_t length)
{
    for (; conditions->name; conditions++)
        if (is_name(conditions->name, text, length)) return conditions->holds;
    bug("a script asks for '%.*s'", (int)length, text);
}

/* A line with @NAME@ replaced; "$@" is no name. */
static void print_line(Buffer *text, const char *line, size_t length, const ScriptTerms *terms)
{
    const char *end = line + length;
    while (line < end) {
        const char *mark = memchr(line, '@', (size_t)(end - line));
        if (!mark) break;
        size_t name = strspn(mark + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        bool is_mark = name && mark[name + 1] == '@';
        buffer_append(text, line, (size_t)(mark - line) + !is_mark);
        if (is_mark) buffer_print(text, "%s", find_word(terms->words, mark + 1, name));
        line = mark + (is_mark ? name + 2 : 1);
    }
    buffer_append(text, line, (size_t)(end - line));
}

static bool begins(const char *line, const char *word) { return strncmp(line, word, strlen(word)) == 0; }

void script_print(Buffer *text, const char *name, const ScriptTerms *terms)
{
    static const char when[] = "#@ if ", otherwise[] = "#@ else", end[] = "#@ end", include[] = "#@ include ";
    int depth = 0, hidden = 0; /* conditions around this line; the depth of the one that leaves it out, 0: none does */
    const char *line = find_word(templates, name, strlen(name));
    for (size_t length; *line; line += length) {
        length = strcspn(line, "\n") + 1;
        if (begins(line, when)) {
            const char *condition = line + strlen(when);
            depth++;
            if (!hidden && !find_condition(terms->conditions, condition, strcspn(condition, "\n"))) hidden = depth;
        } else if (begins(line, otherwise)) {
            hidden = hidden == depth ? 0 : hidden ? hidden : depth;
        } else if (begins(line, end)) {
            if (hidden == depth) hidden = 0;
            depth--;
        } else if (hidden) {
            continue;
        } else if (begins(line, include)) {
            char included[32];
            snprintf(included, sizeof included, "%.*s", (int)(length - 1 - strlen(include)), line + strlen(include));
            script_print(text, included, terms);
        } else {
            print_line(text, line, length, terms);
        }
    }
}
