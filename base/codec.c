#include "base/codec.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int bits;
} forms[CODEC_COUNT] = {
    [CODEC_NONE] = {"none", 0}, [CODEC_BF16] = {"bf16", 0}, [CODEC_Q8] = {"q8", 8},
    [CODEC_Q6] = {"q6", 6},     [CODEC_Q4] = {"q4", 4},     [CODEC_Q3] = {"q3", 3},
};

const char *codec_name(Codec codec) { return forms[codec].name; }

bool codec_from_name(const char *name, Codec *codec)
{
    for (int i = 0; i < CODEC_COUNT; i++) {
        if (strcmp(forms[i].name, name) != 0) continue;
        *codec = (Codec)i;
        return true;
    }
    return false;
}

int codec_bits(Codec codec) { return forms[codec].bits; }

int64_t codec_row_bytes(Codec codec, int64_t columns)
{
    if (codec == CODEC_NONE) return 4 * columns;
    if (codec == CODEC_BF16) return 2 * columns;
    int64_t tiles = (columns + CODEC_TILE - 1) / CODEC_TILE;
    return tiles * (2 + forms[codec].bits * (CODEC_TILE / 8));
}

bool codecs_parse(const char *text, unsigned *codecs)
{
    static const char any[] = "auto:";
    size_t prefix = strlen(any);
    Codec codec = CODEC_NONE;
    bool chosen = strncmp(text, any, prefix) == 0;
    if (strcmp(text, "lossless") != 0 && !codec_from_name(chosen ? text + prefix : text, &codec)) return false;
    *codecs = chosen ? (2u << codec) - 1 : 1u << codec;
    return true;
}

const char *codecs_print(unsigned codecs, char text[static 16])
{
    int last = CODEC_COUNT - 1;
    while (last > 0 && !(codecs >> last & 1)) last--;
    bool single = (codecs & (codecs - 1)) == 0;
    if (last == 0)
        snprintf(text, 16, "lossless");
    else
        snprintf(text, 16, "%s%s", single ? "" : "auto:", codec_name((Codec)last));
    return text;
}

Codec codecs_of_sums(unsigned codecs)
{
    for (int codec = CODEC_NONE + 1; codec < CODEC_COUNT; codec++)
        if (codecs == 1u << codec) return (Codec)codec;
    return CODEC_NONE;
}

double codecs_sum_share(unsigned codecs)
{
    Codec codec = codecs_of_sums(codecs);
    return codec ? (double)codec_row_bytes(codec, CODEC_TILE) / (CODEC_TILE * sizeof(float)) : 1;
}
