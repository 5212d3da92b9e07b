#include "federation/privacy.h"

#include <math.h>
#include <sodium.h>
#include <string.h>

/* ---- Updates ---- */

double update_clip(float *values, size_t count, double clip)
{
    double square = 0;
    for (size_t i = 0; i < count; i++) square += (double)values[i] * (double)values[i];
    double norm = sqrt(square), factor = clip / norm;
    for (size_t i = 0; norm > clip && isfinite(norm) && i < count; i++) values[i] = (float)((double)values[i] * factor);
    return norm;
}

/* A random number in (0, 1). */
static double open_interval(uint64_t bits) { return ((double)(bits >> 12) + 0.5) * 0x1p-52; }

void update_add_noise(float *values, size_t count, double deviation, const unsigned char key[NOISE_KEY_BYTES])
{
    enum { DRAWN = 1024 };
    uint64_t drawn[DRAWN];
    unsigned char nonce[crypto_stream_chacha20_NONCEBYTES];
    _Static_assert(sizeof nonce == sizeof(uint64_t) && NOISE_KEY_BYTES == crypto_stream_chacha20_KEYBYTES, "ChaCha20");
    for (size_t i = 0; i < count; i += 2) {
        uint64_t block = i / DRAWN;
        memcpy(nonce, &block, sizeof nonce);
        if (i % DRAWN == 0) crypto_stream_chacha20((unsigned char *)drawn, sizeof drawn, nonce, key);
        double radius = deviation * sqrt(-2 * log(open_interval(drawn[i % DRAWN])));
        double angle = 2 * M_PI * open_interval(drawn[i % DRAWN + 1]);
        values[i] = (float)((double)values[i] + radius * cos(angle));
        if (i + 1 < count) values[i + 1] = (float)((double)values[i + 1] + radius * sin(angle));
    }
    sodium_memzero(drawn, sizeof drawn);
}

/* ---- Accounting ---- */

static double log_add(double a, double b)
{
    double most = a > b ? a : b, least = a > b ? b : a;
    return least == -INFINITY ? most : most + log1p(exp(least - most));
}

double privacy_divergence(double rate, double sigma, double order)
{
    if (!(sigma > 0)) return INFINITY;
    if (rate >= 1) return order / (2 * sigma * sigma);
    double sum = -INFINITY, whole = floor(order); /* equation 9 of the paper, in logarithms */
    for (double k = 0; k <= whole; k++) {
        double choices = lgamma(whole + 1) - lgamma(k + 1) - lgamma(whole - k + 1);
        double in = k > 0 ? k * log(rate) : 0, out = (whole - k) * log1p(-rate);
        sum = log_add(sum, choices + in + out + (k * k - k) / (2 * sigma * sigma));
    }
    return sum / (whole - 1);
}

double privacy_epsilon(double rate, double sigma, int64_t rounds, double delta, double *order)
{
    enum { MOST_ORDER = 1024 };
    double least = INFINITY, best = 2;
    bool fractions = rate >= 1;
    for (double at = fractions ? 1.01 : 2; at <= MOST_ORDER; at += fractions && at < 64 ? 0.01 : 1) {
        double divergence = (double)rounds * privacy_divergence(rate, sigma, at);
        double epsilon = divergence + log1p(-1 / at) - log(delta * at) / (at - 1);
        if (epsilon < least) least = epsilon, best = at;
    }
    if (order) *order = best;
    return rounds == 0 ? 0 : least < 0 ? 0 : least;
}
