/* Secret sharing over GF(2^8): any `threshold` shares of a secret give it back, fewer say nothing about it.
 *
 * Shamir, "How to share a secret", CACM 22 (1979), byte by byte in the field of AES (x^8 + x^4 + x^3 + x + 1), as
 * draft-mcgrew-tss-03 does. Share `number` holds the polynomials' values at `number`. Multiplication looks nothing up
 * and takes no branch, so that time tells nothing about secrets. */
#ifndef FEDERATION_AGGREGATE_SHAMIR_H
#define FEDERATION_AGGREGATE_SHAMIR_H

#include <stddef.h>

enum { SHAMIR_MOST_SHARES = 255 };

/* Writes the shares 1 ... count, `bytes` bytes each, one after the other. `random`: (threshold - 1) * bytes random
 * bytes, which make the polynomials and must be forgotten. 1 <= threshold <= count <= SHAMIR_MOST_SHARES. */
void shamir_split(const unsigned char *secret, size_t bytes, int threshold, int count, const unsigned char *random,
                  unsigned char *shares);

/* The secret from `count` shares, which must be at least the threshold: shares[i] is the share of number numbers[i],
 * from 1 on and all different. What comes of wrong shares, or of too few, is another secret: nothing here can tell. */
void shamir_join(const unsigned char *numbers, const unsigned char *const *shares, int count, size_t bytes,
                 unsigned char *secret);

#endif
