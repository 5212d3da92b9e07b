#include "tests/network/capture.h"

typedef struct FileHeader {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t reserved[2];
    uint32_t longest;
    uint32_t link_type;
} FileHeader;

typedef struct FrameHeader {
    uint32_t seconds, nanoseconds;
    uint32_t captured, original;
} FrameHeader;

FILE *capture_begin(const char *path)
{
    FILE *file = fopen(path, "wb");
    FileHeader header = {.magic = 0xa1b23c4d, .major = 2, .minor = 4, .longest = LARGE_FRAME_BYTES, .link_type = 1};
    if (file) fwrite(&header, sizeof header, 1, file);
    return file;
}

void capture_frame(FILE *file, const Frame *frame, int64_t now)
{
    FrameHeader header = {(uint32_t)(now / 1000000000), (uint32_t)(now % 1000000000), frame->bytes, frame->bytes};
    fwrite(&header, sizeof header, 1, file);
    fwrite(frame->data, frame->bytes, 1, file);
}
