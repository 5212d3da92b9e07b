/* YAML files through libyaml's document tree, whose every node knows its line and column, so that every error points at
 * its value, as a syntax error does. */
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
 * resolved, so the tree may share nodes and even contain itself: read only expected members, never the whole tree.
 * Nothing is left open on failure. */
bool yaml_read(YamlFile *file, const char *path, Diagnostics *diagnostics);
/* The same for a text at hand; messages call it `name`. */
bool yaml_read_text(YamlFile *file, const char *name, const char *text, Diagnostics *diagnostics);
void yaml_close(YamlFile *file);

/* Reports an error at the node, unless a hundred were reported before, and returns false. `object` and `hint` may be
 * NULL. */
bool yaml_error(const YamlFile *file, YamlNode *node, const char *object, const char *hint, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* A member of a mapping: the caller sets the key and gets the value (NULL: absent). */
typedef struct YamlMember {
    const char *key;
    bool required;
    YamlNode *value;
} YamlMember;

/* Finds the members of `mapping`. Reports a node that is not a mapping, and all unknown, repeated and missing keys;
 * returns whether all was right. `object` names the mapping in messages. */
bool yaml_members(const YamlFile *file, YamlNode *mapping, const char *object, YamlMember *members, size_t count);
/* The elements of a sequence; reports a node that is not one. */
bool yaml_sequence(const YamlFile *file, YamlNode *node, const char *object, size_t *count);
YamlNode *yaml_item(const YamlFile *file, YamlNode *sequence, size_t index);

/* Scalars; `what` names the value in messages ("threads"). The text is non-empty, without control characters, and lives
 * as long as the file. */
bool yaml_text(const YamlFile *file, YamlNode *node, const char *object, const char *what, const char **text);
/* The same with control characters, which names of files and columns may have. */
bool yaml_any_text(const YamlFile *file, YamlNode *node, const char *object, const char *what, const char **text);
/* A whole number from `least` to `most`. */
bool yaml_integer(const YamlFile *file, YamlNode *node, const char *object, const char *what, int64_t least,
                  int64_t most, int64_t *value);
/* A finite number of at least `least`. */
bool yaml_number(const YamlFile *file, YamlNode *node, const char *object, const char *what, double least,
                 double *value);

#endif
