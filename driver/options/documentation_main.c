/* documentation TEMPLATE OUTPUT: copies the template and fills in lines such as @man-options plan@ and @bash-values@
 * from the tables of commands and options. */
#include <stdio.h>
#include <string.h>

#include "driver/options/documentation.h"
#include "runtime/train/training_options.h"

static const struct {
    const char *name;
    void (*print_one)(const Documented *one);
    void (*print_all)(const Documented all[static DOCUMENTED_COUNT]);
} parts[] = {
    {"man-heading", .print_one = man_heading},     {"man-options", .print_one = man_options},
    {"bash-commands", .print_all = bash_commands}, {"bash-options", .print_all = bash_options},
    {"bash-values", .print_all = bash_values},     {"zsh-commands", .print_all = zsh_commands},
    {"zsh-options", .print_all = zsh_options},     {"fish", .print_all = fish_completions},
};

/* False: there is no part or command of this name. */
static bool print_part(const Documented all[static DOCUMENTED_COUNT], const char *name, const char *about)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(parts[i].name, name) != 0) continue;
        if (parts[i].print_all) return parts[i].print_all(all), true;
        for (int k = 0; k < DOCUMENTED_COUNT; k++)
            if (strcmp(all[k].name, about) == 0) return parts[i].print_one(&all[k]), true;
    }
    return false;
}

static bool fill_in(FILE *template, const Documented all[static DOCUMENTED_COUNT])
{
    char line[1024], name[64], about[64];
    while (fgets(line, sizeof line, template)) {
        *name = *about = '\0';
        if (line[0] != '@')
            fputs(line, stdout);
        else if (sscanf(line, "@%63[^@ ] %63[^@]@", name, about) < 1 || !print_part(all, name, about))
            return fprintf(stderr, "documentation: what is meant by %s", line), false;
    }
    return true;
}

int main(int argc, char **argv)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Documented all[DOCUMENTED_COUNT];
    for (Command c = 0; c < COMMAND_COUNT; c++)
        all[c] = (Documented){command_texts[c].name, command_options(c, &arena), true};
    all[COMMAND_COUNT] = (Documented){"train", training_option_set, false};
    FILE *template = argc == 3 ? fopen(argv[1], "r") : NULL;
    if (!template || !freopen(argv[2], "w", stdout)) return fputs("usage: documentation TEMPLATE OUTPUT\n", stderr), 2;
    bool ok = fill_in(template, all) && fflush(stdout) == 0 && !ferror(stdout);
    fclose(template);
    return !ok;
}
