/* BERT (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019) as an ONNX graph of any size, out
 * of the operators that PyTorch's exporter uses at opset 17.
 *
 * Inputs input_ids, attention_mask and token_type_ids, int64 [batch, seq]; output logits, float32 [batch, classes] of
 * the sequence classifier or [batch, seq, vocabulary] of the masked language model, whose decoder is the transposed
 * word embeddings. Parameters have the names of Hugging Face's models; weights of linear layers on 3-D tensors are
 * [in, out], those of pooler and classifier [out, in]. */
#ifndef MODELS_BERT_H
#define MODELS_BERT_H

#include "base/diagnostics.h"

typedef enum BertHead { BERT_SEQUENCE_CLASSIFIER, BERT_MASKED_LANGUAGE_MODEL } BertHead;

typedef struct BertConfig {
    int64_t layers, hidden, heads, intermediate, vocabulary, positions; /* all >= 1; heads divides hidden */
    int64_t classes;                                                    /* of the sequence classifier */
    BertHead head;
    int64_t batch, sequence; /* 0: symbolic dimensions "batch" and "seq"; sequence <= positions */
    bool weights;            /* matrices normal with deviation 0.02 from `seed`, biases 0, gains 1; false: absent */
    uint64_t seed;
} BertConfig;

/* Writes the model to `path` (and, where its weights take more than 64 MiB, to `path`.data). */
bool bert_write(const BertConfig *config, const char *path, Diagnostics *diagnostics);

#endif
