#include "frontend/text/token_reader.h"

#include "base/parts.h"

static bool refuse(TokenReader *r, int exit_code, const char *place, const char *reason)
{
    return diagnostics_error(r->diagnostics, exit_code, (Place){.file = r->path, .object = place}, NULL, "%s", reason);
}

bool reader_malformed(TokenReader *r, const char *place, const char *reason)
{
    return refuse(r, EXIT_BAD_INPUT, place, reason);
}

bool reader_unsupported(TokenReader *r, const char *place, const char *what)
{
    return refuse(r, EXIT_UNSUPPORTED_OPERATOR, place, arena_format(&r->arena, "%s is not supported", what));
}

const char *reader_place(TokenReader *r, const char *place, const char *key)
{
    return *place ? arena_format(&r->arena, "%s.%s", place, key) : key;
}

bool reader_check_members(TokenReader *r, json_t *object, const char *place, const char *known)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (!text_has_part(known, key, " ") && !json_is_null(value))
            return reader_unsupported(r, reader_place(r, place, key), "this member");
    }
    return true;
}

bool reader_bool(TokenReader *r, json_t *object, const char *place, const char *key, bool absent, bool *value)
{
    json_t *member = json_object_get(object, key);
    *value = member && !json_is_null(member) ? json_is_true(member) : absent;
    return !member || json_is_null(member) || json_is_boolean(member) ||
           reader_malformed(r, reader_place(r, place, key), "is neither true nor false");
}

bool reader_text(TokenReader *r, json_t *object, const char *place, const char *key, const char **text)
{
    *text = json_string_value(json_object_get(object, key));
    if (!*text) return reader_malformed(r, reader_place(r, place, key), "is not a text");
    *text = arena_string(&r->pipeline->arena, *text);
    return true;
}

const char *reader_type(json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "";
}

bool reader_is_id(json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) < TOKEN_MOST_IDS;
}
