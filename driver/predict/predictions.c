#include "driver/predict/predictions.h"

#include <math.h>
#include <string.h>

/* ---- Labels ---- */

/* The labels above 0.5, and the probability of each label. */
static void print_label_set(Predictions *predictions, double *logits)
{
    Buffer *table = &predictions->table, found = {0};
    for (int64_t i = 0; i < predictions->classes; i++)
        if (logits[i] > 0) buffer_print(&found, "%s%s", found.size ? ";" : "", predictions->labels[i]);
    predictions_field(predictions, buffer_text(&found));
    for (int64_t i = 0; i < predictions->classes; i++) buffer_print(table, ",%.7g", 1 / (1 + exp(-logits[i])));
    predictions_end_line(predictions);
    buffer_free(&found);
}

static bool name_labels(Predictions *predictions, Diagnostics *diagnostics)
{
    int64_t classes = predictions->classes;
    const char *file = predictions->labels_of;
    if ((int64_t)predictions->label_count != classes && (file || predictions->label_count))
        return input_error(diagnostics, file ? file : predictions->called,
                           file ? "give the data set that the model was trained on" : NULL,
                           "names %zu labels, but the model has %lld", predictions->label_count, (long long)classes);
    if (predictions->label_count) return true;
    const char **numbers = arena_new_array(predictions->arena, const char *, (size_t)classes);
    for (int64_t i = 0; i < classes; i++) numbers[i] = arena_format(predictions->arena, "%lld", (long long)i);
    predictions->labels = numbers, predictions->label_count = (size_t)classes;
    return true;
}

/* ---- Heads of whole texts ---- */

static void print_similarity(Predictions *predictions)
{
    double product = 0, squares[2] = {0, 0};
    for (int64_t i = 0; i < predictions->classes; i++) {
        double a = predictions->former[i], b = predictions->values[i];
        product += a * b, squares[0] += a * a, squares[1] += b * b;
    }
    double scale = sqrt(squares[0]) * sqrt(squares[1]);
    buffer_print(&predictions->table, "%.7g", scale > 0 ? product / scale : 0);
    predictions_end_line(predictions);
}

static void print_embedding(Predictions *predictions, int64_t row)
{
    Buffer *table = &predictions->table;
    if (predictions->compares) {
        if (row) print_similarity(predictions);
        memcpy(predictions->former, predictions->values, (size_t)predictions->classes * sizeof(double));
        return;
    }
    buffer_print(table, predictions->json ? "{\"row\":%lld,\"embedding\":[" : "%lld", (long long)row);
    for (int64_t i = 0; i < predictions->classes; i++)
        buffer_print(table, predictions->json && !i ? "%.9g" : ",%.9g", predictions->values[i]);
    if (predictions->json)
        buffer_print(table, "]}\n");
    else
        predictions_end_line(predictions);
}

/* ---- The table ---- */

static HeadKind head_of_outputs(const Predictions *predictions)
{
    const Predictor *predictor = predictions->predictor;
    if (predictor_output(predictor, "start_logits", 2)) return HEAD_QUESTION;
    if (predictor_output(predictor, "embedding", 2)) return HEAD_MEAN;
    const SkyTensor *tokens = predictor_output(predictor, "logits", 3);
    if (!tokens) return HEAD_SEQUENCE;
    int32_t size = predictions->tokenizer ? tokenizer_size(predictions->tokenizer) : INT32_MAX;
    return tokens->dim[2] >= size ? HEAD_MASKED : HEAD_TOKENS;
}

static bool find_outputs(Predictions *predictions, Diagnostics *diagnostics)
{
    const Predictor *predictor = predictions->predictor;
    HeadKind head = predictions->head;
    const char *name = head == HEAD_QUESTION                     ? "start_logits"
                       : head == HEAD_MEAN || head == HEAD_FIRST ? "embedding"
                                                                 : "logits";
    uint32_t rank = head == HEAD_TOKENS || head == HEAD_MASKED || head == HEAD_NEXT ? 3 : 2;
    predictions->output = predictor_output(predictor, name, rank);
    predictions->end = head == HEAD_QUESTION ? predictor_output(predictor, "end_logits", rank) : predictions->output;
    if (!predictions->output || !predictions->end ||
        (rank == 3 || head == HEAD_QUESTION ? predictions->output->dim[1] != predictor->width : false))
        return input_error(diagnostics, predictions->called, "use skycc run to print its raw outputs",
                           head == HEAD_QUESTION
                               ? "has no outputs 'start_logits' and 'end_logits' of shape [batch, tokens]"
                           : rank == 3      ? "its output 'logits' does not have shape [batch, tokens, labels]"
                           : name[0] == 'e' ? "its output 'embedding' does not have shape [batch, numbers]"
                                            : "has no output 'logits' of shape [batch, labels]");
    size_t count = (size_t)predictor_row_values(predictions->output);
    predictions->classes = predictions->output->dim[rank - 1];
    predictions->values = arena_new_array(predictions->arena, double, count);
    predictions->end_values = arena_new_array(predictions->arena, double, count);
    predictions->former = arena_new_array(predictions->arena, double, count);
    return true;
}

static void print_header(Predictions *predictions, const char *begin, bool numbered, bool labelled)
{
    Buffer *table = &predictions->table;
    if (predictions->json) return;
    buffer_print(table, "%s", begin);
    for (int64_t i = 0; i < predictions->classes && (numbered || labelled); i++) {
        buffer_append(table, ",", 1);
        if (numbered)
            buffer_print(table, "%lld", (long long)i);
        else
            predictions_field(predictions, predictions->labels[i]);
    }
    predictions_end_line(predictions);
}

/* For heads about parts of texts: whether the rows have texts. */
static bool check_texts(const Predictions *predictions, Diagnostics *diagnostics)
{
    const TextRows *rows = predictions->rows;
    if (predictions->head == HEAD_MASKED ? predictions->tokenizer != NULL : rows->texts != NULL) {
        if (predictions->head != HEAD_QUESTION || (rows->count && rows->texts[0][1])) return true;
        return usage_error(diagnostics, "give --text QUESTION --text2 TEXT, or --data TABLE --text COL,COL",
                           "this head answers a question from a text, and needs both");
    }
    return usage_error(diagnostics, "give --text TEXT, or --data TABLE --text COL",
                       "this head needs words, but a data set holds token ids");
}

bool predictions_begin(Predictions *predictions, Diagnostics *diagnostics)
{
    if (predictions->head == HEAD_FROM_FOLDER) predictions->head = head_of_outputs(predictions);
    HeadKind head = predictions->head;
    bool parts = head == HEAD_TOKENS || head == HEAD_QUESTION || head == HEAD_MASKED;
    if (head == HEAD_NEXT && !predictions->measures)
        return usage_error(diagnostics, "--prompt TEXT continues a text; skycc evaluate measures how well",
                           "this head predicts the next token of a text");
    if (!find_outputs(predictions, diagnostics) ||
        (parts && !predictions->measures && !check_texts(predictions, diagnostics)))
        return false;
    if (head == HEAD_REGRESSION && predictions->several) predictions->head = head = HEAD_SEQUENCE;
    if (predictions->several && head != HEAD_SEQUENCE)
        return usage_error(diagnostics, "leave --multi-label out",
                           "--multi-label is only for heads that label whole texts (seqcls:N)");
    bool labelled =
        head == HEAD_TOKENS || (head == HEAD_SEQUENCE && (predictions->classes > 1 || predictions->several));
    if (labelled && !name_labels(predictions, diagnostics)) return false;
    switch (head) {
    case HEAD_TOKENS: print_header(predictions, "row,word,text,label,score", false, true); break;
    case HEAD_QUESTION: print_header(predictions, "row,answer,score,start,end", false, false); break;
    case HEAD_MASKED: print_header(predictions, "row,mask,rank,token,score", false, false); break;
    case HEAD_MEAN:
    case HEAD_FIRST:
        print_header(predictions, predictions->compares ? "similarity" : "row", !predictions->compares, false);
        break;
    default:
        print_header(predictions,
                     predictions->several ? "row,labels"
                     : labelled           ? "row,label,score"
                                          : "row,value",
                     false, labelled);
        break;
    }
    return true;
}

bool predictions_row(Predictions *predictions, int64_t row, Diagnostics *diagnostics)
{
    Predictor *predictor = predictions->predictor;
    if (!predictor_values(predictor, predictions->output, row, predictions->values, diagnostics)) return false;
    switch (predictions->head) {
    case HEAD_TOKENS: return predictions_words(predictions, row, diagnostics);
    case HEAD_MASKED: return predictions_masks(predictions, row, diagnostics);
    case HEAD_QUESTION:
        return predictor_values(predictor, predictions->end, row, predictions->end_values, diagnostics) &&
               predictions_answer(predictions, row, diagnostics);
    case HEAD_MEAN:
    case HEAD_FIRST: print_embedding(predictions, row); return true;
    default: break;
    }
    buffer_print(&predictions->table, "%lld,", (long long)row);
    if (predictions->several) {
        print_label_set(predictions, predictions->values);
        return true;
    }
    if (predictions->classes > 1) {
        predictions_scores(predictions, predictions->values);
        return true;
    }
    buffer_print(&predictions->table, "%.9g", predictions->values[0]);
    predictions_end_line(predictions);
    return true;
}
