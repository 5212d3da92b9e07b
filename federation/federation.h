/* federation.yaml: who takes part in a federation, and how it goes.
 *
 *     sites:
 *       - {name: paris, cluster: paris.yaml, key: "PUBLIC KEY", rows_per_step: 32}
 *     coordinator: {address: "HOST:PORT", key: "PUBLIC KEY"}
 *     rounds: 100                    # meetings
 *     local_steps: 50                # of each site before every meeting
 *     outer: {optimizer: nesterov, lr: 0.7, momentum: 0.9}    # or sgd, average
 *     aggregate: secure              # or plain
 *     threshold: 3                   # the fewest sites of a sum; at least floor(2 sites / 3) + 1 where it is secure
 *     min_sites: 3                   # a round waits for so many
 *     round_timeout: 600s            # a phase of a round waits so long for sites that are missing
 *     fragments: 4                   # of the model, which meet in turn
 *     codec: none
 *     clip_update: 1.5               # the largest norm of an update
 *     dp: {clip: 1, noise: 1.1, delta: 1e-5}
 *     hide_metrics: true             # the coordinator sees neither rows nor losses of a site
 *
 * What `skycc federate` leaves for each site and for the coordinator is the same in one more part, `compiled`. */
#ifndef FEDERATION_FEDERATION_H
#define FEDERATION_FEDERATION_H

#include "base/buffer.h"
#include "base/hash.h"
#include "base/yaml.h"
#include "federation/outer/outer_optimizer.h"

enum { FEDERATION_KEY = 40 /* characters of a public key, in Z85 (https://rfc.zeromq.org/spec/32) */ };

typedef struct FederationSite {
    const char *name;      /* unique; letters, digits, '.', '_' and '-' */
    const char *cluster;   /* a file, relative to federation.yaml; NULL once compiled */
    const char *key;       /* public, unique */
    int64_t rows_per_step; /* 0: as the model and its options have it; once compiled never */
} FederationSite;

/* Differential privacy of sites (outer/privacy.h); clip 0: none. */
typedef struct FederationPrivacy {
    double clip, noise, delta;
} FederationPrivacy;

typedef struct FederationCompiled {
    Hash identity;          /* of the federation: model, trained parameters, sites, rules */
    int site;               /* whose file this is; -1: the coordinator's */
    const char *model_hash; /* as in checkpoints */
    int64_t optimizer;      /* SkyOptimizerKind of the inner steps */
    int64_t states;         /* tensors that it keeps for each parameter */
    const char *low_rank;   /* --lora; "" without */
} FederationCompiled;

typedef struct Federation {
    Arena arena;
    int site_count;
    FederationSite *sites;
    const char *address, *key; /* of the coordinator */
    int64_t rounds, local_steps;
    OuterRule outer;
    bool secure, hide_metrics;
    int least; /* sites of a sum: the greater of threshold and min_sites */
    double round_timeout_s;
    int64_t fragments;
    double clip_update; /* 0: none */
    FederationPrivacy privacy;
    FederationCompiled compiled;
} Federation;

/* Reads what a person wrote. Every error that can be found is reported, with line and column. On failure *federation is
 * freed. */
bool federation_read(Federation *federation, const char *path, Diagnostics *diagnostics);
/* Reads what federation_print wrote. */
bool federation_read_compiled(Federation *federation, const char *path, Diagnostics *diagnostics);
void federation_free(Federation *federation);

/* The file for a site, or the coordinator (compiled.site). The same federation gives the same text. */
void federation_print(const Federation *federation, Buffer *text);
/* Of everything that all parties must agree on: the rules, the sites, and what `extend` hashes of the model. */
Hash federation_hash(const Federation *federation, Hash model);
/* -1: there is none of that name. */
int federation_find_site(const Federation *federation, const char *name);

#endif
