/* Metrics against what scikit-learn 1.9 and SciPy 1.17 say. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/train/metrics.h"

static bool close_to(double a, double b) { return fabs(a - b) <= 1e-12; }

typedef struct Case {
    int classes, count;
    int labels[14], predictions[14];
    double accuracy, macro, binary, matthews;
} Case;

static void classes_are_measured_as_elsewhere(void **state)
{
    (void)state;
    static const Case cases[] = {
        {2,
         12,
         {0, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1},
         {0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1},
         0.75,
         0.7482517482517483,
         0.7692307692307693,
         0.50709255283711},
        {4,
         14,
         {0, 1, 2, 3, 2, 1, 0, 0, 2, 2, 1, 3, 0, 1},
         {0, 2, 2, 1, 2, 1, 0, 1, 2, 0, 1, 3, 0, 1},
         0.7142857142857143,
         0.7083333333333333,
         NAN,
         0.6100671803771032},
        /* Class 2 does not occur at all, and 3 only as a prediction. */
        {4, 5, {0, 0, 1, 1, 0}, {0, 3, 1, 1, 0}, 0.8, 0.6, NAN, 0.7216878364870323},
        {2, 3, {0, 0, 0}, {0, 0, 0}, 1, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        ClassCounts counts;
        class_counts_open(&counts, c->classes);
        for (int k = 0; k < c->count; k++) class_counts_add(&counts, c->labels[k], c->predictions[k]);
        assert_true(close_to(class_counts_accuracy(&counts), c->accuracy));
        assert_true(close_to(class_counts_f1(&counts, F1_MACRO), c->macro));
        assert_true(close_to(class_counts_matthews(&counts), c->matthews));
        double f1 = class_counts_f1(&counts, F1_BY_CLASSES);
        assert_true(close_to(f1, c->classes == 2 ? c->binary : c->macro));
        assert_true(isnan(c->binary) || close_to(class_counts_f1(&counts, F1_BINARY), c->binary));
        class_counts_close(&counts);
    }
}

static void nothing_is_measured_of_nothing(void **state)
{
    (void)state;
    ClassCounts counts;
    NumberPairs pairs = {0};
    class_counts_open(&counts, 3);
    assert_true(isnan(class_counts_accuracy(&counts)) && isnan(class_counts_f1(&counts, F1_MACRO)) &&
                isnan(class_counts_matthews(&counts)));
    class_counts_close(&counts);
    assert_true(isnan(number_pairs_pearson(&pairs)) && isnan(number_pairs_spearman(&pairs)));
    for (int i = 0; i < 9; i++) number_pairs_add(&pairs, 0.1, i);
    assert_true(isnan(number_pairs_pearson(&pairs)) && isnan(number_pairs_spearman(&pairs)));
    number_pairs_add(&pairs, NAN, 9);
    number_pairs_add(&pairs, 2, 9);
    assert_true(isnan(number_pairs_pearson(&pairs)) && isnan(number_pairs_spearman(&pairs)));
    number_pairs_free(&pairs);
}

/* With ties in both, near 0 and far from it, in two orders: the same to the last bit. */
static void correlations_are_those_of_elsewhere(void **state)
{
    (void)state;
    enum { COUNT = 10 };
    static const double predicted[COUNT] = {2.5, 0.0, 4.75, 3.2, 1.1, 3.2, 5.0, 2.5, 0.4, 3.9};
    static const double labels[COUNT] = {3.0, 0.5, 4.5, 3.0, 0.5, 2.2, 4.8, 1.9, 1.0, 4.5};
    static const double pearson[] = {0.9413288435708852, 0.9413288439069889};
    for (int far = 0; far < 2; far++) {
        NumberPairs pairs = {0}, turned = {0};
        for (int i = 0; i < COUNT; i++) number_pairs_add(&pairs, predicted[i] + far * 1e8, labels[i]);
        for (int i = COUNT; i-- > 0;) number_pairs_add(&turned, predicted[i] + far * 1e8, labels[i]);
        double value = number_pairs_pearson(&pairs), rank_value = number_pairs_spearman(&pairs);
        assert_true(close_to(value, pearson[far]));
        assert_true(close_to(rank_value, 0.9353890432722236));
        assert_true(number_pairs_spearman(&turned) == rank_value && number_pairs_pearson(&turned) == value);
        number_pairs_free(&pairs);
        number_pairs_free(&turned);
    }
}

static void names_are_found(void **state)
{
    (void)state;
    F1Kind f1 = F1_BY_CLASSES;
    for (Metric metric = 0; metric < METRIC_COUNT; metric++)
        assert_int_equal(metric_find(metric_name(metric), strlen(metric_name(metric)), &f1), metric);
    assert_int_equal(f1, F1_BY_CLASSES);
    assert_int_equal(metric_find("f1-macro,f1", 8, &f1), METRIC_F1);
    assert_int_equal(f1, F1_MACRO);
    assert_int_equal(metric_find("f", 1, &f1), METRIC_COUNT);
    assert_true(metric_is_better(METRIC_LOSS, 1, 2) && metric_is_better(METRIC_F1, 2, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_are_measured_as_elsewhere),
        cmocka_unit_test(nothing_is_measured_of_nothing),
        cmocka_unit_test(correlations_are_those_of_elsewhere),
        cmocka_unit_test(names_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
