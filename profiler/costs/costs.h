/* Costs: what the profiler writes and the partitioner reads (costs.json, format "skycc.costs/1").
 *
 * A model is a chain of layers, a cluster a set of devices, possibly in regions joined by links. Times are seconds for
 * one micro-batch, sizes bytes. Everything belongs to the Costs' arena. */
#ifndef PROFILER_COSTS_COSTS_H
#define PROFILER_COSTS_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/codec.h"
#include "base/diagnostics.h"
#include "base/hash.h"
#include "profiler/costs/batch_choice.h"
#include "profiler/costs/row_samples.h"
#include "profiler/costs/site_costs.h"

enum {
    COSTS_MAX_LAYERS = 1 << 16,
    COSTS_MAX_DEVICES = 1 << 14,
    COSTS_MAX_REGIONS = 1 << 10,
    COSTS_MAX_MICROBATCHES = 1 << 20
};

/* A raw input or label of the model, as a layer reads it. */
typedef struct CostInput {
    const char *name;
    int64_t bytes; /* of a micro-batch */
} CostInput;

typedef struct LayerCost {
    const char *name;
    /* On the reference device. */
    double forward_s, backward_s;
    double update_s; /* of the optimiser, once per step */
    /* The part of backward_s that only the layer's own parameters need, which a split backward may put off; 0 for all
     * layers: not known, and taken for half of it. */
    double weight_gradient_s;
    /* Memory is either all in one, whatever the schedule (`resident`: memory_bytes, the parts being 0), or in the parts
     * that follow (memory_bytes being 0). */
    bool resident;
    int64_t memory_bytes;
    int64_t state_bytes;  /* weights, gradients and optimiser state */
    int64_t stash_bytes;  /* kept by each micro-batch between its forward and its backward, the layer's input included
                              where backward reads it */
    int64_t shared_bytes; /* of the stash of this layer and the next together: what a stage that has both does not keep,
                              as the tensor between them is there once and its gradient is scratch. At most the stash of
                              either, so that a longer stage never keeps less */
    int64_t scratch_bytes;  /* working memory that the layers of a stage share */
    int64_t gradient_bytes; /* of all gradients of its parameters, which replicas sum; 0: not known, or none */
    /* Of these its largest table: a micro-batch reads so many of its rows at most, and replicas sum those that
     * occur. */
    int64_t table_rows, table_row_bytes, table_reads;
    int64_t summed_bytes; /* what summing the gradients counts; replica_costs sets it, no file holds it */
    int64_t kept_bytes;   /* kept by each micro-batch where the stash is made again: inputs, outputs, not boundaries */
    int64_t split_bytes;  /* kept in addition to the stash where backward is split: gradients the put-off part reads */
    int64_t output_bytes; /* crosses the cut after this layer, forward */
    int64_t output_backward_bytes; /* comes back over it; 0: as many */
    int64_t wire_bytes[2]
                      [CODEC_COUNT]; /* what codecs make of both; 0: not known, and taken for what they make of float32
                                           rows of whole tiles */
    const char *output;              /* the name of that tensor; NULL: not known */
    CostInput *inputs;               /* raw inputs and labels that the layer reads */
    int input_count;
} LayerCost;

#define COSTS_NO_LIMIT INT64_MAX
#define COSTS_MOST_PROCESS_BYTES ((int64_t)1 << 40)

typedef struct DeviceCost {
    const char *name;
    double slowdown;      /* multiplies the reference device's times */
    int64_t memory_bytes; /* the limit of what its stages take; COSTS_NO_LIMIT if none */
    /* What a rank's process takes there in addition to its stages, at most: the program, MPI, threads; 0: not known. */
    int64_t process_bytes;
    int region;   /* index into region_names; -1: none */
    int host;     /* number of the machine that it shares with other devices; where Costs.processors is 0: nothing */
    double cores; /* of it that are busy while the device works: its threads, less where a slowdown is emulated */
    int site;     /* index into sites.names; where there are none it says nothing */
    /* The device's own measured times, one per layer; NULL: slowdown times the reference's. */
    double *forward_s, *backward_s, *update_s;
    double sum_s; /* a byte of a layer's gradients, to sum them with other replicas, at least; no file holds it */
    double coding_s[CODEC_COUNT]
                   [2]; /* a byte of what is coded, encoding and decoding; 0: slowdown times the reference's */
} DeviceCost;

typedef struct Costs {
    Arena arena;
    const char *name;
    const char *model_hash;  /* 32 hexadecimal digits, or "" if the model is unknown */
    int microbatches;        /* of a step, at most */
    RowSamples rows;         /* how many steps really have, where that depends on their rows */
    BatchChoice batch;       /* how their number was chosen */
    int64_t microbatch_rows; /* of rows of one length; 0: not known. Not in the hash: no time depends on it */
    bool unmeasured;         /* of model_costs: there is a profile, but it lacks calls of this model; not in files */
    bool lines_vary;         /* of model_costs: the last micro-batch of a step may have fewer lines; not in files */
    bool tokens_vary;        /* likewise: and the last line of any fewer tokens */
    LayerCost *layers;
    int layer_count;
    DeviceCost *devices;
    int device_count;
    /* [region_count][region_count], row: from, column: to; the diagonal is the inside of a region. region_count is 0
     * where communication is free. */
    const char **region_names;
    int region_count;
    double *latency_s, *bandwidth_Bps;
    bool *half_duplex;               /* both directions share the bandwidth; NULL: nowhere */
    double coding_s[CODEC_COUNT][2]; /* on the reference device, per byte of what is coded: encoding, decoding */
    unsigned codecs; /* what links may use (base/codec.h); 0: lossless. Whoever plans asks for it, no file holds it */
    /* Names of devices that raw inputs or labels must not leave: they own the first, or the last, layer. NULL: free. */
    const char *keep_inputs, *keep_labels;
    SiteCosts sites;
    int processors; /* of every host, whose devices may work at once as far as these go; 0: not known, or enough */
    int64_t
        norm_bytes; /* that ranks exchange before every update to agree on the norm of the gradient; 0: they do not */
} Costs;

/* Seconds of a layer on a device: its own time, or slowdown times the reference's. */
double costs_forward_s(const Costs *costs, int device, int layer);
double costs_backward_s(const Costs *costs, int device, int layer);
double costs_update_s(const Costs *costs, int device, int layer);
/* Seconds that summing a layer's gradients with those of other replicas takes, before the update. */
double costs_sum_s(const Costs *costs, int device, int layer);
/* Rows of a step of so many micro-batches; 0: not known. */
int64_t costs_step_rows(const Costs *costs, int microbatches);
/* What crosses the cut after the layer in a direction (0 forward, 1 backward), and what a codec makes of it. */
int64_t costs_output_bytes(const LayerCost *layer, int direction);
int64_t costs_wire_bytes(const LayerCost *layer, int direction, Codec codec);
/* The most that codecs which links may use keep of both directions, and what aligning that may take. */
int64_t costs_coded_bytes(const Costs *costs, const LayerCost *layer);
/* Seconds that coding what crosses the cut after the layer takes the slowest device of a region (any: region -1);
 * decodes: 0 encoding, 1 decoding. */
double costs_coding_s(const Costs *costs, int region, const LayerCost *layer, int direction, Codec codec, int decodes);

/* Reads and checks a costs.json ("-": standard input). On failure reports and leaves *costs freed. */
bool costs_read(Costs *costs, const char *path, Diagnostics *diagnostics);
/* Checks what a producer in memory filled in: counts, finite non-negative numbers, regions, unique device names. `path`
 * is named in the messages; costs_read calls this itself. */
bool costs_check(const Costs *costs, const char *path, Diagnostics *diagnostics);
/* The deterministic text of costs.json: the same costs give the same bytes. */
void costs_print(const Costs *costs, Buffer *buffer);
/* The hash of that text: the identity that plan.json records. */
Hash costs_hash(const Costs *costs);
int costs_find_device(const Costs *costs, const char *name); /* -1 if absent */
/* Whether one of the layers first ... last reads the input. What only the last of all layers reads is a label. */
bool costs_read_input(const Costs *costs, int first, int last, const char *input);
/* Whether a device may have the first layer, or the last: a site may keep inputs or labels. */
bool costs_may_begin(const Costs *costs, int device);
bool costs_may_end(const Costs *costs, int device);
/* The name of a device's site; NULL: there are no sites. */
const char *costs_site_of(const Costs *costs, const char *device);
/* The device that keeps both inputs and labels, and so has the first stage and the last one; NULL: there is none. */
const char *costs_keeper(const Costs *costs);
void costs_free(Costs *costs);

#endif
