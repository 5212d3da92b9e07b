/* The loss (PassOptions.loss) is one of these, or several joined by '+', whose sum is the loss; each perhaps with a
 * factor of 0 and more, as in 0.5*mse, not all of them 0:
 *
 *   cross-entropy[:OUTPUT[:LABELS]][,smoothing=X][,weights=A/B/...][,shift]
 *       Softmax cross-entropy of the output OUTPUT [..., classes] and the integer input LABELS [...], as
 *       torch.nn.CrossEntropyLoss has it, with label smoothing and weights of classes; ignore_index is -100. With shift
 *       the scores at each position of dimension 1 are compared with the labels of the next. Without OUTPUT: the output
 *       named logits, or else the only one of a float type that is no scalar. Without LABELS: labels. The input is
 *       added unless the graph has it.
 *   mse[:OUTPUT[:LABELS]]
 *       Squared error. LABELS have the shape of OUTPUT, or that without a last dimension of 1; NaN are left out.
 *   bce[:OUTPUT[:LABELS]]
 *       Binary cross-entropy of logits, likewise; labels of -100 are left out too.
 *   cosine:A:B[:LABELS]
 *       Squared error of the cosines between rows of the outputs A and B [rows, elements].
 *   contrastive:A:B[:TEMPERATURE]
 *       Every row of A is to be told from all rows of B by its cosines with them, over the temperature (0.05): its
 *       partner has the same number (Henderson et al. 2017, arXiv 1705.00652). Rows of one micro-batch are
 *       compared, and the mean is over the rows of the batch.
 *   output:NAME
 *       A float output of one element, which the model computes itself, averaged over micro-batches.
 *
 * All but the last two are summed over all labels and divided by what the labels of the whole batch weigh: by their
 * number, where classes have no weights.
 *
 * NULL or "": output:loss if the graph has such an output; LOSS_OF_ANSWERS for start_logits and end_logits; else
 * cross-entropy if there are classes. Outputs that are called embeddings have none.
 *
 * Sets graph->loss, labels, loss_is_summed and whole_batches. Errors: a malformed specification, and none where it
 * is not clear what the loss is (EXIT_USAGE); an output that does not exist or has another type or shape
 * (EXIT_BAD_INPUT, with the outputs that there are and what fits them). */
#ifndef GRAPH_PASSES_LOSS_H
#define GRAPH_PASSES_LOSS_H

#include "graph/graph.h"

/* Of where an answer begins and ends, as the Hugging Face library has it. */
#define LOSS_OF_ANSWERS "0.5*cross-entropy:start_logits:start_positions+0.5*cross-entropy:end_logits:end_positions"

/* Whether the specification (NULL: none) has a term whose rows are compared with each other, so that micro-batches
 * change what it means. */
bool loss_compares_rows(const char *spec);

#endif
