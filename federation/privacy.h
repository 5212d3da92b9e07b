/* Differential privacy of sites: every update is clipped, noise is added to the sum, and an accountant says what that
 * is worth so far. With few sites it is worth little: epsilon is large. */
#ifndef FEDERATION_PRIVACY_H
#define FEDERATION_PRIVACY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Scales the values down to a Euclidean norm of at most `clip`; returns the norm that they had, in double precision.
 * Where that is not finite, because one of them is not, they stay as they are: the caller refuses them. */
double update_clip(float *values, size_t count, double clip);
enum { NOISE_KEY_BYTES = 32 };
/* Adds normal noise of that deviation: by Box and Muller in double precision, from what ChaCha20 makes of a key that
 * serves once. It is not hardened against who reads the lowest bits of floating-point noise (Mironov 2012); the values
 * are rounded to words afterwards. */
void update_add_noise(float *values, size_t count, double deviation, const unsigned char key[NOISE_KEY_BYTES]);

/* The Renyi divergence of order `order` > 1 of one application of the Gaussian mechanism with noise of `sigma` times
 * the sensitivity, to a part of the members that each is in with probability `rate`. With rate 1 any order (Mironov,
 * "Renyi differential privacy", CSF 2017); below 1 whole orders (Mironov, Talwar, Zhang, "Renyi differential privacy of
 * the sampled Gaussian mechanism", arXiv 1908.10530). */
double privacy_divergence(double rate, double sigma, double order);
/* Epsilon of `rounds` applications for this delta, the least over orders from 1.01 to 1024 (whole ones where rate < 1),
 * and that order: proposition 12 of Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS
 * 2020. 0 for no rounds, infinite without noise. `order` may be NULL. */
double privacy_epsilon(double rate, double sigma, int64_t rounds, double delta, double *order);

#endif
