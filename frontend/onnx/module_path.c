#include "frontend/onnx/importer.h"

#include <string.h>

#include "frontend/onnx/model.h"

/* Fields that the installed onnx.proto may be too old to know. */
enum { NODE_METADATA = 9 };

const char *node_metadata(Arena *arena, const Onnx__NodeProto *node, const char *key)
{
    for (unsigned i = 0; i < node->base.n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *field = &node->base.unknown_fields[i];
        size_t size;
        const unsigned char *payload = wire_payload(field->data, field->len, &size);
        if (field->tag != NODE_METADATA || field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED || !payload)
            continue;
        ProtobufCAllocator allocator = onnx_allocator(arena);
        const Onnx__StringStringEntryProto *entry = onnx__string_string_entry_proto__unpack(&allocator, size, payload);
        if (entry && entry->key && entry->value && strcmp(entry->key, key) == 0) return entry->value;
    }
    return NULL;
}

/* The last but one of "['', 'bert', 'bert.encoder', 'linear']": the last one is the node itself. */
static const char *innermost_scope(Arena *arena, const char *list)
{
    const char *end = strrchr(list, ',');
    while (end && end > list && *end != '\'') end--;
    if (!end || *end != '\'') return NULL;
    const char *start = end - 1;
    while (start > list && *start != '\'') start--;
    return start < end && *start == '\'' && end - start > 1
               ? arena_string_n(arena, start + 1, (size_t)(end - start - 1))
               : NULL;
}

/* The same of ": Model/bert: BertModel/bert.encoder: BertEncoder/linear: aten.linear.default". */
static const char *innermost_namespace(Arena *arena, const char *text)
{
    const char *end = strrchr(text, '/'), *start = end;
    if (!end) return NULL;
    while (start > text && start[-1] != '/') start--;
    const char *colon = memchr(start, ':', (size_t)(end - start));
    return colon && colon > start ? arena_string_n(arena, start, (size_t)(colon - start)) : NULL;
}

static const char *path_in_name(Arena *arena, const char *name)
{
    const char *end = name ? strrchr(name, '/') : NULL;
    if (!end) return NULL;
    name += *name == '/';
    if (end <= name) return NULL;
    char *path = arena_string_n(arena, name, (size_t)(end - name));
    for (char *c = path; *c; c++)
        if (*c == '/') *c = '.';
    return path;
}

const char *module_path(Arena *arena, const Onnx__NodeProto *node)
{
    const char *scopes = node_metadata(arena, node, "pkg.torch.onnx.name_scopes");
    const char *path = scopes ? innermost_scope(arena, scopes) : NULL;
    if (path) return path;
    const char *name_space = node_metadata(arena, node, "namespace");
    path = name_space ? innermost_namespace(arena, name_space) : NULL;
    return path ? path : path_in_name(arena, node->name);
}

const char *source_lines(Arena *arena, const Onnx__NodeProto *node)
{
    const char *lines = node_metadata(arena, node, "pkg.torch.onnx.stack_trace");
    return lines ? lines : "";
}
