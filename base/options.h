/* Command lines that follow from a table: one row an option. Parsing, --help, the manual page and the completions of
 * shells read the same rows.
 *
 * Options are written --name VALUE, --name=VALUE, -o VALUE or -oVALUE; most names may be cut to a prefix that only one
 * option has; letters of flags may share a dash; everything after -- is an argument. A row whose `positional` is set
 * takes an argument without a name. These rows take arguments in order; a repeated one takes all that are left.
 *
 * To add an option: a row, and the field that it sets. */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include <stdint.h>

#include "base/diagnostics.h"

typedef enum OptionKind {
    OPTION_FLAG,      /* takes no value; the field, a bool, becomes true */
    OPTION_INTEGER,   /* `least` to `greatest`, into an integer of 4 or 8 bytes; INFINITY is for uint64_t only */
    OPTION_NUMBER,    /* `least` to `greatest`, finite, into a double */
    OPTION_TEXT,      /* into a const char *, or a TextList if repeated */
    OPTION_FILE,      /* the same; completion offers files */
    OPTION_DIRECTORY, /* the same; completion offers directories */
    OPTION_CHOICE     /* one of `choices`: its number into an enum or bool, or the word itself into a const char * */
} OptionKind;

/* What the path of a file or directory means to processes that work together. */
typedef enum OptionPath {
    OPTION_PATH_OWN,   /* each uses its own, if any */
    OPTION_PATH_FIRST, /* only the first process writes there */
    OPTION_PATH_HOST   /* processes of one host must name the same place */
} OptionPath;

typedef struct Option Option;

/* A value to be read: `text` lives as long as the command line. */
typedef struct OptionValue {
    const Option *option;
    const char *text;
    void *values; /* the structure that fields are offsets into */
    Arena *arena; /* lives as long as that structure */
    Diagnostics *diagnostics;
} OptionValue;

struct Option {
    const char *name;     /* "time-limit"; of a positional argument what messages call it */
    char letter;          /* 'o' of -o; 0: none */
    const char *argument; /* what stands for the value: PLACEHOLDERS in capitals, the rest as it is written */
    uint32_t takers;      /* bits of the commands that take it */
    OptionKind kind;
    double least, greatest;
    size_t offset, size; /* of the field: OPTION_FIELD */
    bool positional;     /* an argument without a name in front */
    bool repeated;       /* may be given several times; the field is a TextList */
    bool kept_as_text;   /* a number is only checked: the field is a const char * */
    uint32_t required;   /* bits of the commands that cannot do without */
    uint32_t suffices;   /* bits of the commands that can do without all others that are required, if it is given */
    uint32_t common;     /* bits of the commands whose short help lists it */
    /* Processes that work together must be given the same: the same bytes, the same kind of file, or none. */
    bool agreed;
    OptionPath path;
    bool whole;                 /* is not cut to a prefix: shell scripts look for the name, too */
    const char *initial;        /* the default, as if it were given; NULL: none, the field keeps what it has */
    const char *implied;        /* the value of --NAME alone: one that is given follows a =. NULL: it must be given */
    const char *const *choices; /* OPTION_WORDS: what completion offers; CHOICE takes nothing else */
    bool (*read)(const OptionValue *value); /* instead of what the kind does; NULL: none */
    const char *help;                       /* a phrase for --help; NULL: not listed there */
    const char *detail; /* sentences for the manual page, with *bold* and _italic_ words; NULL: those of help */
};

#define OPTION_WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define OPTION_FIELD(type, field) .offset = offsetof(type, field), .size = sizeof((type *)NULL)->field

typedef struct TextList {
    const char **items;
    size_t count;
} TextList;

/* What other tools call an option, and what to write here. */
typedef struct OptionHabit {
    const char *names; /* " learning_rate learning_rate_init ": - and _ are the same */
    const char *hint;
} OptionHabit;

/* The options of one command. */
typedef struct OptionSet {
    const Option *rows;
    size_t count;
    uint32_t taker;            /* the command's bit */
    const char *hint;          /* where its options are listed */
    const OptionHabit *habits; /* NULL: none; a row without names ends them */
} OptionSet;

bool option_taken(const OptionSet *set, const Option *option);

/* Fills fields of `values` from defaults and `arguments` (from [1] on; kept, not copied). Reports every problem
 * (EXIT_USAGE) and returns false then. A caller that finds its help field set prints help, whatever the problems. */
bool options_parse(const OptionSet *set, int argument_count, char **arguments, void *values, Arena *arena,
                   Diagnostics *diagnostics);
/* Prints the options that are common to use, or `all` of them under the headings that stand between the rows (rows that
 * nobody takes, with `help` as the heading). Where no row is common, all are printed. Returns how many were left out.
 * */
int options_print_help(const OptionSet *set, bool all, FILE *stream);
/* Sentences, in lines of at most 80 columns, all but the first indented. */
void options_print_wrapped(FILE *stream, const char *text, size_t indent);

/* For readers. Each reports a malformed value and returns false. */
bool option_refuse(const OptionValue *value, const char *wanted); /* wanted NULL: what the row says */
bool option_read_integer(const OptionValue *value, void *field);
bool option_read_text(const OptionValue *value); /* into the field, or at the end of its list */

#endif
