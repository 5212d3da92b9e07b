/* site.json: what a site's gateway knows of a run, written by `skycc compile` next to the site's programs.
 *
 *     {"format": "skycc.site/1", "run": "HASH", "site": "paris",
 *      "sites": [{"name": "paris", "address": "HOST:PORT", "key": "..."},
 *                {"name": "oslo", "address": null, "key": ...}],
 *      "rank_sites": [0, 0, 1], "largest_message_bytes": 65536,
 *      "plan": "HASH",
 *      "tensors": [{"tensor": "...", "kind": "activation", "from_stage": 1, "to_stage": 2, "from": 1, "to": 2,
 *                   "tag": 12, "tags": 4}, ...]}
 *
 * `plan` and `tensors` are for the audit: which messages are the tensors that the plan lists. They may be missing. */
#ifndef RUNTIME_WIRE_SITE_FILE_H
#define RUNTIME_WIRE_SITE_FILE_H

#include "base/hash.h"
#include "runtime/wire/keys.h"

enum { WIRE_MOST_SITES = 256, WIRE_MOST_RANKS = 1 << 14 };
/* A message of any size up to this is passed on whatever site.json says: what ranks agree on besides the tensors. */
enum { WIRE_LEAST_LIMIT = 4 << 20 };
#define WIRE_MOST_LIMIT INT32_MAX

typedef struct WireSite {
    const char *name;
    const char *address; /* HOST:PORT; NULL: it only connects outward */
    char key[WIRE_KEY_TEXT + 1];
} WireSite;

/* Messages from rank `from` to rank `to` with tags first_tag ... first_tag + tag_count - 1 are this tensor of the plan.
 * */
typedef struct WireTensor {
    const char *name, *kind;  /* as plan.json has them */
    int from_stage, to_stage; /* -1: not between two stages */
    int from, to;
    int first_tag, tag_count;
} WireTensor;

typedef struct WireSiteFile {
    Arena arena;
    Hash run; /* of the text that all sites of one compilation have in common */
    int site; /* the one whose file this is */
    int site_count, rank_count;
    const WireSite *sites;
    const int *rank_sites;
    int64_t largest_message_bytes; /* WIRE_LEAST_LIMIT ... WIRE_MOST_LIMIT */
    const char *plan;              /* the hash of its text; NULL: the file has no `tensors` either */
    const WireTensor *tensors;
    size_t tensor_count;
} WireSiteFile;

/* On failure (EXIT_BAD_INPUT) *file is freed. Free it with wire_site_file_free. */
bool wire_site_file_read(WireSiteFile *file, const char *path, Diagnostics *diagnostics);
void wire_site_file_free(WireSiteFile *file);

/* Which of two sites listens for the other: the one with an address, of two the earlier. */
bool wire_listens(const WireSiteFile *file, int site, int peer);
/* Whether any other site connects to this one. */
bool wire_is_connected_to(const WireSiteFile *file, int site);

#endif
