/* SHA-256 of files, which every host's sha256sum computes too. */
#ifndef DRIVER_DEPLOY_SHA256_H
#define DRIVER_DEPLOY_SHA256_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diagnostics.h"

/* 64 small hexadecimal digits. */
typedef struct Sha256Text {
    char digits[65];
} Sha256Text;

bool sha256_file(const char *path, Sha256Text *hash, uint64_t *bytes, Diagnostics *diagnostics);
bool sha256_is_text(const char *text);

#endif
