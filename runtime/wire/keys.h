/* Key pairs of sites: Curve25519, as CurveZMQ uses them (https://rfc.zeromq.org/spec/26), written in Z85
 * (https://rfc.zeromq.org/spec/32): 40 printable characters for 32 bytes. NAME.pub holds the public key in one line,
 * NAME.key, which only its owner may read, the secret one. */
#ifndef RUNTIME_WIRE_KEYS_H
#define RUNTIME_WIRE_KEYS_H

#include "base/diagnostics.h"

enum { WIRE_KEY_TEXT = 40 };

typedef struct WireKeys {
    char public_key[WIRE_KEY_TEXT + 1], secret_key[WIRE_KEY_TEXT + 1];
} WireKeys;

/* Makes a pair and writes NAME.key and NAME.pub, neither of which may exist: nobody loses a key. On failure neither is
 * left (EXIT_BAD_INPUT). */
bool wire_keys_write(WireKeys *keys, const char *name, Diagnostics *diagnostics);
/* Reads a NAME.key, which nobody but its owner may be allowed to read; the public key follows from it. */
bool wire_keys_read(WireKeys *keys, const char *path, Diagnostics *diagnostics);
/* Overwrites what is secret. */
void wire_keys_forget(WireKeys *keys);

/* Whether `text` may be a public key: 40 characters of Z85 that say 32 bytes. */
bool wire_key_is_valid(const char *text);

#endif
