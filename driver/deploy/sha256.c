#include "driver/deploy/sha256.h"

#include <sodium.h>
#include <string.h>

#include "base/file.h"

bool sha256_file(const char *path, Sha256Text *hash, uint64_t *bytes, Diagnostics *diagnostics)
{
    FREED_WITH(file_unmap) MappedFile file = {0};
    if (!file_map(&file, path, diagnostics)) return false;
    crypto_hash_sha256_state state;
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_init(&state);
    size_t piece = (size_t)1 << 24; /* so that large files need not stay in memory */
    for (size_t at = 0; at < file.size; at += piece) {
        size_t size = file.size - at < piece ? file.size - at : piece;
        crypto_hash_sha256_update(&state, file.bytes + at, size);
        file_forget(&file, at, size);
    }
    crypto_hash_sha256_final(&state, digest);
    sodium_bin2hex(hash->digits, sizeof hash->digits, digest, sizeof digest);
    *bytes = file.size;
    return true;
}

bool sha256_is_text(const char *text) { return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64; }
