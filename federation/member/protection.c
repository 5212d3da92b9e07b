#include "federation/member/protection.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

/* ---- The seed ---- */

/* The file is complete or does not exist. */
static bool write_seed(const NoiseSeed *seed, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    char *temporary = arena_format(&arena, "%s.XXXXXX", path);
    FREED_WITH(descriptor_close) int descriptor = mkstemp(temporary); /* only its owner can read it */
    bool ok = descriptor >= 0 && write(descriptor, seed->bytes, sizeof seed->bytes) == sizeof seed->bytes &&
              fsync(descriptor) == 0 && rename(temporary, path) == 0;
    if (!ok) file_error(diagnostics, path, "cannot write");
    if (!ok && descriptor >= 0) unlink(temporary);
    return ok;
}

bool noise_seed_open(NoiseSeed *seed, bool began, const char *path, Diagnostics *diagnostics)
{
    static const char hint[] = "bring it back, or begin with another --checkpoint directory";
    unsigned char bytes[sizeof seed->bytes + 1];
    FREED_WITH(descriptor_close) int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 && errno == ENOENT && began)
        return input_error(diagnostics, path, hint,
                           "the seed of this site's noise is gone: with another one the same update would be "
                           "sent twice with different noise, which shows it");
    if (descriptor < 0 && errno == ENOENT) {
        randombytes_buf(seed->bytes, sizeof seed->bytes);
        return write_seed(seed, path, diagnostics);
    }
    if (descriptor < 0) return file_error(diagnostics, path, "cannot read");
    ssize_t size = read(descriptor, bytes, sizeof bytes);
    memcpy(seed->bytes, bytes, sizeof seed->bytes);
    return size == sizeof seed->bytes ||
           input_error(diagnostics, path, hint, "is not the seed of this site's noise: it has not %zu bytes",
                       sizeof seed->bytes);
}

/* ---- Updates ---- */

/* A site's share of the noise: the least sum of sites has all that the federation asks for. */
static double deviation_of(const Federation *federation)
{
    return federation->privacy.noise * federation->privacy.clip / sqrt(federation->least);
}

int protected_exponent(const Federation *federation)
{
    int exponent;
    frexp(federation->privacy.clip + 10 * deviation_of(federation), &exponent);
    return exponent;
}

bool update_protect(float *update, size_t count, const Federation *federation, const NoiseSeed *seed, int64_t round)
{
    unsigned char key[NOISE_KEY_BYTES];
    crypto_generichash_state hash;
    float most = (float)ldexp(1, protected_exponent(federation));
    if (!isfinite(update_clip(update, count, federation->privacy.clip))) return false;
    crypto_generichash_init(&hash, seed->bytes, sizeof seed->bytes, sizeof key);
    crypto_generichash_update(&hash, (const unsigned char *)&round, sizeof round);
    crypto_generichash_update(&hash, (const unsigned char *)update, count * sizeof *update);
    crypto_generichash_final(&hash, key, sizeof key);
    update_add_noise(update, count, deviation_of(federation), key);
    for (size_t i = 0; i < count; i++) update[i] = fminf(fmaxf(update[i], -most), most);
    sodium_memzero(key, sizeof key);
    return true;
}
