#include "runtime/wire/frame.h"

#include <endian.h>
#include <string.h>

static const uint32_t magic = 0x31776b73; /* "skw1" */

/* Where the fields stand, in the order of WireFrame. */
enum {
    AT_MAGIC = 0,
    AT_KIND = 4,
    AT_RUN = 8,
    AT_INCARNATION = 24,
    AT_BOUND = 32,
    AT_SEQUENCE = 40,
    AT_FROM = 48,
    AT_TO = 52,
    AT_TAG = 56,
    AT_ZERO = 60,
    AT_TOTAL = 64,
    AT_OFFSET = 72
};

static void put32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

static void put64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

static uint32_t get32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

void wire_frame_write(const WireFrame *frame, uint8_t header[WIRE_HEADER])
{
    put32(header + AT_MAGIC, magic);
    put32(header + AT_KIND, (uint32_t)frame->kind);
    put64(header + AT_RUN, frame->run.high);
    put64(header + AT_RUN + 8, frame->run.low);
    put64(header + AT_INCARNATION, frame->incarnation);
    put64(header + AT_BOUND, frame->bound);
    put64(header + AT_SEQUENCE, frame->sequence);
    put32(header + AT_FROM, (uint32_t)frame->from);
    put32(header + AT_TO, (uint32_t)frame->to);
    put32(header + AT_TAG, (uint32_t)frame->tag);
    put32(header + AT_ZERO, 0);
    put64(header + AT_TOTAL, frame->total);
    put64(header + AT_OFFSET, frame->offset);
}

bool wire_frame_read(WireFrame *frame, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    if (size < WIRE_HEADER || get32(at + AT_MAGIC) != magic || get32(at + AT_ZERO) != 0) return false;
    uint32_t kind = get32(at + AT_KIND);
    if (kind < WIRE_HELLO || kind >= WIRE_KIND_COUNT) return false;
    *frame = (WireFrame){.kind = (WireKind)kind,
                         .run = {get64(at + AT_RUN), get64(at + AT_RUN + 8)},
                         .incarnation = get64(at + AT_INCARNATION),
                         .bound = get64(at + AT_BOUND),
                         .sequence = get64(at + AT_SEQUENCE),
                         .from = (int32_t)get32(at + AT_FROM),
                         .to = (int32_t)get32(at + AT_TO),
                         .tag = (int32_t)get32(at + AT_TAG),
                         .total = get64(at + AT_TOTAL),
                         .offset = get64(at + AT_OFFSET),
                         .payload = at + WIRE_HEADER,
                         .size = size - WIRE_HEADER};
    bool carries = kind == WIRE_DATA || kind == WIRE_MESSAGE || kind == WIRE_FAIL || kind == WIRE_STATE;
    return carries || frame->size == 0;
}
