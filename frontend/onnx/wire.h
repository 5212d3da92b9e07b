/* The protobuf wire format, checked and thinned out before protobuf-c sees it.
 *
 * protobuf-c recurses as deep as the file says, copies every bytes field and returns NULL for every problem. So a scan
 * checks the file first against the message descriptors (nesting, counts, lengths, text) and says what is wrong and
 * where. The weights, which are most of a model's bytes, are not unpacked.
 *
 * Format: https://protobuf.dev/programming-guides/encoding/ */
#ifndef FRONTEND_ONNX_WIRE_H
#define FRONTEND_ONNX_WIRE_H

#include <google/protobuf-c/protobuf-c.h>

#include "base/buffer.h"
#include "base/diagnostics.h"

/* Checks that `bytes` hold a message of `type` that protobuf-c will unpack, within bounded stack and memory. Errors
 * name `path` and the offset of the field. */
bool wire_scan(const unsigned char *bytes, size_t size, const ProtobufCMessageDescriptor *type, const char *path,
               Diagnostics *diagnostics);

/* The content of a string, bytes or message field, whose length stands at `data` before it; NULL if some is missing. */
const unsigned char *wire_payload(const unsigned char *data, size_t available, size_t *size);

typedef struct WireSpan {
    size_t offset, size; /* into the file */
    bool present;
} WireSpan;

/* Copies a scanned ModelProto without the raw_data fields of its graph's initializers. Where those lie is returned, one
 * span per initializer, in *spans (malloc'ed). */
void wire_strip_weights(const unsigned char *bytes, size_t size, Buffer *thin, WireSpan **spans, size_t *span_count);

#endif
