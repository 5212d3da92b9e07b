/* What crossed between this site and the others, as its gateway counted it: the file of --audit ("skycc.audit/1").
 *
 *     {"format": "skycc.audit/1", "run": "HASH", "plan": "HASH", "site": "paris",
 *      "starts": 2, "broken_off": 1, "cut_short": 0, "running": false,
 *      "steps": 12, "repeated_steps": 2, "last_step": 10, "microbatches": 48,
 *      "evaluated_batches": 1, "evaluated_microbatches": 4, "longest_evaluation": 1,
 *      "crossed": [{"class": "tensor", "tensor": "...", "kind": "activation", "from_stage": 0, "to_stage": 1,
 *                   "from_site": "paris", "to_site": "oslo", "messages": 52, "bytes": 425984,
 *                   "least_bytes": 8192, "most_bytes": 8192},
 *                  {"class": "loss", "from_site": ..., "messages": ..., ...}, ...]}
 *
 * A file goes on over the starts of a run: nothing that was counted is ever taken away. */
#ifndef RUNTIME_WIRE_AUDIT_H
#define RUNTIME_WIRE_AUDIT_H

#include "base/buffer.h"
#include "base/diagnostics.h"

typedef enum WireClass {
    WIRE_CLASS_TENSOR,     /* of the plan */
    WIRE_CLASS_AGREEMENT,  /* what ranks gather of each other: options, hashes of data and of parts of checkpoints */
    WIRE_CLASS_DECISION,   /* whether to go on, and the value of a metric that is watched */
    WIRE_CLASS_CHECKPOINT, /* which there are, and which files they have */
    WIRE_CLASS_LENGTHS,    /* of the rows of the data, where the plan packs them */
    WIRE_CLASS_NORM,       /* of gradients, a number per parameter; what --lr matches */
    WIRE_CLASS_BARRIER,    /* nothing: the message is what is waited for */
    WIRE_CLASS_STOP,       /* what signals ask for */
    WIRE_CLASS_WARM_UP,    /* zeros, before the first step */
    WIRE_CLASS_LOSS,       /* losses and the results of evaluation */
    WIRE_CLASS_TRACE,      /* --trace */
    WIRE_CLASS_LIVENESS,   /* whether a rank is alive */
    WIRE_CLASS_END,        /* between gateways: that a site is done, or why it ended the run */
    WIRE_CLASS_GREETING,   /* between gateways: frames that begin a connection */
    WIRE_CLASS_ACKNOWLEDGEMENT, /* between gateways: frames that say what has arrived */
    WIRE_CLASS_UNKNOWN,         /* a message that is none of these */
    WIRE_CLASS_COUNT
} WireClass;

const char *wire_class_name(WireClass what);

typedef struct WireCrossing {
    WireClass what;
    const char *tensor, *kind; /* TENSOR: as plan.json has them; else NULL */
    int from_stage, to_stage;  /* TENSOR: -1 where it is not between two stages */
    int tag;                   /* UNKNOWN: of the first that came */
    const char *from_site, *to_site;
    int64_t messages,
        bytes; /* payloads, without the 80 bytes in front of each frame; frames that are sent again count once */
    int64_t least, most; /* bytes of one message */
} WireCrossing;

typedef struct WireAudit {
    Arena arena;
    const char *run, *plan, *site;
    int64_t starts;     /* of the gateway */
    int64_t broken_off; /* of which the ranks did not come to an end together: their last steps may be incomplete */
    int64_t cut_short;  /* of which the end was not written: what crossed after the last writing is not counted */
    bool running;       /* the last one has not ended yet */
    int64_t steps;      /* that were begun, repeated_steps of them again */
    int64_t repeated_steps, last_step;
    int64_t microbatches;                                                  /* of those steps */
    int64_t evaluated_batches, evaluated_microbatches, longest_evaluation; /* the last: batches of one */
    WireCrossing *crossings;
    size_t crossing_count, crossing_capacity;
} WireAudit;

/* On failure (EXIT_BAD_INPUT) *audit is freed. Free it with wire_audit_free. */
bool wire_audit_read(WireAudit *audit, const char *path, Diagnostics *diagnostics);
void wire_audit_print(const WireAudit *audit, Buffer *text);
/* Whole or not at all. */
bool wire_audit_write(const WireAudit *audit, const char *path, Diagnostics *diagnostics);
void wire_audit_free(WireAudit *audit);

/* The crossing of that description, which is added if it is new; texts are kept, not copied. */
WireCrossing *wire_audit_crossing(WireAudit *audit, const WireCrossing *described);
void wire_crossing_count(WireCrossing *crossing, size_t bytes);

#endif
