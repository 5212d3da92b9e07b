/* What a plan costs, straight from the costs: the checker's own reading of the rules, shared by its two halves
 * (verify.c: the plan's numbers, verify_proof.c: the bound) and with nothing else. Exact integers: ns, bytes. */
#ifndef PARTITIONER_VERIFY_VERIFY_RULES_H
#define PARTITIONER_VERIFY_VERIFY_RULES_H

#include "partitioner/plan.h"

typedef struct Rules {
    const Plan *plan;
    const Costs *costs;
    Diagnostics *diagnostics;
    Arena arena;
    int layers, devices, regions;
    unsigned codecs;          /* that links may use */
    int usable;               /* devices that are not left out: how many stages a chain may have */
    bool *left_out;           /* [device] */
    int *pinned;              /* [layer]: the only device, or -1 */
    int64_t **work, **update; /* [device][cut] prefix sums */
} Rules;

/* What a stage needs, layer by layer, each a neighbour of those before. */
typedef struct StageMemory {
    __int128 fixed, stash, kept;
    int64_t scratch;
    int lowest, layers; /* which have been added */
} StageMemory;

/* False after reporting what of the plan does not go with the costs. Free in any case. */
bool rules_create(Rules *rules, const Plan *plan, const Costs *costs, Diagnostics *diagnostics);
void rules_free(Rules *rules);
/* Reports EXIT_BAD_INPUT about a member of the plan; returns false. */
bool rules_refuse(Rules *rules, const char *object, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Times of the costs in the plan's unit, rounded up. */
int64_t rules_ns(double seconds);

/* Whether pins, and the sites that keep inputs and labels, let the device have the layer. */
bool rules_allow(const Rules *rules, int layer, int device);
/* The device that keeps inputs and labels, and so has the first stage and the last; -1: none. */
int rules_keeper(const Rules *rules);
int rules_in_flight(const Rules *rules, int to_end);
void rules_add_layer(const Rules *rules, StageMemory *memory, int layer);
int64_t rules_bytes(const Rules *rules, const StageMemory *memory, int start, int end, int flights, bool recompute);
/* The least memory that a plan may give the stage. */
int64_t rules_least_bytes(const Rules *rules, const StageMemory *memory, int start, int end, int flights);

/* What the micro-batches after the first add to a step, on average over the sampled steps, if each takes `period`. */
int64_t rules_rounds(const Rules *rules, int64_t period);
/* What takes `expected` with as many lines as micro-batches have on average, with all of them. */
int64_t rules_whole(const Rules *rules, int64_t expected);

int rules_region(const Rules *rules, int device);
/* Over the cut, between regions, in one direction, whatever the codec makes of what crosses. */
int64_t rules_bytes_over(const Rules *r, int64_t bytes, int from, int to); /* ns that they take from region to region */
int64_t rules_transfer(const Rules *rules, int cut, int direction, Codec codec, int from, int to);
/* What crosses the cut encoded, or decoded, by the slowest device of the region. */
int64_t rules_coding(const Rules *rules, int cut, int direction, Codec codec, int region, int decodes);
int64_t rules_latency(const Rules *rules, int from, int to);
bool rules_half_duplex(const Rules *rules, int from, int to);

/* The link from region a to b with the codecs, of those that the plan may use, that cost the objective least. */
typedef struct RulesLink {
    int64_t period, sum;
    Codec codecs[2]; /* forward, backward */
} RulesLink;
RulesLink rules_link(const Rules *rules, int cut, int a, int b);
int64_t rules_link_period(const Rules *rules, int cut, int a, int b);
int64_t rules_link_sum(const Rules *rules, int cut, int a, int b);

/* Checks the certificate. *leaves counts its leaves. */
bool verify_proof(Rules *rules, int *leaves);

#endif
