#include "federation/aggregate/shamir.h"

static unsigned char multiply(unsigned char a, unsigned char b)
{
    unsigned product = 0, power = a;
    for (int bit = 0; bit < 8; bit++) {
        product ^= power & (0u - ((unsigned)b >> bit & 1));
        power = (power << 1) ^ (0x11bu & (0u - (power >> 7)));
    }
    return (unsigned char)product;
}

/* a^254, which is 1 / a. */
static unsigned char invert(unsigned char a)
{
    unsigned char square = multiply(a, a), inverse = square;
    for (int bit = 2; bit < 8; bit++) {
        square = multiply(square, square);
        inverse = multiply(inverse, square);
    }
    return inverse;
}

void shamir_split(const unsigned char *secret, size_t bytes, int threshold, int count, const unsigned char *random,
                  unsigned char *shares)
{
    for (int number = 1; number <= count; number++, shares += bytes)
        for (size_t i = 0; i < bytes; i++) {
            unsigned char value = 0; /* by Horner's rule: random row k holds the coefficients of x^(k + 1) */
            for (int k = threshold - 2; k >= 0; k--)
                value = multiply(value ^ random[(size_t)k * bytes + i], (unsigned char)number);
            shares[i] = value ^ secret[i];
        }
}

void shamir_join(const unsigned char *numbers, const unsigned char *const *shares, int count, size_t bytes,
                 unsigned char *secret)
{
    for (size_t i = 0; i < bytes; i++) secret[i] = 0;
    for (int s = 0; s < count; s++) {
        unsigned char above = 1, below = 1; /* Lagrange's weight of this share at 0 */
        for (int other = 0; other < count; other++) {
            if (other == s) continue;
            above = multiply(above, numbers[other]);
            below = multiply(below, numbers[other] ^ numbers[s]);
        }
        unsigned char weight = multiply(above, invert(below));
        for (size_t i = 0; i < bytes; i++) secret[i] ^= multiply(weight, shares[s][i]);
    }
}
