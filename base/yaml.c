#include "base/yaml.h"

#include <stdlib.h>
#include <string.h>

#include "base/units.h"

enum { MAX_YAML_BYTES = 1 << 24, MAX_YAML_DEPTH = 64, MAX_REPORTED = 100 };

static const char *display_name(const char *path) { return strcmp(path, "-") == 0 ? "standard input" : path; }

static Place place_of(const char *path, yaml_mark_t mark, const char *object)
{
    return (Place){
        .file = display_name(path), .line = (int)mark.line + 1, .column = (int)mark.column + 1, .object = object};
}

static bool syntax_error(const yaml_parser_t *parser, const char *path, Diagnostics *diagnostics)
{
    Place place = place_of(path, parser->problem_mark, NULL);
    const char *problem = parser->problem ? parser->problem : "out of memory";
    if (parser->error == YAML_READER_ERROR) /* has an offset instead of a mark */
        return input_error(diagnostics, place.file, NULL, "not valid YAML: %s at byte %zu", problem,
                           parser->problem_offset);
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL, "not valid YAML: %s%s%s", problem,
                             parser->context ? " " : "", parser->context ? parser->context : "");
}

/* Reads the file as events to bound the depth of nesting, because libyaml's time is quadratic in it. Also refuses a
 * second document. */
static bool check_structure(yaml_parser_t *parser, const char *path, Diagnostics *diagnostics)
{
    int depth = 0, documents = 0;
    for (bool ended = false; !ended;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event)) return syntax_error(parser, path, diagnostics);
        yaml_event_type_t type = event.type;
        Place place = place_of(path, event.start_mark, NULL);
        yaml_event_delete(&event);
        depth += type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT;
        depth -= type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT;
        documents += type == YAML_DOCUMENT_START_EVENT;
        ended = type == YAML_STREAM_END_EVENT;
        if (depth > MAX_YAML_DEPTH)
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL, "nested more than %d deep",
                                     MAX_YAML_DEPTH);
        if (documents > 1)
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL,
                                     "a second document begins here: only one is expected");
    }
    return documents || input_error(diagnostics, display_name(path), NULL, "is empty");
}

static bool load_document(YamlFile *file, yaml_parser_t *parser, Diagnostics *diagnostics)
{
    if (!yaml_parser_load(parser, &file->document)) return syntax_error(parser, file->path, diagnostics);
    file->root = yaml_document_get_root_node(&file->document);
    if (!file->root) bug("libyaml found a document in its events and none in its tree");
    return true;
}

static bool parse(YamlFile *file, const MappedFile *bytes, Diagnostics *diagnostics)
{
    bool ok = true;
    for (int pass = 0; pass < 2 && ok; pass++) {
        yaml_parser_t parser;
        if (!yaml_parser_initialize(&parser)) memory_exhausted();
        yaml_parser_set_input_string(&parser, bytes->size ? bytes->bytes : (const unsigned char *)"", bytes->size);
        ok = pass == 0 ? check_structure(&parser, file->path, diagnostics) : load_document(file, &parser, diagnostics);
        yaml_parser_delete(&parser);
    }
    return ok;
}

bool yaml_read(YamlFile *file, const char *path, Diagnostics *diagnostics)
{
    *file = (YamlFile){.path = path, .diagnostics = diagnostics};
    FREED_WITH(file_unmap) MappedFile bytes = {0};
    if (!file_map(&bytes, path, diagnostics)) return false;
    return bytes.size <= MAX_YAML_BYTES ? parse(file, &bytes, diagnostics)
                                        : input_error(diagnostics, display_name(path), NULL, "is larger than 16 MiB");
}

bool yaml_read_text(YamlFile *file, const char *name, const char *text, Diagnostics *diagnostics)
{
    *file = (YamlFile){.path = name, .diagnostics = diagnostics};
    return parse(file, &(MappedFile){(const unsigned char *)text, strlen(text), true}, diagnostics);
}

void yaml_close(YamlFile *file) { yaml_document_delete(&file->document); }

bool yaml_error(const YamlFile *file, YamlNode *node, const char *object, const char *hint, const char *format, ...)
{
    if (file->diagnostics->errors >= MAX_REPORTED) return false;
    FREED_WITH(arena_free) Arena arena = {0};
    va_list arguments;
    va_start(arguments, format);
    const char *message = arena_format_va(&arena, format, arguments);
    va_end(arguments);
    diagnostics_error(file->diagnostics, EXIT_BAD_INPUT, place_of(file->path, node->start_mark, object), hint, "%s",
                      message);
    return false;
}

static YamlNode *node_of(const YamlFile *file, yaml_node_item_t item)
{
    return yaml_document_get_node((yaml_document_t *)&file->document, item);
}

static const char *kind_name(YamlNode *node)
{
    return node->type == YAML_SCALAR_NODE ? "a plain value" : node->type == YAML_SEQUENCE_NODE ? "a list" : "a mapping";
}

static bool is_key(YamlNode *node, const char *key)
{
    return node->type == YAML_SCALAR_NODE && node->data.scalar.length == strlen(key) &&
           memcmp(node->data.scalar.value, key, node->data.scalar.length) == 0;
}

static bool unknown_key(const YamlFile *file, YamlNode *key, const char *object, const YamlMember *members,
                        size_t count)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const char *known = "known keys:";
    for (size_t i = 0; i < count; i++) known = arena_format(&arena, "%s%s %s", known, i ? "," : "", members[i].key);
    if (key->type == YAML_SCALAR_NODE)
        yaml_error(file, key, object, known, "unknown key '%s'", (const char *)key->data.scalar.value);
    else
        yaml_error(file, key, object, known, "a key must be a plain word, not %s", kind_name(key));
    return false;
}

bool yaml_members(const YamlFile *file, YamlNode *mapping, const char *object, YamlMember *members, size_t count)
{
    if (mapping->type != YAML_MAPPING_NODE)
        return yaml_error(file, mapping, object, NULL, "must be a mapping (key: value), not %s", kind_name(mapping));
    bool ok = true;
    for (size_t i = 0; i < count; i++) members[i].value = NULL;
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start; pair < mapping->data.mapping.pairs.top;
         pair++) {
        YamlNode *key = node_of(file, pair->key);
        YamlMember *member = NULL;
        for (size_t i = 0; i < count && !member; i++)
            if (is_key(key, members[i].key)) member = &members[i];
        if (!member)
            ok = unknown_key(file, key, object, members, count);
        else if (member->value)
            ok = yaml_error(file, key, object, NULL, "key '%s' is given twice", member->key);
        else
            member->value = node_of(file, pair->value);
    }
    for (size_t i = 0; i < count; i++)
        if (members[i].required && !members[i].value)
            ok = yaml_error(file, mapping, object, NULL, "key '%s' is missing", members[i].key);
    return ok;
}

bool yaml_sequence(const YamlFile *file, YamlNode *node, const char *object, size_t *count)
{
    if (node->type != YAML_SEQUENCE_NODE)
        return yaml_error(file, node, object, NULL, "must be a list, not %s", kind_name(node));
    *count = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    return true;
}

YamlNode *yaml_item(const YamlFile *file, YamlNode *sequence, size_t index)
{
    return node_of(file, sequence->data.sequence.items.start[index]);
}

bool yaml_any_text(const YamlFile *file, YamlNode *node, const char *object, const char *what, const char **text)
{
    if (node->type != YAML_SCALAR_NODE)
        return yaml_error(file, node, object, NULL, "%s must be a plain value, not %s", what, kind_name(node));
    *text = (const char *)node->data.scalar.value;
    size_t length = node->data.scalar.length;
    if (length == 0) return yaml_error(file, node, object, NULL, "%s is empty", what);
    return strlen(*text) == length || yaml_error(file, node, object, NULL, "%s contains a control character", what);
}

bool yaml_text(const YamlFile *file, YamlNode *node, const char *object, const char *what, const char **text)
{
    if (!yaml_any_text(file, node, object, what, text)) return false;
    for (const char *c = *text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return yaml_error(file, node, object, NULL, "%s contains a control character", what);
    return true;
}

bool yaml_number(const YamlFile *file, YamlNode *node, const char *object, const char *what, double least,
                 double *value)
{
    const char *text;
    double number;
    if (!yaml_text(file, node, object, what, &text)) return false;
    if (!units_parse_number(text, &number))
        return yaml_error(file, node, object, NULL, "%s must be a number, not '%s'", what, text);
    if (number < least)
        return yaml_error(file, node, object, NULL, "%s must be at least %g, not %s", what, least, text);
    *value = number;
    return true;
}

bool yaml_integer(const YamlFile *file, YamlNode *node, const char *object, const char *what, int64_t least,
                  int64_t most, int64_t *value)
{
    const char *text;
    if (!yaml_text(file, node, object, what, &text)) return false;
    size_t digits = strspn(text + (*text == '-'), "0123456789");
    if (!digits || digits > 18 || text[digits + (*text == '-')])
        return yaml_error(file, node, object, NULL, "%s must be a whole number, not '%s'", what, text);
    int64_t number = strtoll(text, NULL, 10);
    if (number < least || number > most)
        return yaml_error(file, node, object, NULL, "%s must be from %lld to %lld, not %s", what, (long long)least,
                          (long long)most, text);
    *value = number;
    return true;
}
