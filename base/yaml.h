/* YAML files through libyaml's document tree, whose every node knows its line and column, so that an error about what a
 * value means points at that value just as a syntax error does. */
#ifndef BASE_YAML_H
#define BASE_YAML_H

#include <yaml.h>

#include "base/file.h"

typedef const yaml_node_t YamlNode;

typedef struct YamlFile {
    yaml_document_t document;
    YamlNode *root; /* never NULL after yaml_read */
    const char *path;
    Diagnostics *diagnostics;
} YamlFile;

/* Parses the one document of `path` ("-": standard input), at most 16 MiB. Nodes live until yaml_close. Aliases are
 * resolved, so the tree may share nodes, and may even contain itself: walk it by what is expected, never to the bottom.
 * Nothing is left open on failure. */
bool yaml_read(YamlFile *file, const char *path, Diagnostics *diagnostics);
/* The same for a text at hand; messages call it `name`. */
bool yaml_read_text(YamlFile *file, const char *name, const char *text, Diagnostics *diagnostics);
void yaml_close(YamlFile *file);

/* Reports an error at the node, unless a hundred were reported before, and returns false. `object` and `hint` may be
 * NULL. */
bool yaml_error(const YamlFile *file, YamlNode *node, const char *object, const char *hint, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* What a mapping may contain: fill in the keys, get the values (NULL: absent). */
typedef struct YamlMember {
    const char *key;
    bool required;
    YamlNode *value;
} YamlMember;

/* Finds the members of `mapping`; reports it being no mapping, unknown, repeated and missing keys (all of them), and
 * returns whether there was none of these. `object` says whose members they are, for the messages. */
bool yaml_members(const YamlFile *file, YamlNode *mapping, const char *object, YamlMember *members, size_t count);
/* The elements of a sequence; reports it being none. */
bool yaml_sequence(const YamlFile *file, YamlNode *node, const char *object, size_t *count);
YamlNode *yaml_item(const YamlFile *file, YamlNode *sequence, size_t index);

/* Scalars; `what` names the value in messages ("threads"). The text is non-empty, without control characters, and lives
 * as long as the file. */
bool yaml_text(const YamlFile *file, YamlNode *node, const char *object, const char *what, const char **text);
/* A whole number from `least` to `most`. */
bool yaml_integer(const YamlFile *file, YamlNode *node, const char *object, const char *what, int64_t least,
                  int64_t most, int64_t *value);
/* A finite number of at least `least`. */
bool yaml_number(const YamlFile *file, YamlNode *node, const char *object, const char *what, double least,
                 double *value);

#endif
