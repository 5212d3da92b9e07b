#include <stdio.h>
#include <string.h>

#include "driver/options/documentation.h"

/* Calls `print` for every named option of every command. */
static void each_option(const Documented all[static DOCUMENTED_COUNT],
                        void (*print)(const Documented *one, const Option *option))
{
    for (int k = 0; k < DOCUMENTED_COUNT; k++)
        for (size_t i = 0; i < all[k].options.count; i++) {
            const Option *option = &all[k].options.rows[i];
            if (!option->positional && option_taken(&all[k].options, option)) print(&all[k], option);
        }
}

/* For use inside single quotes, with a backslash before each of the `special` characters. */
static void print_quoted(const char *text, const char *special)
{
    for (; *text; text++) {
        if (strchr(special, *text)) putchar('\\');
        if (*text == '\'') fputs("'\\'", stdout); /* ends the quotes, adds one, begins new quotes */
        putchar(*text);
    }
}

static void print_choices(const Option *option, const char *special)
{
    for (const char *const *word = option->choices; *word; word++) {
        if (word != option->choices) putchar(' ');
        print_quoted(*word, special);
    }
}

/* ---- bash ---- */

void bash_commands(const Documented all[static DOCUMENTED_COUNT])
{
    for (int k = 0; k < COMMAND_COUNT; k++) printf("    %s\n", all[k].name);
}

void bash_options(const Documented all[static DOCUMENTED_COUNT])
{
    for (int k = 0; k < DOCUMENTED_COUNT; k++) {
        const OptionSet *set = &all[k].options;
        printf("    %s) echo", all[k].name);
        for (size_t i = 0; i < set->count; i++)
            if (!set->rows[i].positional && option_taken(set, &set->rows[i])) printf(" --%s", set->rows[i].name);
        printf(" ;;\n");
    }
}

static void print_bash_values(const Documented *one, const Option *option)
{
    if (!option->choices) return;
    printf("    '%s --%s') echo '", one->name, option->name);
    print_choices(option, "");
    printf("' ;;\n");
}

void bash_values(const Documented all[static DOCUMENTED_COUNT]) { each_option(all, print_bash_values); }

/* ---- zsh ---- */

void zsh_commands(const Documented all[static DOCUMENTED_COUNT])
{
    for (int k = 0; k < COMMAND_COUNT; k++) {
        printf("        '%s:", all[k].name);
        print_quoted(command_texts[k].summary, ":");
        printf("'\n");
    }
}

/* A specification for _arguments: '*(-o --output)'{-o+,--output=}'[what it is]:FILE:_files'. */
static void print_zsh_option(const Option *option)
{
    bool flag = option->kind == OPTION_FLAG;
    printf(" \\\n            ");
    if (option->repeated) printf("'*'");
    if (option->letter && !option->repeated) printf("'(-%c --%s)'", option->letter, option->name);
    if (option->letter)
        printf("{-%c%s,--%s%s}", option->letter, flag ? "" : "+", option->name, flag ? "" : "=");
    else
        printf("--%s%s", option->name, flag ? "" : option->implied ? "=-" : "=");
    printf("'[");
    print_quoted(option->help, "[]");
    putchar(']');
    if (!flag) {
        printf("%s:%s:", option->implied ? ":" : "", option->argument);
        if (option->choices) {
            putchar('(');
            print_choices(option, ":");
            putchar(')');
        } else if (option->kind == OPTION_FILE) {
            printf("_files");
        } else {
            printf(option->kind == OPTION_DIRECTORY ? "_files -/" : " ");
        }
    }
    putchar('\'');
}

void zsh_options(const Documented all[static DOCUMENTED_COUNT])
{
    for (int k = 0; k < DOCUMENTED_COUNT; k++) {
        const OptionSet *set = &all[k].options;
        bool files = false;
        printf("    %s)\n        _arguments -s", all[k].name);
        for (size_t i = 0; i < set->count; i++) {
            if (!option_taken(set, &set->rows[i])) continue;
            files |= set->rows[i].positional;
            if (!set->rows[i].positional) print_zsh_option(&set->rows[i]);
        }
        printf("%s\n        ;;\n", files ? " \\\n            '*:file:_files'" : "");
    }
}

/* ---- fish ---- */

static void print_fish_option(const Documented *one, const Option *option)
{
    if (one->is_command)
        printf("complete -c skycc -n '__skycc_command_is %s'", one->name);
    else
        printf("complete -c %s", one->name);
    if (option->letter) printf(" -s %c", option->letter);
    printf(" -l %s", option->name);
    if (option->choices) {
        printf(" -xa '");
        print_choices(option, "");
        putchar('\'');
    } else if (option->kind == OPTION_FILE) {
        printf(" -rF");
    } else if (option->kind == OPTION_DIRECTORY) {
        printf(" -xa '(__fish_complete_directories)'");
    } else if (option->kind != OPTION_FLAG && !option->implied) {
        printf(" -x");
    }
    printf(" -d '");
    print_quoted(option->help, "");
    printf("'\n");
}

void fish_completions(const Documented all[static DOCUMENTED_COUNT])
{
    for (int k = 0; k < COMMAND_COUNT; k++) {
        printf("complete -c skycc -n __skycc_no_command -xa %s -d '", all[k].name);
        print_quoted(command_texts[k].summary, "");
        printf("'\n");
    }
    each_option(all, print_fish_option);
}
