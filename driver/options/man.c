#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "driver/options/documentation.h"

enum { COMPILE = 1 << COMMAND_COMPILE };

static void print_character(char c)
{
    if (c == '-' || c == '\\') putchar('\\');
    putchar(c == '\\' ? 'e' : c);
}

/* A character of running text, which stands at `at`. Lines of the source end early, as roff's own checks want. */
static void print_running(const char *at, int *column)
{
    enum { WIDTH = 50 }; /* without the marks of fonts */
    if (*at != ' ' || *column + (int)strcspn(at + 1, " ") < WIDTH || at[1] == '.' || at[1] == '\'') {
        print_character(*at);
        ++*column;
    } else {
        putchar('\n');
        *column = 0;
    }
}

/* PLACEHOLDERS in italics, literal words in bold. */
static void print_argument(const char *text)
{
    while (*text) {
        bool placeholder = isupper((unsigned char)*text), word = isalnum((unsigned char)*text);
        if (word) printf("\\f%c", placeholder ? 'I' : 'B');
        do print_character(*text++);
        while (word && isalnum((unsigned char)*text) && placeholder == !!isupper((unsigned char)*text));
        if (word) printf("\\fP");
    }
}

/* Sentences with *bold* and _italic_ words. An underscore inside a word is itself. */
static void print_sentences(const char *text)
{
    char font = '\0'; /* the mark that ends it; 0: the usual one */
    int column = 0;
    for (const char *c = text; *c; c++) {
        bool begins = !font && (c == text || !isalnum((unsigned char)c[-1]));
        bool ends = *c == font && (font == '*' || !isalnum((unsigned char)c[1]));
        if (ends) {
            printf("\\fP");
            font = '\0';
        } else if (*c == '*' || (*c == '_' && begins)) {
            printf(*c == '*' ? "\\fB" : "\\fI");
            font = *c;
        } else {
            print_running(c, &column);
        }
    }
}

/* Whether the phrase begins with a word that is written like this. */
static bool begins_with_choice(const Option *option)
{
    size_t length = strcspn(option->help, " ,;:");
    for (const char *const *choice = option->choices; choice && *choice; choice++)
        if (strlen(*choice) == length && strncmp(*choice, option->help, length) == 0) return true;
    return false;
}

/* The option's phrase as a sentence, with the argument's placeholder in italics. */
static void print_phrase(const Option *option)
{
    const char *text = option->help, *placeholder = option->argument;
    size_t length = placeholder ? strspn(placeholder, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") : 0;
    int column = 0;
    putchar(begins_with_choice(option) ? *text : toupper((unsigned char)*text));
    for (const char *c = text + 1; *c; c++) {
        bool begins = length && !isalnum((unsigned char)c[-1]) && strncmp(c, placeholder, length) == 0;
        if (begins && !isalnum((unsigned char)c[length])) {
            printf("\\fI%.*s\\fP", (int)length, c);
            c += length - 1;
        } else {
            print_running(c, &column);
        }
    }
    putchar('.');
}

static void print_name(const Option *option)
{
    if (option->letter) printf("\\fB\\-%c\\fP, ", option->letter);
    printf("\\fB\\-\\-");
    for (const char *c = option->name; *c; c++) print_character(*c);
    printf("\\fP");
}

static void print_option(const Option *option)
{
    printf(".TP\n");
    if (!option->positional) print_name(option);
    if (option->argument) {
        if (!option->positional) printf(option->implied ? "[=" : " ");
        print_argument(option->argument);
        if (option->implied) putchar(']');
    }
    putchar('\n');
    if (option->detail)
        print_sentences(option->detail);
    else
        print_phrase(option);
    if (option->initial) printf(" Default: \\fB%s\\fP.", option->initial);
    putchar('\n');
}

/* Options that compile takes are explained in its section, to which other commands refer. */
static bool refers(const Option *option, const Documented *one)
{
    return one->is_command && option->takers & COMPILE && one->options.taker != COMPILE;
}

static bool is_explained(const Option *option, const Documented *one)
{
    return option_taken(&one->options, option) && option->help && strncmp(option->name, "help", 4) != 0;
}

static void print_references(const Documented *one)
{
    int count = 0, printed = 0;
    for (size_t i = 0; i < one->options.count; i++)
        count += is_explained(&one->options.rows[i], one) && refers(&one->options.rows[i], one);
    for (size_t i = 0; i < one->options.count; i++) {
        const Option *option = &one->options.rows[i];
        if (!is_explained(option, one) || !refers(option, one)) continue;
        printf(printed == 0 ? ".PP\n" : printed < count - 1 ? ",\n" : " and\n");
        print_name(option);
        printed++;
    }
    if (count) printf("\n%s the same meaning as for \\fBskycc compile\\fP.\n", count > 1 ? "have" : "has");
}

static void print_text(const char *text)
{
    for (; *text; text++) print_character(*text);
}

static void print_paragraph(const char *text)
{
    int column = 0;
    for (; *text; text++) print_running(text, &column);
    putchar('\n');
}

void man_heading(const Documented *one)
{
    const CommandText *text = one->is_command ? &command_texts[__builtin_ctz(one->options.taker)] : NULL;
    printf(".SS ");
    print_text(text ? text->synopsis[0] : "DIR/train --data FILE [options]");
    putchar('\n');
    if (text) print_paragraph(text->description);
    if (text && text->more) print_paragraph(text->more);
}

/* Those of --help. */
static void print_examples(const CommandText *text)
{
    printf(".PP\n.nf\n");
    for (int i = 0; text->examples[i]; i++) print_text(text->examples[i]), putchar('\n');
    printf(".fi\n");
}

void man_options(const Documented *one)
{
    for (size_t i = 0; i < one->options.count; i++) {
        const Option *option = &one->options.rows[i];
        if (is_explained(option, one) && !refers(option, one)) print_option(option);
    }
    print_references(one);
    if (one->is_command) print_examples(&command_texts[__builtin_ctz(one->options.taker)]);
}
