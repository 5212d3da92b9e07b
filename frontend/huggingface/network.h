/* Writes a graph from a configuration: parameters by their Hugging Face names, and the parts of models. Internal to the
 * folder.
 *
 * Values are named by strings that live in the builder's arena. Weights of linear layers keep the library's layout,
 * [out, in]: a checkpoint goes back into a folder as it is. A scope is a module's dotted name. Errors do not stop the
 * building of nodes; `diagnostics` collects them. */
#ifndef FRONTEND_HUGGINGFACE_NETWORK_H
#define FRONTEND_HUGGINGFACE_NETWORK_H

#include "frontend/huggingface/folder.h"
#include "frontend/onnx/onnx_builder.h"

enum { NETWORK_MOST_ERRORS = 20 }; /* after this many errors no more layers are built */

typedef struct Network {
    OnnxBuilder builder;
    const HuggingFaceConfig *config;
    HuggingFaceFolder *folder; /* where parameters come from; NULL: all are new */
    Diagnostics *diagnostics;
    const char *prefix; /* in front of the encoder's names: "bert.", or "" for an encoder alone */
    bool draws;         /* parameters that the folder lacks, or has in another shape, are new */
    StringMap
        parameters; /* those that there are: 0, or the number in `widened` of their values in float32, from 1 on */
    const char **widened;
    size_t widened_count, widened_capacity;
    const char **added; /* the new ones */
    size_t added_count, added_capacity;
    const char *one, *split_shape, *merge_shape; /* constants, made where they are needed first */
    const char *mask;                            /* (batch, 1, 1, seq): 0, or the least float where nothing may look */
    BuilderDimension batch, sequence;            /* of outputs */
    const char *inputs[3];                       /* ids, mask and types of tokens: (batch, seq) each */
    bool pairs;            /* two texts a row, apart: the encoder's batch has the first ones, then the second ones */
    const char *pooled;    /* (batch, hidden): what an encoder that is there pooled; NULL: nothing */
    const char *table;     /* of an encoder that is there: the parameter whose rows tokens choose; NULL: by its name */
    const char *positions; /* (1, seq), int64: 0 ... seq - 1; of one token after others: (1, 1), its own */
    int64_t room;          /* of decoders: not 0: the graph takes one token, and keys and values of so many as inputs */
    const char *length;    /* with room: the input that says how long the text is; NULL: nothing asked for it yet */
} Network;

#define network_apply(network, scope, op, ...) onnx_builder_apply(&(network)->builder, scope, op, __VA_ARGS__)

/* "SCOPE.NAME"; NAME if the scope is empty. */
const char *network_scope(Network *network, const char *scope, const char *name);
/* Of the encoder: the prefix, and the name formatted so. */
const char *network_encoder_scope(Network *network, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The parameter of that name and shape: the folder's tensor of this name, or of another that the library accepts for
 * it, or a new one. The same name gives the same parameter again. */
const char *network_parameter(Network *network, const char *name, const Shape *shape, WeightFill fill);
const char *network_matrix(Network *network, const char *scope, int64_t rows, int64_t columns); /* SCOPE.weight */
const char *network_vector(Network *network, const char *scope, const char *name, WeightFill fill, int64_t size);
/* Whether the folder has the tensor. */
bool network_has(Network *network, const char *name);

/* Constants. */
const char *network_integer(Network *network, const char *scope, int64_t value);                        /* rank 0 */
const char *network_integers(Network *network, const char *scope, const int64_t *values, size_t count); /* rank 1 */
#define network_list(network, scope, ...)                                                                              \
    network_integers(network, scope, (const int64_t[]){__VA_ARGS__},                                                   \
                     sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* Nodes with an attribute. */
const char *network_transpose(Network *network, const char *scope, const char *input, const int64_t *order,
                              size_t rank);
const char *network_gather(Network *network, const char *scope, const char *data, const char *index, int64_t axis);
const char *network_cast(Network *network, const char *scope, const char *input, int32_t data_type);
const char *network_softmax(Network *network, const char *scope, const char *input);
/* Rows of SCOPE.weight [rows, width]. */
const char *network_embedding(Network *network, const char *scope, const char *index, int64_t rows, int64_t width);

/* (..., in) -> (..., out): input times the transpose of SCOPE.weight [out, in], plus SCOPE.bias [out]. */
const char *network_linear(Network *network, const char *scope, const char *input, int64_t in, int64_t out);
const char *network_linear_without_bias(Network *network, const char *scope, const char *input, int64_t in,
                                        int64_t out);
const char *network_linear_maybe(Network *network, const char *scope, const char *input, int64_t in, int64_t out,
                                 bool bias);
/* Elements from ... to - 1 of an axis. */
const char *network_slice(Network *network, const char *scope, const char *input, int64_t axis, int64_t from,
                          int64_t to);
/* Over the last dimension, of `width` elements, with SCOPE.weight and, if `bias`, SCOPE.bias. */
const char *network_norm(Network *network, const char *scope, const char *input, int64_t width, double epsilon,
                         bool bias);
const char *network_activation(Network *network, const char *scope, Activation activation, const char *input);
/* Extent of the inputs along an axis; of the shape of `axis`, an integer constant. With room, the text's: (1, 1). */
const char *network_length(Network *network, const char *scope, const char *axis);
/* (batch, seq, width) -> (batch, width) */
const char *network_first_token(Network *network, const char *scope, const char *input);

/* (batch, seq, hidden) -> (batch, heads, seq, hidden / heads), and back. */
const char *network_split_heads(Network *network, const char *scope, const char *input);
const char *network_merge_heads(Network *network, const char *scope, const char *input);

/* A graph output, [batch, ...] with the dimensions that follow. */
void network_output(Network *network, const char *name, const char *value, const BuilderDimension *dimensions,
                    int rank);

#endif
