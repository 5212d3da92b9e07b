/* ONNX models become graphs.
 *
 * The whole model is checked before anything is given up: every unsupported operator is reported, with its node. Nodes
 * are brought into the canonical forms of graph/ops/operators.h (axes and shapes as attributes, one form for all
 * opsets), and whatever does not depend on inputs or parameters is folded on the way.
 *
 * Which initializers are trained: those of a float type and rank >= 1 from which an output can be reached through
 * operators that pass gradients. Everything else is a constant. FORMATS: "Parameter names", "Ties". */
#ifndef FRONTEND_IMPORT_H
#define FRONTEND_IMPORT_H

#include "frontend/model.h"
#include "graph/graph.h"

typedef struct DimensionBinding {
    const char *name; /* a symbolic dimension, or "INPUT.AXIS" for one without a name */
    int64_t value;
} DimensionBinding;

typedef struct InputShape {
    const char *name; /* of a graph input; NULL: the next one in order, counting these only */
    Shape shape;
    DType dtype;
    const void *data; /* the tensor itself, where it is known, or NULL: used where an operator needs its input to be
                         constant (the shape of a Reshape, say), and nowhere else */
} InputShape;

typedef struct ImportOptions {
    const DimensionBinding *dimensions; /* --dim: these win over the shapes of inputs */
    size_t dimension_count;
    const InputShape *input_shapes; /* shapes of given input tensors, which bind what no --dim bound */
    size_t input_shape_count;
    int64_t default_dimension; /* for what is still unbound, with a warning; 0: unbound dimensions are errors */
    bool keep_ties;            /* initializers shared through Identity nodes stay one parameter, constant-filled too */
    bool untie;         /* every Identity of an initializer is a parameter of its own; equal bytes are not tied */
    bool no_weights;    /* external data may be missing: such parameters have no data */
    bool dropout_off;   /* training-mode Dropout is left out */
    bool dropout_given; /* every Dropout drops `dropout` of its elements, whatever it says itself */
    double dropout;
} ImportOptions;

/* One name under which a parameter appears in outputs and checkpoints. */
typedef struct ImportedParameter {
    const char *name;   /* the initializer's; NAME#1, NAME#2 ... for further parameters split from the same one */
    size_t initializer; /* number in the model's graph */
    int split;          /* 0, or the number behind '#' */
    size_t
        identity;  /* of a split: 1 + the number of the Identity node in the model's graph that passes it on; else 0 */
    ValueId value; /* the graph's parameter. Tied names share it */
    bool tied;     /* another name, earlier in the list, gave the value its name */
    bool transposed;  /* tied, with the two dimensions exchanged: this name's tensor is the transpose of the value */
    const char *file; /* a file with the initial elements at `offset`, `bytes` long, in this name's own shape,
                         row-major, little-endian; NULL: none */
    size_t offset, bytes;
} ImportedParameter;

typedef struct ImportedModel {
    OnnxModel onnx; /* keeps mappings alive that parameters' data points into */
    Arena arena;
    ImportedParameter *parameters; /* in the order of initializers, then of splits */
    size_t parameter_count, parameter_capacity;
    DimensionBinding *dimensions; /* every symbolic dimension with the value it got */
    size_t dimension_count, dimension_capacity;
    int64_t opset; /* of the default domain */
} ImportedModel;

/* Imports `path` ("-": standard input), which must outlive the model, into an initialised graph. On failure the graph
 * holds rubbish; both must be freed in any case, the graph first. */
bool import_onnx(Graph *graph, ImportedModel *model, const char *path, const ImportOptions *options,
                 Diagnostics *diagnostics);
void imported_model_free(ImportedModel *model);

/* Only the names and places of the parameters: of the graph, nothing but they can be used afterwards. Dimensions stay
 * unbound. */
bool import_parameters(Graph *graph, ImportedModel *model, const char *path, const ImportOptions *options,
                       Diagnostics *diagnostics);

/* Whether nodes of this operator can be imported at all. */
bool onnx_operator_supported(const char *domain, const char *op);

#endif
