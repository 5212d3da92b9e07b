#include "frontend/onnx/wire.h"

#include "onnx/onnx.pb-c.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum {
    MAX_DEPTH = 48, /* BERT exports have no subgraphs, which would cost three levels each */
    MAX_VARINT_BYTES = 10,
    ALLOCATION_OVERHEAD = 16,
    MEMBER_OVERHEAD = 40 /* what protobuf-c notes about each field while unpacking */
};

/* What unpacking may allocate in total. */
#define MAX_UNPACKED_BYTES ((uint64_t)2 << 30)

typedef enum WireType {
    WIRE_VARINT,
    WIRE_FIXED64,
    WIRE_BYTES,
    WIRE_GROUP_BEGIN,
    WIRE_GROUP_END,
    WIRE_FIXED32
} WireType;

/* One field: [start, end), of which the payload is [data, end). */
typedef struct WireField {
    uint32_t number;
    WireType type;
    const unsigned char *start, *data, *end;
} WireField;

/* Returns the byte after the varint, or NULL. */
static const unsigned char *read_varint(const unsigned char *at, const unsigned char *end, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < MAX_VARINT_BYTES; i++) {
        if (at == end) return NULL;
        unsigned char byte = *at++;
        if (i == MAX_VARINT_BYTES - 1 && byte > 1) return NULL;
        *value |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (!(byte & 0x80)) return at;
    }
    return NULL;
}

/* Reads the field at `at`. Returns NULL, or what is wrong with it. */
static const char *read_field(const unsigned char *at, const unsigned char *end, WireField *field)
{
    uint64_t tag, length;
    field->start = field->data = field->end = at;
    at = read_varint(at, end, &tag);
    if (!at || tag >> 3 == 0 || tag > UINT32_MAX) return "starts with an impossible tag";
    field->number = (uint32_t)(tag >> 3);
    field->type = (WireType)(tag & 7);
    field->data = at;
    switch (field->type) {
    case WIRE_VARINT:
        field->end = read_varint(at, end, &length);
        return field->end ? NULL : "holds an unfinished or overlong number";
    case WIRE_FIXED64: length = 8; break;
    case WIRE_FIXED32: length = 4; break;
    case WIRE_BYTES:
        at = read_varint(at, end, &length);
        if (!at) return "has an unfinished or overlong length";
        field->data = at;
        break;
    case WIRE_GROUP_BEGIN:
    case WIRE_GROUP_END: return "is of the obsolete group type";
    default: return "is of an impossible type";
    }
    if (length > (uint64_t)(end - at)) return "reaches beyond the end of what encloses it";
    field->end = at + length;
    return NULL;
}

typedef struct Scan {
    const unsigned char *bytes;
    const char *path;
    Diagnostics *diagnostics;
    uint64_t unpacked_bytes;
} Scan;

static bool refuse(Scan *scan, const unsigned char *at, const char *message, const char *field, const char *problem)
{
    char object[160];
    snprintf(object, sizeof object, "byte %zu", (size_t)(at - scan->bytes));
    return diagnostics_error(scan->diagnostics, EXIT_BAD_INPUT, (Place){.file = scan->path, .object = object},
                             "the file is damaged, cut short or not an ONNX model; export or copy it again",
                             "field %s%s%s %s", message, field ? "." : "", field ? field : "", problem);
}

static WireType natural_wire_type(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT: return WIRE_FIXED32;
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: return WIRE_FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE: return WIRE_BYTES;
    default: return WIRE_VARINT;
    }
}

/* Names must be text: they are compared, printed and written into JSON. Free text may have lines. */
static bool is_text(const unsigned char *data, size_t size, bool is_name)
{
    if (size && memchr(data, 0, size)) return false;
    for (size_t i = 0; is_name && i < size; i++)
        if (data[i] < 0x20 || data[i] == 0x7f) return false;
    for (size_t i = 0; i < size;) {
        utf8proc_int32_t character;
        utf8proc_ssize_t length = utf8proc_iterate(data + i, (utf8proc_ssize_t)(size - i), &character);
        if (length <= 0) return false;
        i += (size_t)length;
    }
    return true;
}

/* Elements of a packed repeated field; each costs 8 bytes at most. */
static const char *scan_packed(const WireField *field, WireType element, size_t *count)
{
    size_t size = (size_t)(field->end - field->data);
    if (element != WIRE_VARINT) {
        size_t width = element == WIRE_FIXED32 ? 4 : 8;
        *count = size / width;
        return size % width ? "ends within an element" : NULL;
    }
    uint64_t value;
    for (const unsigned char *at = field->data; at < field->end; (*count)++)
        if (!(at = read_varint(at, field->end, &value))) return "holds an unfinished or overlong number";
    return NULL;
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *type, uint32_t number)
{
    for (unsigned i = 0; i < type->n_fields; i++)
        if (type->fields[i].id == number) return &type->fields[i];
    return NULL;
}

static bool scan_message(Scan *scan, const unsigned char *at, const unsigned char *end,
                         const ProtobufCMessageDescriptor *type, int depth);

/* `known` describes the field. `seen` has a bit per field of the message, up to 64. */
static bool scan_known(Scan *scan, const WireField *field, const ProtobufCMessageDescriptor *type,
                       const ProtobufCFieldDescriptor *known, uint64_t *seen, int depth)
{
    WireType natural = natural_wire_type(known->type);
    size_t size = (size_t)(field->end - field->data), count = 0;
    uint64_t bit = (uint64_t)1 << (known - type->fields) % 64;
    bool again = (*seen & bit) != 0;
    *seen |= bit;
    if (known->label == PROTOBUF_C_LABEL_REPEATED && natural != WIRE_BYTES && field->type == WIRE_BYTES) {
        const char *problem = scan_packed(field, natural, &count);
        scan->unpacked_bytes += 8 * (uint64_t)count;
        return !problem || refuse(scan, field->start, type->short_name, known->name, problem);
    }
    if (field->type != natural)
        return refuse(scan, field->start, type->short_name, known->name, "is of the wrong type");
    if (natural == WIRE_BYTES) scan->unpacked_bytes += size + ALLOCATION_OVERHEAD;
    bool is_name = type != &onnx__string_string_entry_proto__descriptor;
    if (known->type == PROTOBUF_C_TYPE_STRING && strcmp(known->name, "doc_string") != 0 &&
        !is_text(field->data, size, is_name))
        return refuse(scan, field->start, type->short_name, known->name, "is not printable UTF-8 text");
    if (known->type != PROTOBUF_C_TYPE_MESSAGE) return true;
    if (again && known->label != PROTOBUF_C_LABEL_REPEATED)
        return refuse(scan, field->start, type->short_name, known->name, "occurs twice");
    return scan_message(scan, field->data, field->end, known->descriptor, depth + 1);
}

static bool scan_message(Scan *scan, const unsigned char *at, const unsigned char *end,
                         const ProtobufCMessageDescriptor *type, int depth)
{
    if (depth > MAX_DEPTH) return refuse(scan, at, type->short_name, NULL, "is nested too deep");
    scan->unpacked_bytes += type->sizeof_message + ALLOCATION_OVERHEAD;
    uint64_t seen = 0;
    while (at < end) {
        WireField field;
        const char *problem = read_field(at, end, &field);
        const ProtobufCFieldDescriptor *known = field.data > field.start ? find_field(type, field.number) : NULL;
        if (problem && depth == 0 && known && field.type == WIRE_BYTES)
            problem = "is longer than the file, which is cut short or damaged";
        if (problem) return refuse(scan, at, type->short_name, known ? known->name : NULL, problem);
        scan->unpacked_bytes += MEMBER_OVERHEAD;
        if (!known) scan->unpacked_bytes += (uint64_t)(field.end - field.start);
        if (known && !scan_known(scan, &field, type, known, &seen, depth)) return false;
        if (scan->unpacked_bytes > MAX_UNPACKED_BYTES)
            return refuse(scan, at, type->short_name, NULL, "makes the model larger than 2 GiB, besides raw weights");
        at = field.end;
    }
    return true;
}

bool wire_scan(const unsigned char *bytes, size_t size, const ProtobufCMessageDescriptor *type, const char *path,
               Diagnostics *diagnostics)
{
    Scan scan = {.bytes = bytes, .path = path, .diagnostics = diagnostics};
    return scan_message(&scan, bytes, bytes + size, type, 0);
}

const unsigned char *wire_payload(const unsigned char *data, size_t available, size_t *size)
{
    uint64_t length;
    const unsigned char *payload = read_varint(data, data + available, &length);
    if (!payload || length > (uint64_t)(data + available - payload)) return NULL;
    *size = (size_t)length;
    return payload;
}

/* Field numbers of onnx.proto. */
enum { MODEL_GRAPH = 7, GRAPH_INITIALIZER = 5, TENSOR_RAW_DATA = 9 };

static void append_message(Buffer *to, uint32_t number, const Buffer *content)
{
    unsigned char head[MAX_VARINT_BYTES + 1];
    size_t used = 0;
    head[used++] = (unsigned char)(number << 3 | WIRE_BYTES); /* numbers below 16 */
    for (uint64_t rest = content->size; used < sizeof head; rest >>= 7) {
        head[used++] = (unsigned char)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
        if (rest <= 0x7f) break;
    }
    buffer_append(to, head, used);
    buffer_append(to, content->bytes, content->size);
}

static WireSpan strip_tensor(const unsigned char *file, const WireField *tensor, Buffer *thin)
{
    WireSpan span = {0};
    WireField field;
    for (const unsigned char *at = tensor->data; at < tensor->end; at = field.end) {
        read_field(at, tensor->end, &field);
        if (field.number == TENSOR_RAW_DATA)
            span = (WireSpan){(size_t)(field.data - file), (size_t)(field.end - field.data), true};
        else
            buffer_append(thin, field.start, (size_t)(field.end - field.start));
    }
    return span;
}

void wire_strip_weights(const unsigned char *bytes, size_t size, Buffer *thin, WireSpan **spans, size_t *span_count)
{
    size_t capacity = 0;
    *spans = NULL;
    *span_count = 0;
    WireField outer, inner;
    for (const unsigned char *at = bytes; at < bytes + size; at = outer.end) {
        read_field(at, bytes + size, &outer);
        if (outer.number != MODEL_GRAPH) {
            buffer_append(thin, outer.start, (size_t)(outer.end - outer.start));
            continue;
        }
        FREED_WITH(buffer_free) Buffer graph = {0}, tensor = {0};
        for (at = outer.data; at < outer.end; at = inner.end) {
            read_field(at, outer.end, &inner);
            if (inner.number != GRAPH_INITIALIZER) {
                buffer_append(&graph, inner.start, (size_t)(inner.end - inner.start));
                continue;
            }
            tensor.size = 0;
            array_push(*spans, *span_count, capacity, strip_tensor(bytes, &inner, &tensor));
            append_message(&graph, GRAPH_INITIALIZER, &tensor);
        }
        append_message(thin, MODEL_GRAPH, &graph);
    }
}
