/* The CSV of predictions: fields, lines, and the scores of all labels. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "driver/predict/predictions.h"

void predictions_field(Predictions *predictions, const char *text)
{
    Buffer *table = &predictions->table, clean = {0};
    text_append(&clean, text, strlen(text));
    const char *quote = strpbrk(buffer_text(&clean), ",\"") ? "\"" : "";
    buffer_print(table, "%s", quote);
    for (const char *c = buffer_text(&clean); *c; c++) buffer_append(table, *c == '"' ? "\"\"" : c, *c == '"' ? 2 : 1);
    buffer_print(table, "%s", quote);
    buffer_free(&clean);
}

void predictions_end_line(Predictions *predictions) { buffer_append(&predictions->table, "\r\n", 2); }

int64_t predictions_softmax(double *values, int64_t count)
{
    int64_t best = 0;
    double sum = 0;
    for (int64_t i = 1; i < count; i++)
        if (values[i] > values[best]) best = i;
    double largest = values[best];
    for (int64_t i = 0; i < count; i++) sum += values[i] = exp(values[i] - largest);
    for (int64_t i = 0; i < count; i++) values[i] /= sum;
    return best;
}

void predictions_scores(Predictions *predictions, double *logits)
{
    Buffer *table = &predictions->table;
    int64_t best = predictions_softmax(logits, predictions->classes);
    predictions_field(predictions, predictions->labels[best]);
    buffer_print(table, ",%.7g", logits[best]);
    for (int64_t i = 0; i < predictions->classes; i++) buffer_print(table, ",%.7g", logits[i]);
    predictions_end_line(predictions);
}
