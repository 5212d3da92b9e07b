#include "base/codec.h"

#include <string.h>

static const struct {
    const char *name;
    int bits;
} codecs[CODEC_COUNT] = {
    [CODEC_NONE] = {"none", 0}, [CODEC_BF16] = {"bf16", 0}, [CODEC_Q8] = {"q8", 8},
    [CODEC_Q6] = {"q6", 6},     [CODEC_Q4] = {"q4", 4},     [CODEC_Q3] = {"q3", 3},
};

const char *codec_name(Codec codec) { return codecs[codec].name; }

bool codec_from_name(const char *name, Codec *codec)
{
    for (int i = 0; i < CODEC_COUNT; i++) {
        if (strcmp(codecs[i].name, name) != 0) continue;
        *codec = (Codec)i;
        return true;
    }
    return false;
}

int codec_bits(Codec codec) { return codecs[codec].bits; }

int64_t codec_row_bytes(Codec codec, int64_t columns)
{
    if (codec == CODEC_NONE) return 4 * columns;
    if (codec == CODEC_BF16) return 2 * columns;
    int64_t tiles = (columns + CODEC_TILE - 1) / CODEC_TILE;
    return tiles * (2 + codecs[codec].bits * (CODEC_TILE / 8));
}
