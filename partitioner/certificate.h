/* Certificate: a proof of a lower bound that can be checked without trusting the solver.
 *
 * No plan is better than `bound_ns` because every plan falls into one of the `intervals` by its period and its longest
 * update, and each interval is refuted. An interval - periods in (low, high], updates in (update_low, update_high], ns
 * - is refuted by a binary tree of splits: "is there a cut at p?", "does device d start before p?", "is the plan in the
 * part of the cluster that links not slower than `high` join to region r?"; both answers are followed. Every leaf gives
 * an integer price per device. With the leaf's restrictions, no stage or link above `high` and no update above
 * `update_high`, the shortest chain that covers all layers, where a stage costs its price (and, for the step, its time
 * and the links their latencies and transfers), costs `path`; `total` is the sum of all prices.
 *
 * Period: path > total: more than the whole cluster is needed, no plan has a period <= high. There is one interval, of
 * all updates; its high is bound - 1. That nothing fits at all is the same with a high that no plan exceeds.
 * Step:   path - total + rounds * (low + 1) + (update_low + 1) >= bound; plan.h says what rounds are. The intervals of
 * a range of updates follow each other from the longest stage or link possible down to 0, and so do the ranges.
 *
 * Where one device keeps inputs and labels it has the first stage and the last one, or a single one that holds all
 * layers, which is a plan to look at. Of the others each falls into one of the `branches` by where its first stage ends
 * and how many micro-batches that has in flight; each branch has intervals of its own. In a branch's chains the device
 * has exactly the first and the last stage (its price counts twice in `total`), the last stage has what the least
 * work, update and memory of a first stage of the branch leave, and splits on the device are about its last stage.
 * `path` may be less than the shortest chain costs. */
#ifndef PARTITIONER_CERTIFICATE_H
#define PARTITIONER_CERTIFICATE_H

#include "base/json.h"
#include "partitioner/plan.h"

enum { CERTIFICATE_CUT, CERTIFICATE_DEVICE, CERTIFICATE_REGION };

typedef struct CertificateNode {
    bool leaf;
    /* A split: which question (CERTIFICATE_CUT ...), its device (name), cut or region, and the nodes for yes and no. */
    int kind;
    const char *device;
    int cut, region, yes, no;
    /* A leaf: one price per device of the costs (0 for those left out). */
    int64_t *price;
    int64_t path, total;
} CertificateNode;

typedef struct CertificateInterval {
    int64_t low, high;
    int root;                        /* node */
    int64_t update_low, update_high; /* -1: no update is too short */
} CertificateInterval;

/* Cuts and counts are inclusive. */
typedef struct CertificateBranch {
    int end_low, end_high;         /* cuts at which the first stage ends */
    int flights_low, flights_high; /* micro-batches that it has in flight */
    int interval_count;            /* the next ones of the certificate */
} CertificateBranch;

struct Certificate {
    int64_t bound_ns;
    CertificateBranch *branches; /* by ascending cuts, then counts; none where every device has one stage at most */
    int branch_count;
    CertificateInterval *intervals; /* by descending updates, then periods */
    int interval_count;
    CertificateNode *nodes;
    int node_count;
    int price_count; /* devices */
};

/* The member "certificate" of a plan; null where there is none. */
void certificate_print(const Certificate *certificate, JsonWriter *json);
/* Reads the member of a plan; everything belongs to `arena`. Checks structure: indices, that the nodes form trees. */
bool certificate_read(Certificate *certificate, const json_t *object, Arena *arena, JsonReader reader);

#endif
