#include "runtime/train/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* ---- Names ---- */

static const char *const names[METRIC_COUNT] = {"loss",    "accuracy", "f1",         "matthews",
                                                "pearson", "spearman", "perplexity", "exact"};

static const char *const f1_names[] = {
    [F1_BY_CLASSES] = "f1", [F1_MACRO] = "f1-macro", [F1_BINARY] = "f1-binary", [F1_MICRO] = "f1-micro"};

const char *metric_name(Metric metric) { return names[metric]; }

static bool is_named(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && memcmp(name, text, length) == 0;
}

Metric metric_find(const char *name, size_t length, F1Kind *f1)
{
    for (F1Kind kind = F1_MACRO; kind <= F1_MICRO; kind++) {
        if (!is_named(f1_names[kind], name, length)) continue;
        if (f1) *f1 = kind;
        return METRIC_F1;
    }
    Metric metric = METRIC_LOSS;
    while (metric < METRIC_COUNT && !is_named(names[metric], name, length)) metric++;
    return metric;
}

bool metric_is_better(Metric metric, double a, double b)
{
    return metric == METRIC_LOSS || metric == METRIC_PERPLEXITY ? a < b : a > b;
}

/* ---- Classes ---- */

void class_counts_open(ClassCounts *counts, int64_t classes)
{
    int64_t *all = memory_allocate(3 * (size_t)classes * sizeof *all);
    *counts = (ClassCounts){classes, all, all + classes, all + 2 * classes};
}

void class_counts_close(ClassCounts *counts) { free(counts->predicted); }

void class_counts_add(ClassCounts *counts, int64_t label, int64_t prediction)
{
    counts->predicted[prediction]++;
    counts->labelled[label]++;
    counts->correct[label] += label == prediction;
}

static int64_t sum(const int64_t *counts, int64_t classes)
{
    int64_t all = 0;
    for (int64_t c = 0; c < classes; c++) all += counts[c];
    return all;
}

double class_counts_accuracy(const ClassCounts *counts)
{
    int64_t all = sum(counts->labelled, counts->classes);
    return all ? (double)sum(counts->correct, counts->classes) / (double)all : NAN;
}

static bool occurs(const ClassCounts *counts, int64_t class)
{
    return counts->predicted[class] + counts->labelled[class] > 0;
}

static double class_f1(const ClassCounts *counts, int64_t class)
{
    if (!occurs(counts, class)) return 0;
    return 2 * (double)counts->correct[class] / (double)(counts->predicted[class] + counts->labelled[class]);
}

/* The sum over all classes. */
static double micro_f1(const ClassCounts *counts)
{
    double either = (double)(sum(counts->predicted, counts->classes) + sum(counts->labelled, counts->classes));
    return either > 0 ? 2 * (double)sum(counts->correct, counts->classes) / either : 0;
}

double class_counts_f1(const ClassCounts *counts, F1Kind kind)
{
    if (!sum(counts->labelled, counts->classes)) return NAN;
    if (kind == F1_MICRO) return micro_f1(counts);
    if (kind == F1_BINARY || (kind == F1_BY_CLASSES && counts->classes == 2))
        return counts->classes == 2 ? class_f1(counts, 1) : NAN;
    double all = 0;
    int64_t occurring = 0;
    for (int64_t c = 0; c < counts->classes; c++) {
        if (!occurs(counts, c)) continue;
        all += class_f1(counts, c);
        occurring++;
    }
    return all / (double)occurring;
}

double class_counts_matthews(const ClassCounts *counts)
{
    double all = (double)sum(counts->labelled, counts->classes);
    double correct = (double)sum(counts->correct, counts->classes), both = 0, predicted = 0, labelled = 0;
    for (int64_t c = 0; c < counts->classes; c++) {
        both += (double)counts->predicted[c] * (double)counts->labelled[c];
        predicted += (double)counts->predicted[c] * (double)counts->predicted[c];
        labelled += (double)counts->labelled[c] * (double)counts->labelled[c];
    }
    double spread = sqrt(all * all - predicted) * sqrt(all * all - labelled);
    if (all == 0) return NAN;
    return spread > 0 ? (correct * all - both) / spread : 0; /* with one class: no better than chance */
}

/* ---- Several labels at once ---- */

void label_sets_open(LabelSets *sets, int64_t labels)
{
    *sets = (LabelSets){0};
    class_counts_open(&sets->each, labels);
}

void label_sets_close(LabelSets *sets) { class_counts_close(&sets->each); }

void label_sets_add(LabelSets *sets, int64_t label, bool has, bool predicted)
{
    sets->each.labelled[label] += has;
    sets->each.predicted[label] += predicted;
    sets->each.correct[label] += has && predicted;
}

void label_sets_end_row(LabelSets *sets, bool counted, bool right)
{
    sets->rows += counted;
    sets->right += counted && right;
}

double label_sets_accuracy(const LabelSets *sets)
{
    return sets->rows ? (double)sets->right / (double)sets->rows : NAN;
}

double label_sets_f1(const LabelSets *sets, F1Kind kind)
{
    if (!sets->rows || kind == F1_BINARY) return NAN;
    if (kind != F1_MACRO) return micro_f1(&sets->each);
    double all = 0;
    for (int64_t c = 0; c < sets->each.classes; c++) all += class_f1(&sets->each, c);
    return all / (double)sets->each.classes;
}

/* ---- Numbers ---- */

void number_pairs_add(NumberPairs *pairs, double predicted, double label)
{
    NumberPair pair = {predicted, label};
    array_push(pairs->items, pairs->count, pairs->capacity, pair);
}

void number_pairs_free(NumberPairs *pairs) { free(pairs->items); }

static int compare(double a, double b) { return (a > b) - (a < b); }

static int by_label(const void *a, const void *b)
{
    const NumberPair *first = a, *second = b;
    int order = compare(first->label, second->label);
    return order ? order : compare(first->predicted, second->predicted);
}

static int by_prediction(const void *a, const void *b)
{
    const NumberPair *first = a, *second = b;
    int order = compare(first->predicted, second->predicted);
    return order ? order : compare(first->label, second->label);
}

static bool all_finite(const NumberPairs *pairs)
{
    for (size_t i = 0; i < pairs->count; i++)
        if (!isfinite(pairs->items[i].predicted) || !isfinite(pairs->items[i].label)) return false;
    return true;
}

/* In two passes, so that numbers far from 0 lose nothing. */
static double correlate(const NumberPairs *pairs)
{
    double n = (double)pairs->count, mean = 0, mean_label = 0, both = 0, spread = 0, spread_label = 0;
    for (size_t i = 0; i < pairs->count; i++) {
        mean += pairs->items[i].predicted / n;
        mean_label += pairs->items[i].label / n;
    }
    for (size_t i = 0; i < pairs->count; i++) {
        double x = pairs->items[i].predicted - mean, y = pairs->items[i].label - mean_label;
        both += x * y;
        spread += x * x;
        spread_label += y * y;
    }
    double product = sqrt(spread) * sqrt(spread_label);
    return product > 0 ? fmax(-1, fmin(1, both / product)) : NAN;
}

/* Whether a correlation is defined: the numbers differ by more than the rounding error of their mean. */
static bool varies(const NumberPairs *pairs)
{
    bool predictions = false, labels = false;
    for (size_t i = 1; i < pairs->count; i++) {
        predictions |= pairs->items[i].predicted != pairs->items[0].predicted;
        labels |= pairs->items[i].label != pairs->items[0].label;
    }
    return predictions && labels;
}

double number_pairs_pearson(NumberPairs *pairs)
{
    if (!all_finite(pairs) || !varies(pairs)) return NAN;
    qsort(pairs->items, pairs->count, sizeof *pairs->items, by_prediction);
    return correlate(pairs);
}

static double *predicted_of(NumberPair *pair) { return &pair->predicted; }
static double *label_of(NumberPair *pair) { return &pair->label; }

/* Replaces one of the two numbers of each pair by its rank, from 1. The pairs are sorted by that number. */
static void rank(NumberPairs *pairs, double *number_of(NumberPair *))
{
    for (size_t first = 0, next; first < pairs->count; first = next) {
        double number = *number_of(&pairs->items[first]);
        for (next = first; next < pairs->count && *number_of(&pairs->items[next]) == number;) next++;
        double shared = ((double)first + 1 + (double)next) / 2;
        for (size_t i = first; i < next; i++) *number_of(&pairs->items[i]) = shared;
    }
}

double number_pairs_spearman(NumberPairs *pairs)
{
    if (!all_finite(pairs) || !varies(pairs)) return NAN;
    FREED_WITH(number_pairs_free)
    NumberPairs ranks = {memory_resize(NULL, pairs->count, sizeof *ranks.items), pairs->count, pairs->count};
    memcpy(ranks.items, pairs->items, pairs->count * sizeof *ranks.items);
    qsort(ranks.items, ranks.count, sizeof *ranks.items, by_label);
    rank(&ranks, label_of);
    qsort(ranks.items, ranks.count, sizeof *ranks.items, by_prediction);
    rank(&ranks, predicted_of);
    return correlate(&ranks);
}
