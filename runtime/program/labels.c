#include "runtime/program/labels.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const SkyLabels *labels_of_input(const SkyProgram *program, const char *input, const SkyLabels *previous)
{
    for (uint32_t i = previous ? (uint32_t)(previous - program->labels) + 1 : 0; i < program->label_count; i++)
        if (strcmp(program->labels[i].name, input) == 0) return &program->labels[i];
    return NULL;
}

bool label_is_valid(const SkyLabels *labels, DType dtype, const void *data, int64_t index)
{
    if (labels->kind == SKY_LABELS_CLASSES) {
        int64_t label = element_as_integer(dtype, data, index);
        return label == labels->ignore_index || !labels->classes || (label >= 0 && label < labels->classes);
    }
    double number = element_as_double(dtype, data, index);
    if (labels->kind == SKY_LABELS_NUMBERS) return !isinf(number);
    return isnan(number) || number == (double)labels->ignore_index || (number >= 0 && number <= 1);
}

LabelText label_describe(const SkyLabels *labels, DType dtype, const void *data, int64_t index)
{
    LabelText text;
    if (labels->kind == SKY_LABELS_CLASSES) {
        snprintf(text.value, sizeof text.value, "%" PRId64, element_as_integer(dtype, data, index));
        snprintf(text.range, sizeof text.range, "in 0 ... %" PRId64, labels->classes - 1);
    } else {
        snprintf(text.value, sizeof text.value, "%g", element_as_double(dtype, data, index));
        snprintf(text.range, sizeof text.range, labels->kind == SKY_LABELS_NUMBERS ? "finite" : "in 0 ... 1");
    }
    return text;
}

/* The weight of the label; -1 if it is ignored, which differs from weight 0. */
static double weight_of(const SkyLabels *labels, DType dtype, const void *data, int64_t index)
{
    if (labels->kind != SKY_LABELS_CLASSES) {
        double number = element_as_double(dtype, data, index);
        bool ignored = labels->kind == SKY_LABELS_PROBABILITIES && number == (double)labels->ignore_index;
        return isnan(number) || ignored ? -1 : 1;
    }
    int64_t label = element_as_integer(dtype, data, index);
    if (label == labels->ignore_index) return -1;
    return labels->weights && label >= 0 && label < labels->weight_count ? (double)labels->weights[label] : 1;
}

void labels_count(const SkyLabels *labels, DType dtype, const Shape *shape, const void *data, int64_t first,
                  int64_t rows, LabelCount *count)
{
    int64_t elements = 1;
    for (int i = 1; i < shape->rank; i++) elements *= shape->dim[i];
    int64_t skipped = labels->shifted && shape->rank > 1 && elements ? elements / shape->dim[1] : 0;
    for (int64_t row = first; row < first + rows; row++)
        for (int64_t i = skipped; i < elements; i++) {
            double weight = weight_of(labels, dtype, data, row * elements + i);
            if (weight < 0) continue;
            count->count++;
            count->weight += weight;
        }
}

void labels_ignore(const SkyLabels *labels, DType dtype, void *data, int64_t index, int64_t elements)
{
    for (int64_t i = index; i < index + elements; i++)
        if (labels->kind == SKY_LABELS_CLASSES || !dtype_is_float(dtype))
            element_store_integer(dtype, data, i, labels->ignore_index);
        else
            element_store_double(dtype, data, i, NAN);
}
