/* Metrics of predictions against labels. They come from counts and from a set of pairs, so that the order in which
 * predictions arrive, and with it stages, micro-batches and schedules, changes no bit of them. Where a metric is not
 * defined, as Pearson's correlation with a constant, it is NaN.
 *
 * Definitions: F1 after van Rijsbergen (1979), averaged over the classes that occur as labels or as predictions;
 * Matthews for several classes after Gorodkin (2004); Spearman's correlation is Pearson's of the ranks, where equal
 * numbers share their mean rank. Where a row may have several labels at once, accuracy is the share of rows with all
 * of them right, and the macro F1 is the mean over all labels, of which one that never occurs has 0: as scikit-learn's
 * accuracy_score and f1_score have it for label indicators. */
#ifndef RUNTIME_TRAIN_METRICS_H
#define RUNTIME_TRAIN_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the order of the columns eval_NAME of the log. */
typedef enum Metric {
    METRIC_LOSS,
    METRIC_ACCURACY,
    METRIC_F1,
    METRIC_MATTHEWS,
    METRIC_PEARSON,
    METRIC_SPEARMAN,
    METRIC_PERPLEXITY,
    METRIC_EXACT, /* of answers as texts */
    METRIC_COUNT
} Metric;

typedef enum F1Kind {
    F1_BY_CLASSES, /* binary where there are two classes, else macro; micro where a row may have several labels */
    F1_MACRO,      /* mean over the classes */
    F1_BINARY,     /* of class 1 */
    F1_MICRO       /* of the counts of all classes together */
} F1Kind;

/* What is to be measured. */
typedef struct MetricChoice {
    uint32_t metrics; /* bit 1 << Metric */
    F1Kind f1;
} MetricChoice;

const char *metric_name(Metric metric); /* "accuracy" */
/* The metric of this name, of which `length` bytes count; `f1-macro`, `f1-binary` and `f1-micro` set *f1 besides, which
 * may be NULL. METRIC_COUNT: there is none. */
Metric metric_find(const char *name, size_t length, F1Kind *f1);
/* Whether a is a better value than b. NaN is better than nothing. */
bool metric_is_better(Metric metric, double a, double b);

/* How often each class was predicted, was the label, and both at once. */
typedef struct ClassCounts {
    int64_t classes;
    int64_t *predicted, *labelled, *correct; /* [classes] */
} ClassCounts;

void class_counts_open(ClassCounts *counts, int64_t classes);
void class_counts_close(ClassCounts *counts);
/* Both in 0 ... classes - 1. */
void class_counts_add(ClassCounts *counts, int64_t label, int64_t prediction);
double class_counts_accuracy(const ClassCounts *counts);
double class_counts_f1(const ClassCounts *counts, F1Kind kind);
double class_counts_matthews(const ClassCounts *counts);

/* Labels of which a row may have several at once. */
typedef struct LabelSets {
    ClassCounts each; /* of every label: the rows that it was predicted for, had it, and both */
    int64_t rows, right;
} LabelSets;

void label_sets_open(LabelSets *sets, int64_t labels);
void label_sets_close(LabelSets *sets);
/* One label of the row that label_sets_end_row ends. Labels that do not count are left out, and so are rows of none. */
void label_sets_add(LabelSets *sets, int64_t label, bool has, bool predicted);
/* Whether any label of it counted, and whether all that did were right. */
void label_sets_end_row(LabelSets *sets, bool counted, bool right);
double label_sets_accuracy(const LabelSets *sets);
double label_sets_f1(const LabelSets *sets, F1Kind kind);

typedef struct NumberPair {
    double predicted, label;
} NumberPair;

typedef struct NumberPairs {
    NumberPair *items;
    size_t count, capacity;
} NumberPairs;

void number_pairs_add(NumberPairs *pairs, double predicted, double label);
void number_pairs_free(NumberPairs *pairs);
/* These bring the pairs into an order of their own. */
double number_pairs_pearson(NumberPairs *pairs);
double number_pairs_spearman(NumberPairs *pairs);

#endif
