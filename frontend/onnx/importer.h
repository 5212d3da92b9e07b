/* Internal to the importer: the state that its parts share during an import. */
#ifndef FRONTEND_ONNX_IMPORTER_H
#define FRONTEND_ONNX_IMPORTER_H

#include "base/string_map.h"
#include "frontend/onnx/import.h"
#include "base/arena.h"
#include "onnx/onnx.pb-c.h"
#include "frontend/onnx/model.h"
#include "graph/analysis/choose_trained.h"

typedef enum SymbolKind { SYMBOL_INPUT, SYMBOL_INITIALIZER, SYMBOL_NODE } SymbolKind;

/* A name of the ONNX graph. */
typedef struct Symbol {
    const char *name;
    SymbolKind kind;
    uint32_t index;          /* of the input, initializer or node in the ONNX graph */
    ValueId value;           /* 0: not made yet, or not to be had: the node that makes it failed */
    bool needed;             /* a graph output depends on it */
    bool trained;            /* ... through operators that pass gradients */
    bool parameter, buffer;  /* the exporter says so (module_path.c) */
    const char *folded_from; /* names of what the exporter computed it of; NULL: it does not say */
    const ValueId *parts;    /* of a sequence: its tensors; else NULL */
    int64_t part_count;
    bool scales; /* a scale or a zero point of quantised numbers */
} Symbol;

/* FOLD_COMPUTES: of the elements of parameters; FOLD_MOVES: these themselves, in another order, or some of them. */
typedef enum FoldKind { FOLD_UNKNOWN, FOLD_OF_CONSTANTS, FOLD_MOVES, FOLD_COMPUTES } FoldKind;

struct Normalization;

/* A node of the model, or of the body of a function that it calls. */
typedef struct SourceNode {
    const Onnx__NodeProto *proto;
    const Onnx__FunctionProto *function; /* whose body it stands in; NULL: the graph itself */
    size_t number;                       /* 1 + its place in the graph; 0: in a body */
    const char *name;                    /* never empty */
    const struct Normalization *rule;    /* how to import it; NULL: unsupported */
    int64_t opset;                       /* of its domain */
    uint32_t *inputs, *outputs;          /* symbols; 0: absent */
    const char *condition_name;          /* of a branch's node: it counts where that value is `when`; else NULL */
    uint32_t condition;                  /* its symbol */
    bool when;
    bool needed;
} SourceNode;

typedef struct Importer {
    Graph *graph;
    ImportedModel *model;
    const ImportOptions *options;
    Diagnostics *diagnostics;
    const Onnx__GraphProto *proto;
    Arena arena;
    const char *signature; /* of the model before the export, with all parameters and buffers; NULL: not known */
    StringMap names;       /* -> symbols */
    Symbol *symbols;       /* [0] is unused */
    size_t symbol_count, symbol_capacity;
    SourceNode *nodes;
    size_t node_count;
    uint32_t *order;                /* of nodes, producers first */
    bool distinct;                  /* every initializer is one parameter (PROPERTY_PARAMETERS) */
    struct InitializerUse *readers; /* of every symbol of the file, the first */
    StringMap modules, parents;     /* of TorchScript, once something asks (is_module, has_submodules) */
    bool clones;                    /* layers start with the same numbers (initializer_uses.h) */
    bool widens;                    /* half precision becomes float32 (widen.h) */
    size_t narrow_bytes;            /* of quantised weights in the file, one byte an element */
    size_t widened;                 /* elements that were made floats so far */
    const char *shape_hint;         /* what helps where shapes do not fit; NULL: nothing known */
} Importer;

/* "node 'NAME' (OP, opset N)" */
Place source_place(const Importer *importer, const SourceNode *node, char text[static 512]);

/* functions.c: makes the nodes, with bodies of functions instead of their calls. */
bool expand_functions(Importer *importer);

/* resolve.c: fills names, symbols, nodes and their order; marks what is needed. Reports undefined and repeated names,
 * cycles and unsupported operators. */
bool resolve_names(Importer *importer);

/* inputs.c: graph inputs, with their dimensions bound. */
bool import_inputs(Importer *importer);
/* The tensor or shape given for the graph's input number `position`; NULL: none. */
const InputShape *given_input(const ImportOptions *options, const char *name, size_t position);

/* initializers.c: parameters and constants, ties and splits. */
bool import_initializers(Importer *importer);

/* merged_calls.c: warns of parameters that PyTorch's default exporter merged with others by merging calls. */
void warn_of_merged_calls(Importer *importer);

/* trained.c: decides which of them are trained, after the graph is built. */
bool choose_parameters(Importer *importer);

/* doubtful.c: of what TorchScript exports leave open, changes the choice to what the name says; whether that says
 * nothing either. */
bool judge_by_name(Importer *importer, const ImportedParameter *parameter, TrainedChoice *choice);
/* Once the choice is made: what is trained in doubt, and what is not, only because of its numbers. */
void tell_doubtful(const Importer *importer);
/* Whether the name comes from a module, not from an exporter that needed one for what it computed. */
bool named_by_module(const Importer *importer, const char *name);
/* Whether TorchScript's exporter gave the name to what it computed. */
bool computed_by_torchscript(const Importer *importer, const char *name);

/* branches.c: puts the nodes of both branches before every If, with unique names and the condition that they need; only
 * those that the constant condition chooses are imported. The If then reads its condition and the results of both
 * branches. False after reporting malformed branches or too many nodes. */
bool expand_branches(Importer *importer);

/* widen.c: half-precision weights (FLOAT16, BFLOAT16) are trained as float32. Where a model has some, all of its
 * tensors of these types become float32 while it is imported, so that nothing is computed with fewer digits than are
 * kept. Export writes weights back in their own type. */

/* Sets importer->widens, with a warning, if a weight on the way to an output is of half precision. */
void choose_widening(Importer *importer);
/* The type that an element type of the file has in the graph. DTYPE_NONE: none. */
DType imported_dtype(const Importer *importer, int32_t data_type);
/* Converts a tensor of the file, where it must be; its elements are in the model's arena then, and in no file. */
void widen_tensor(const Importer *importer, OnnxTensor *tensor);

/* module_path.c: the module that the node belongs to, with dots: "bert.encoder.layer.0.output.dense". From the node's
 * metadata (pkg.torch.onnx.name_scopes or namespace, by PyTorch's default exporter), else from a name with slashes (by
 * the TorchScript exporter). NULL if neither is there. In the arena, as are the others' texts. */
const char *module_path(Arena *arena, const Onnx__NodeProto *node);
/* Of TorchScript's names, whether the first `length` characters are those of a module: symbols "PATH.NAME" follow them;
 * and whether nodes "PATH/MODULE/NODE" do. */
bool is_module(Importer *importer, const char *path, size_t length);
bool has_submodules(Importer *importer, const char *path, size_t length);
/* The value of an entry of the node's metadata; NULL if there is none. */
const char *node_metadata(Arena *arena, const Onnx__NodeProto *node, const char *key);
/* What PyTorch's default exporter says that the value is: "PARAMETER", "BUFFER", which no optimiser updates; or "". */
const char *value_kind(Arena *arena, const Onnx__ValueInfoProto *value);
/* What PyTorch's default exporter says of all parameters and buffers of the model that it exported; NULL: nothing. */
const char *graph_signature(Arena *arena, const Onnx__GraphProto *graph);
/* Of which of PyTorch's calls the default exporter made the node: equal for all nodes of a call. NULL: not known. */
const char *pytorch_call(Arena *arena, const Onnx__NodeProto *node);
/* Names of what PyTorch's default exporter computed the value of: "['a', 'b']"; NULL if it does not say. */
const char *folded_from(Arena *arena, const Onnx__ValueInfoProto *value);
/* What the exporter did to compute the value of this name, by its name and theirs, which say the operators. Sets
 * `parameter` to one that it is computed of, as far as is known; else to NULL. */
FoldKind fold_kind(Importer *importer, const char *name, const char *sources, const char **parameter);
/* The program line that made the node, with its callers unless it stands in a module of PyTorch's own; "" if the
 * exporter does not give it. */
const char *source_lines(Arena *arena, const Onnx__NodeProto *node);
/* The padding_idx of the torch.nn.Embedding that became this Gather, where PyTorch's default exporter kept the call:
 * the row to which looking it up passes no gradient. Negative: none, or not known. */
int64_t padding_row(Arena *arena, const Onnx__NodeProto *node);
/* Which of the model's parameters PyTorch's call got that became this node, as the default exporter tells; `role`
 * ("weight", "bias") chooses among several, unless it is NULL. NULL: none, or not known. */
const char *called_parameter(Arena *arena, const char *signature, const Onnx__NodeProto *node, const char *role);
/* What PyTorch's call got that became this node, as the default exporter tells: parameters alone; or buffers, literals
 * (torch.ones) or the weights that a norm lacks alone. */
typedef enum CallKind { CALL_UNKNOWN, CALL_OF_PARAMETERS, CALL_OF_CONSTANTS } CallKind;
CallKind call_kind(Importer *importer, const Onnx__NodeProto *node);
/* What the model looks like, where that is nothing that skycc compiles: a mixture of experts, a vision model; else
 * NULL. */
const char *model_hint(Importer *importer);
extern const char other_models_hint[]; /* for operators that no transformer of texts has */

/* restore_bias.c: PyTorch's default exporter drops the bias of a Gemm where it is all zeros, as that of a fresh model
 * is, and notes it in the node's metadata. Training needs it, so this restores it as an initializer of zeros, one for
 * all calls of a module, with a warning. */
void restore_removed_biases(OnnxModel *model, Diagnostics *diagnostics);

#endif
