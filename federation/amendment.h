/* Amendments: small changes to a federation that runs, signed by its owner. Sites leave, get another key, or join.
 *
 * The owner has a key pair of Ed25519, whose public half is in every federation.yaml that `skycc federate` makes. An
 * amendment is YAML, and its last line signs all bytes before it:
 *
 *     amendment: 1                   # one more than those that were taken before
 *     federation: "IDENTITY"
 *     from_round: 5                  # the first round with it
 *     remove: ["kyoto"]
 *     keys: [{name: "oslo", key: "PUBLIC KEY"}]
 *     add: [{name: "accra", key: "PUBLIC KEY", rows_per_step: 4}]
 *     signature: "128 HEXADECIMAL DIGITS"
 *
 * What a person writes has neither of the first two members nor the last, and a cluster for each site that is added.
 *
 * Sites keep their numbers, and those that join come last. A former key counts in the round in which the new one
 * begins, and not after it. With secure sums, who can add a key can learn what a sum hides: a site takes new keys only
 * where the amendment also lies in its own folder, put there by whoever runs the site. */
#ifndef FEDERATION_AMENDMENT_H
#define FEDERATION_AMENDMENT_H

#include "federation/federation.h"

enum { OWNER_PUBLIC_TEXT = 64, OWNER_SECRET_TEXT = 64, AMENDMENT_MOST_BYTES = 1 << 17 };

typedef enum ChangeKind { CHANGE_REMOVE, CHANGE_KEY, CHANGE_ADD, CHANGE_KINDS } ChangeKind;

typedef struct AmendmentChange {
    ChangeKind kind;
    FederationSite site; /* as far as it matters */
} AmendmentChange;

typedef struct Amendment {
    Arena arena;
    int64_t number;        /* 0: not signed */
    Hash federation;       /* identity */
    int64_t from_round;    /* 0: not said */
    const char *directory; /* of the federation, as a person said; NULL */
    size_t count, capacity;
    AmendmentChange *changes; /* malloc'ed */
} Amendment;

/* ---- Keys ---- */

/* Draws the owner's pair; texts in hexadecimal. */
void owner_key_draw(char secret[static OWNER_SECRET_TEXT + 1], char public_key[static OWNER_PUBLIC_TEXT + 1]);
/* Reads the file of the secret key, whose public half must be the federation's owner. */
bool owner_key_read(char secret[static OWNER_SECRET_TEXT + 1], const char *path, const Federation *federation,
                    Diagnostics *diagnostics);

/* ---- Reading and writing ---- */

/* Reads what a person wrote. Free it in any case. */
bool amendment_read(Amendment *amendment, const char *path, Diagnostics *diagnostics);
/* Reads a signed text, which messages call `name`; the signature must be the owner's, the federation this one, and the
 * number the next. Free it in any case. */
bool amendment_open(Amendment *amendment, const Federation *federation, const char *name, const char *text, size_t size,
                    Diagnostics *diagnostics);
/* The same from the file of the next amendment. False without an error: there is none, nor a later one. */
bool amendment_open_file(Amendment *amendment, const Federation *federation, const char *path,
                         Diagnostics *diagnostics);
/* Appends the signed text. */
void amendment_print(const Amendment *amendment, const char *secret, Buffer *text);
void amendment_free(Amendment *amendment);

/* DIRECTORY/amendments/NUMBER.yaml in the arena. */
const char *amendment_path(Arena *arena, const char *directory, int64_t number);

/* ---- Taking ---- */

/* Whether it has keys that sites do not know. */
bool amendment_has_new_keys(const Amendment *amendment);
/* Changes the federation, which must not point into the amendment. Errors, each with the site's name, and nothing is
 * changed: a site that is not there or has left, a name or key that was there before, fewer sites than min_sites or
 * secure sums need, more than there may be. `place` is for messages. */
bool federation_amend(Federation *federation, const Amendment *amendment, const char *place, Diagnostics *diagnostics);
/* One line: "removes 'kyoto', gives 'oslo' a new key". */
void amendment_describe(const Amendment *amendment, Buffer *text);
/* Replaces federation.yaml in the directory. */
bool federation_write(const Federation *federation, const char *directory, Diagnostics *diagnostics);

#endif
