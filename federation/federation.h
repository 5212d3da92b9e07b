/* federation.yaml: who takes part in a federation, and how it goes.
 *
 *     sites:
 *       - {name: paris, cluster: paris.yaml, key: "PUBLIC KEY", rows_per_step: 32}     # own_options: true
 *     coordinator: {address: "HOST:PORT", key: "PUBLIC KEY"}
 *     rounds: 100                    # meetings
 *     local_steps: 50                # of each site before every meeting; or auto
 *     outer: {optimizer: nesterov, lr: 0.7, momentum: 0.9}    # or sgd, average; adam, yogi: lr, beta1, beta2, eps
 *     aggregate: secure              # or plain
 *     threshold: 3                   # the fewest sites of a sum; at least floor(2 sites / 3) + 1 where it is secure
 *     min_sites: 3                   # a round waits for so many; two thirds of all and one where neither is given
 *     round_timeout: 600s            # a phase of a round waits so long for sites that are missing
 *     drop_after: 1                  # rounds in a row that a site misses before rounds stop waiting for it
 *     sample: 3                      # sites of a round, drawn anew for each; all where it is not given
 *     robust: median                 # or trimmed: taken instead of the mean, with aggregate: plain
 *     proximal: 0.01                 # FedProx: how strongly local steps are drawn to the round's start
 *     control_variates: true         # SCAFFOLD: local steps are corrected by how the site differs from all
 *     deadline: 300s                 # a site that has not made its local_steps by then meets with those that it made
 *     fragments: 4                   # of the model, which meet in turn
 *     overlap: 10                    # steps of the next round that are made while one is met; or all
 *     codec: q8                      # of updates, where aggregate is plain (base/codec.h); none
 *     model_codec: q6                # of the model that sites take: of how it has changed in a round; none
 *     least_change: 0.01             # of the largest change: tiles of a codec with less wait for later rounds; 0
 *     clip_update: 1.5               # the largest norm of an update
 *     dp: {clip: 1, noise: 1.1, delta: 1e-5}
 *     evaluate: {data: FILE, every: 1}        # what the coordinator measures the global model on, every so many rounds
 *     keep_best: accuracy            # the round in which that was best is kept
 *     patience: 5                    # evaluations without a better one that end the federation
 *     keep: 3                        # rounds of the global model on the coordinator's disk
 *     average: 5                     # rounds whose models' mean is written at the end; none
 *     hide_metrics: true             # the coordinator sees neither rows nor losses of a site; dp implies it
 *     default_link: {latency: 50ms, bandwidth: 100Mbit}       # of sites, with each other and with the coordinator; for
 *     links:                                                  # planning alone, as in cluster.yaml
 *       - {between: [paris, coordinator], latency: 5ms, bandwidth: 1Gbit}
 *
 * `coordinator` may have a bandwidth, too: what it gets through in each direction, with all sites together.
 *
 * What `skycc federate` leaves for each site and for the coordinator is the same in one more part, `compiled`. */
#ifndef FEDERATION_FEDERATION_H
#define FEDERATION_FEDERATION_H

#include "base/buffer.h"
#include "base/codec.h"
#include "base/hash.h"
#include "base/link_rate.h"
#include "federation/outer_optimizer.h"

typedef struct FederationSite {
    const char *name;      /* unique; letters, digits, '.', '_' and '-' */
    const char *cluster;   /* a file, relative to federation.yaml; NULL once compiled */
    const char *key;       /* public, unique */
    int64_t rows_per_step; /* 0: as the model and its options have it; once compiled never */
    bool own_options;      /* it may train with other options than the others: --lr, --clip, ... */
    /* By amendments; the rounds are the first ones with it, 0: never. A site that has left keeps its number. */
    int64_t joined, left, rekeyed;
    const char *former_key; /* that `key` replaced in round `rekeyed`, in which it still counts; NULL: none */
} FederationSite;

/* Differential privacy of sites (privacy.h); clip 0: none. */
typedef struct FederationPrivacy {
    double clip, noise, delta;
} FederationPrivacy;

/* What the coordinator takes of updates, element by element: the weighted mean; the median; the mean without the lowest
 * and the highest quarter (Yin et al., "Byzantine-robust distributed learning", ICML 2018). */
typedef enum RobustRule { ROBUST_NONE, ROBUST_MEDIAN, ROBUST_TRIMMED, ROBUST_RULE_COUNT } RobustRule;

enum { ROBUST_FEWEST_SITES = 3 }; /* of two, the median is the mean */

extern const char *const robust_names[ROBUST_RULE_COUNT];

/* What the coordinator alone does with the models of rounds: no part of what all parties agree on. */
typedef struct FederationSteering {
    const char *data; /* of evaluations; NULL: what sites measure on rows of theirs takes their place */
    int64_t every;    /* rounds */
    const char *best; /* the metric of keep_best; NULL: none is kept */
    int64_t patience; /* evaluations; 0: without end */
    int64_t keep;     /* rounds */
    int64_t average;  /* the last rounds, whose models' mean is written at the end; 0: none; at most `keep` */
} FederationSteering;

typedef struct FederationCompiled {
    Hash identity;          /* of the federation: model, trained parameters, sites, rules */
    int site;               /* whose file this is; -1: the coordinator's */
    const char *model_hash; /* as in checkpoints */
    int64_t optimizer;      /* SkyOptimizerKind of the inner steps */
    int64_t states;         /* tensors that it keeps for each parameter */
    const char *low_rank;   /* --lora; "" without */
    const char *recipe;     /* SkyProgram.recipe_hash and .weights_hash of every site's programs; NULL: not known */
    const char *why_steps;  /* what local_steps: auto was decided by; NULL: a person gave them */
    const char *owner;      /* who may amend it: a public key of Ed25519, hexadecimal; NULL: nobody */
    int64_t amended;        /* amendments that are in it */
    Hash follows; /* the identity of the federation whose model this one goes on with; zero: it begins with a new one */
} FederationCompiled;

typedef struct Federation {
    Arena arena;
    int site_count;
    FederationSite *sites;
    const char *address, *key; /* of the coordinator */
    double coordinator_Bps;    /* what it gets through in each direction; 0: not given */
    int64_t rounds;
    int64_t local_steps; /* FEDERATION_STEPS_AUTO until it is decided */
    OuterRule outer;
    bool secure, hide_metrics;
    int least; /* sites of a sum: the greater of threshold and min_sites */
    double round_timeout_s;
    int64_t drop_after; /* missed rounds after which rounds do not wait for a site; 0: never */
    double deadline_s;  /* after which a site meets with the steps that it has made; 0: it makes all */
    int64_t overlap;    /* steps that a site makes while a round is met; FEDERATION_OVERLAP_ALL until it is known; 0 */
    int64_t fragments;
    Codec codec;         /* of updates; CODEC_NONE where they are secure */
    Codec model_codec;   /* of the model's change in a round (coded_model.h) */
    double least_change; /* of both (coded_row.h); 0: none waits */
    size_t update_piece; /* values of an update in a message; 0: as many as update_pieces.h says */
    double clip_update;  /* 0: none */
    FederationPrivacy privacy;
    int sample; /* sites of a round; 0: all */
    RobustRule robust;
    double proximal;       /* 0: none */
    bool control_variates; /* SCAFFOLD's (member/control_variates.h) */
    FederationSteering steering;
    LinkRate *rates; /* [site_count + 1][site_count + 1], the coordinator last; NULL: no link is given */
    FederationCompiled compiled;
} Federation;

enum { FEDERATION_STEPS_AUTO = -1, FEDERATION_OVERLAP_ALL = -1, FEDERATION_KEEP = 3 /* rounds, unless said */ };

/* What a command line says instead of the file; 0 and false: nothing. */
typedef struct FederationWishes {
    int64_t rounds, local_steps; /* FEDERATION_STEPS_AUTO: auto */
    int64_t overlap;             /* FEDERATION_OVERLAP_ALL: all */
    double clip_update;
    FederationPrivacy privacy;
    bool hide_metrics;
} FederationWishes;

/* Reads what a person wrote, and what the command line (NULL: nothing) has instead of it. Every error that can be found
 * is reported, with line and column. On failure *federation is freed. */
bool federation_read(Federation *federation, const char *path, const FederationWishes *wishes,
                     Diagnostics *diagnostics);
/* Reads what federation_print wrote. */
bool federation_read_compiled(Federation *federation, const char *path, Diagnostics *diagnostics);
void federation_free(Federation *federation);

/* The file for a site, or the coordinator (compiled.site). The same federation gives the same text. */
void federation_print(const Federation *federation, Buffer *text);
/* Of everything that all parties must agree on: the rules, the sites, and what `extend` hashes of the model. */
Hash federation_hash(const Federation *federation, Hash model);
/* The overlap, once local_steps are known: all of them, or as many as there are at most. */
bool federation_settle_overlap(Federation *federation, Diagnostics *diagnostics);
/* What joins two sites, or a site and the coordinator (number site_count); NULL: nothing that is given. */
const LinkRate *federation_link(const Federation *federation, int from, int to);
/* In both directions; keeps whether both share the bandwidth if a link of these two was given. */
void federation_set_link(Federation *federation, int from, int to, LinkRate rate);
/* That every site has one with the coordinator; `what` needs them. */
bool federation_check_links(const Federation *federation, const char *path, const char *what, Diagnostics *diagnostics);
/* federation_links.c: reads `default_link` and `links` (NULL: absent), once the sites are known. */
bool federation_read_links(Federation *federation, const YamlFile *yaml, YamlNode *default_link, YamlNode *links);
/* Sites that have not left. */
int federation_present(const Federation *federation);
/* -1: there is none of that name. */
int federation_find_site(const Federation *federation, const char *name);

#endif
