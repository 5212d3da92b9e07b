/* base/codec_rows.h says what the bytes mean. */
inline void encode_bf16(__global const uchar *from, long row, __global uchar *to, long bytes, long channel,
                        int stochastic, long key, long first)
{
    uint bits = AT(uint, from, row + 4 * channel), size = bits & 0x7fffffff;
    uint added = stochastic ? random_element(key, first + channel) : 0x7fff + (bits >> 16 & 1);
    uint rounded = size > 0x7f800000 ? CODEC_NAN : size == 0x7f800000 ? bits >> 16 : (bits + added) >> 16;
    to[bytes + 2 * channel] = (uchar)rounded;
    to[bytes + 2 * channel + 1] = (uchar)(rounded >> 8);
}
inline void decode_bf16(__global uchar *to, long row, __global const uchar *from, long bytes, long channel)
{
    __global const uchar *word = from + bytes + 2 * channel;
    AT(uint, to, row + 4 * channel) = (uint)word[0] << 16 | (uint)word[1] << 24;
}
inline void rotate_tile(float *tile)
{
    for (int distance = 1; distance < CODEC_TILE; distance *= 2)
        for (int i = 0; i < CODEC_TILE; i++) {
            if (i & distance) continue;
            float low = tile[i], high = tile[i + distance];
            tile[i] = low + high;
            tile[i + distance] = low - high;
        }
}
inline int quantize(float value, int stochastic, uint drawn)
{
#pragma OPENCL FP_CONTRACT OFF
    if (stochastic) return ((int)(value * 0x1p16f) + (int)drawn) >> 16;
    return (int)(as_uint(value + CODEC_ROUNDING) - as_uint(CODEC_ROUNDING));
}
inline void encode_tile(__global const uchar *from, long row, __global uchar *to, long bytes, long channel,
                        long columns, int bits, int stochastic, long key, long first)
{
#pragma OPENCL FP_CONTRACT OFF
    float tile[CODEC_TILE];
    uint largest = 0;
    int levels = (1 << (bits - 1)) - 1;
    for (int i = 0; i < CODEC_TILE; i++) tile[i] = channel + i < columns ? AT(float, from, row + 4 * (channel + i)) : 0;
    rotate_tile(tile);
    for (int i = 0; i < CODEC_TILE; i++) {
        tile[i] *= 0.125f;
        largest = max(largest, as_uint(tile[i]) & 0x7fffffff);
    }
    uint scale = largest < CODEC_LEAST_BITS    ? 0
                 : largest >= CODEC_MOST_BITS ? CODEC_NAN
                                              : (largest + 0xffff) >> 16;
    int counts = scale != 0 && scale != CODEC_NAN;
    float factor = counts ? (float)levels / as_float(scale << 16) : 0;
    ulong words[8] = {0};
    for (int i = 0; i < CODEC_TILE; i++) {
        float value = counts ? tile[i] * factor : 0;
        int q = quantize(value, stochastic, stochastic ? random_element(key, first + channel + i) : 0);
        ulong code = (ulong)(q + levels);
        for (int bit = 0; bit < bits; bit++) words[bit] |= (code >> bit & 1) << i;
    }
    __global uchar *out = to + bytes + channel / CODEC_TILE * (2 + 8 * bits);
    out[0] = (uchar)scale;
    out[1] = (uchar)(scale >> 8);
    for (int i = 0; i < 8 * bits; i++) out[2 + i] = (uchar)(words[i / 8] >> 8 * (i % 8));
}
inline void decode_tile(__global uchar *to, long row, __global const uchar *from, long bytes, long channel,
                        long columns, int bits)
{
    __global const uchar *in = from + bytes + channel / CODEC_TILE * (2 + 8 * bits);
    int levels = (1 << (bits - 1)) - 1;
    float step = as_float((uint)in[0] << 16 | (uint)in[1] << 24) / (float)levels * 0.125f, tile[CODEC_TILE];
    ulong words[8] = {0};
    for (int i = 0; i < 8 * bits; i++) words[i / 8] |= (ulong)in[2 + i] << 8 * (i % 8);
    for (int i = 0; i < CODEC_TILE; i++) {
        int code = 0;
        for (int bit = 0; bit < bits; bit++) code |= (int)(words[bit] >> i & 1) << bit;
        tile[i] = (float)(code - levels) * step;
    }
    rotate_tile(tile);
    for (int i = 0; i < CODEC_TILE && channel + i < columns; i++) AT(float, to, row + 4 * (channel + i)) = tile[i];
}
