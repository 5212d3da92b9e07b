/* What suits every device, where the runtime does not say what suits this one. */
#ifndef ROW_GROUP
#define ROW_GROUP 64
#endif
/* Of a product's tile an item computes ITEM_ROWS times VECTOR elements; DEPTH is how much of the sum is in local memory
   at once. Both tiles there are a little wider than they need be, so that columns of them lie in different banks. */
#ifndef VECTOR
#define VECTOR 4
#define ITEM_ROWS 8
#define DEPTH 16
#endif
#define HEIGHT (ROWS + 1)
#define WIDTH (COLUMNS + VECTOR)
#define ITEMS (ROWS / ITEM_ROWS * (COLUMNS / VECTOR))
#define JOIN(a, b) a##b
#define VECTOR_OF(type, count) JOIN(type, count)
#define FLOATS VECTOR_OF(float, VECTOR)
#define STORE_FLOATS JOIN_STORE(VECTOR)
#define JOIN_STORE(count) JOIN(vstore, count)
#define AT(type, buffer, byte) (*(__global type *)((buffer) + (byte)))
inline float bf16_load(ushort x) { return as_float((uint)x << 16); }
inline ushort bf16_store(float x)
{
    uint bits = as_uint(x), high = bits >> 16;
    return isnan(x) ? (ushort)(high | 0x40) : (ushort)((bits + 0x7fff + (high & 1)) >> 16);
}
inline float bf16_round(float x) { return bf16_load(bf16_store(x)); }
inline float block_load(__global const uchar *buffer, long start, long element, int bits)
{
    __global const uchar *block = buffer + start + (element >> 5) * (2 + 4 * bits);
    int i = (int)(element & 31);
    int q = bits == 8 ? (int)(char)block[2 + i] : (int)(block[2 + (i & 15)] >> (i >> 4) * 4 & 15) - 8;
    return (float)q * bf16_load((ushort)(block[0] | block[1] << 8));
}
inline long to_long(float x)
{
    return isnan(x) ? 0 : x >= 0x1p63f ? LONG_MAX : x < -0x1p63f ? LONG_MIN : (long)x;
}
inline long divide(long a, long b) { return b == 0 ? 0 : b == -1 ? (long)(0 - (ulong)a) : a / b; }
inline long remainder_of(long a, long b)
{
    if (b == 0 || b == -1) return 0;
    long rest = a % b;
    return rest && (rest ^ b) < 0 ? rest + b : rest;
}
inline long power(long base, long exponent)
{
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    ulong result = 1, factor = (ulong)base;
    for (; exponent; exponent >>= 1, factor *= factor)
        if (exponent & 1) result *= factor;
    return (long)result;
}
inline uint random_element(long key, long position)
{
    uint x = ((uint)key + (uint)((ulong)position >> 1)) * RANDOM_SPREAD;
    x ^= x >> RANDOM_SHIFT1 ^ (uint)((ulong)key >> 32);
    x *= RANDOM_MULTIPLIER1;
    x ^= x >> RANDOM_SHIFT2;
    x *= RANDOM_MULTIPLIER2;
    x ^= x >> RANDOM_SHIFT3;
    return x >> (position & 1) * RANDOM_ELEMENT_BITS & (RANDOM_ELEMENT_RANGE - 1);
}
inline int below(long key, long position, long bound) { return (long)random_element(key, position) < bound; }
