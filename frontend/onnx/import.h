/* ONNX models become graphs.
 *
 * The import checks the whole model and reports every unsupported operator with its node. It brings nodes into the
 * canonical forms of graph/opcodes.h (axes and shapes as attributes, one form for all opsets) and folds everything that
 * depends on neither inputs nor parameters.
 *
 * An initializer can be trained if it is of a float type and reaches an output through operators that pass gradients;
 * its uses decide (graph/analysis/choose_trained.h). Everything else is a constant. Initializers that hold the same
 * numbers, also transposed, are one parameter with several names (ties), unless the exporter tells them apart. One
 * whose elements are all equal becomes one parameter per use (splits, frontend/onnx/initializer_uses.h), because
 * exporters merge tensors that only start equal; so does one that layers read which are copies of one. */
#ifndef FRONTEND_ONNX_IMPORT_H
#define FRONTEND_ONNX_IMPORT_H

#include "frontend/onnx/model.h"
#include "graph/graph.h"
#include "graph/passes/fold.h"

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

/* --freeze GLOB and --train GLOB: over names and aliases of parameters. */
typedef struct TrainingRule {
    const char *glob;
    bool train;
} TrainingRule;

typedef struct ImportOptions {
    const DimensionBinding *dimensions; /* --dim: these win over the shapes of inputs */
    size_t dimension_count;
    const InputShape *input_shapes; /* shapes of given input tensors, which bind what no --dim bound */
    size_t input_shape_count;
    int64_t batch_rows;   /* what the batch dimension is bound to, whatever else binds it; 0: it is as others are */
    int64_t unbound_rows; /* the same where nothing else binds it */
    int64_t default_dimension; /* for what is still unbound, with a warning; 0: unbound dimensions are errors */
    const TrainingRule *rules; /* in the order given: the last one that matches a name wins */
    size_t rule_count;
    bool adapters;    /* --lora: freezes what no rule names, except heads, which PEFT trains in addition to adapters */
    bool keep_ties;   /* initializers that several nodes read stay one parameter, constant-filled ones too */
    bool untie;       /* every use of an initializer is a parameter of its own; equal bytes are not tied */
    bool no_weights;  /* external data may be missing: such parameters have no data */
    bool dropout_off; /* training-mode Dropout is left out */
    bool dropout_given; /* every Dropout drops `dropout` of its elements, whatever it says itself */
    double dropout;
} ImportOptions;

/* How an initializer consists of copies of the vectors of a parameter. */
typedef struct ParameterCopies {
    Shape shape;    /* of the initializer */
    int axis;       /* along which its vectors lie */
    bool expands;   /* only rows of the batch are equal: the parameter has one of them, [1, ...] */
    int64_t *index; /* [elements of the other axes]: the parameter's row, if that is seen as [rows, width] */
} ParameterCopies;

/* Writes the initializer's elements, of `size` bytes each, from the parameter's. */
void parameter_copies_expand(const ParameterCopies *copies, size_t size, const void *rows, void *elements);

/* One name under which a parameter appears in outputs and checkpoints. */
typedef struct ImportedParameter {
    const char *name;   /* the initializer's; NAME#1, NAME#2 ... for further parameters split from the same one */
    size_t initializer; /* number in the model's graph */
    int split;          /* 0, or the number after '#' */
    /* Of a split: 1 + the number of the node in the model's graph that reads it first, and by which input; 0: it stands
     * in the body of a function. */
    size_t node, input;
    const char *leader;   /* of a split: the name it has without --untie, perhaps its own */
    const char *alias;    /* what its place in the model is called, where that says more than the name; else NULL */
    ValueId value;        /* the graph's parameter. Tied names share it */
    bool merged;          /* other parameters were split from the same initializer */
    bool constant;        /* of a split: a buffer or a literal that the exporter merged with a parameter */
    bool trained, frozen; /* frozen: by --freeze or --lora; else trained */
    const char *why;      /* a phrase that says why it is trained or not */
    bool doubtful;        /* it is trained though nothing says that it is no buffer, or not, for its numbers alone */
    bool tied;            /* another name, earlier in the list, gave the value its name */
    bool transposed; /* tied, with the two dimensions exchanged: this name's tensor is the transpose of the value */
    const ParameterCopies *copies; /* this name's tensor repeats vectors of the value, or lacks some; else NULL */
    bool one_plus;                 /* this name's tensor is 1 + the value, which exporters fold of some norms */
    const char *file; /* a file with the initial elements at `offset`, `bytes` long, in this name's own shape,
                         row-major, little-endian; NULL: none */
    size_t offset, bytes;
} ImportedParameter;

/* A float initializer that is not trained. */
typedef struct UntrainedTensor {
    const char *name, *why;
} UntrainedTensor;

/* A row of the table that looking it up gives no gradient in PyTorch (padding_idx). */
typedef struct PaddingRow {
    ValueId table;
    int64_t row;  /* -1: nothing tells whether there is one */
    bool guessed; /* it is the only row of zeros, as PyTorch makes it */
} PaddingRow;

typedef struct ImportedModel {
    OnnxModel onnx; /* keeps mappings alive that parameters' data points into */
    Arena arena;
    ImportedParameter *parameters; /* in the order of initializers, then of splits */
    size_t parameter_count, parameter_capacity;
    UntrainedTensor *untrained; /* frozen parameters too */
    size_t untrained_count, untrained_capacity;
    PaddingRow *padding_rows; /* of tables in which the model looks up what its inputs say */
    size_t padding_count, padding_capacity;
    DimensionBinding *dimensions; /* every symbolic dimension with the value it got */
    size_t dimension_count, dimension_capacity;
    const char *batch_dimension; /* the symbolic first dimension of the first input, among these; NULL: it is fixed */
    int64_t batch_size;          /* what --dim, or what else binds it, says of that dimension; -1: nothing does */
    int64_t opset;               /* of the default domain */
    bool torchscript;            /* PyTorch's exporter that says neither what is a buffer nor which rows are padding */
    Folding folding;             /* of the graph so far: passes on it go on from there */
} ImportedModel;

/* Imports `path` ("-": standard input), which must outlive the model, into an initialised graph. On failure the graph
 * is invalid; both must be freed in any case, the graph first. */
bool import_onnx(Graph *graph, ImportedModel *model, const char *path, const ImportOptions *options,
                 Diagnostics *diagnostics);
void imported_model_free(ImportedModel *model);

/* Imports only the parameters: their names, and where their elements lie. Dimensions stay unbound and nodes are left
 * out, so the graph has no other use. */
bool import_parameters(Graph *graph, ImportedModel *model, const char *path, const ImportOptions *options,
                       Diagnostics *diagnostics);

/* Whether skycc can import nodes of this operator. */
bool onnx_operator_supported(const char *domain, const char *op);

#endif
