/* What costs say of sites: which device is where, what must not leave, and which tensors would cross if neighbours were
 * of different sites. All of it is one member of costs.json, which costs of one site do not have:
 *
 *     "sites":{"names":["lyon","kyoto"], "devices":[0,0,1], "keep":{"inputs":"lyon"},
 *              "cuts":[{"forward":[TENSOR, ...], "backward":[...]}, ...], "shared":[{"tensor":TENSOR, "layers":[0,7]}]}
 *
 * A TENSOR is {"name":"..", "dtype":"f32", "shape":[2,128,768], "bytes":786432}. */
#ifndef PROFILER_COSTS_SITE_COSTS_H
#define PROFILER_COSTS_SITE_COSTS_H

#include "base/arena.h"
#include "base/dtype.h"
#include "base/json.h"

enum { COSTS_MAX_SITES = 1 << 8 };

/* Of one micro-batch. */
typedef struct CostTensor {
    const char *name;
    DType dtype;
    Shape shape;
    int64_t bytes;
} CostTensor;

/* What crosses the cut after a layer: [0] activations forward, [1] their gradients backward. */
typedef struct CostCut {
    CostTensor *tensors[2];
    int count[2];
} CostCut;

/* A parameter that several layers use: its gradient is the sum over them all, on each device that has one. */
typedef struct CostShared {
    CostTensor tensor;
    int *layers; /* one per use, ascending */
    int layer_count;
} CostShared;

typedef struct SiteCosts {
    const char **names;
    int count;                    /* 0: no sites; the rest is empty then */
    int keep_inputs, keep_labels; /* the site whose devices have the first, or the last, layer; -1: any */
    CostCut *cuts;                /* [layer], the last of them empty */
    CostShared *shared;
    int shared_count;
} SiteCosts;

/* The members of a TENSOR; reading checks that they suit each other. */
bool cost_tensor_read(JsonReader reader, const json_t *object, const char *path, Arena *arena, CostTensor *tensor);
void cost_tensor_add(const CostTensor *tensor, JsonWriter *json);

/* How many layers and devices there are, and the site of each device, which reading fills in. */
typedef struct SitePlaces {
    int layer_count, device_count;
    int *site; /* [device] */
} SitePlaces;

/* Reads the member "sites"; without one, *sites is empty and places->site left alone. */
bool site_costs_read(SiteCosts *sites, JsonReader reader, const json_t *root, const SitePlaces *places, Arena *arena);
/* Adds the member, if there are sites. */
void site_costs_add(const SiteCosts *sites, const SitePlaces *places, JsonWriter *json);

#endif
