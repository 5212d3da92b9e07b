/* Metrics against what scikit-learn 1.9 and SciPy 1.17 say. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/train/answers.h"
#include "runtime/train/entities.h"

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

/* The number of the next tag of a row, of those with blanks between; -1: "|" ends the row, or all. */
static int64_t next_tag(const char **text, const char *const *names, int64_t count)
{
    char word[16] = "";
    int size = 0;
    if (sscanf(*text, " %15s%n", word, &size) != 1) return -1;
    *text += size;
    for (int64_t i = 0; i < count; i++)
        if (strcmp(names[i], word) == 0) return i;
    return -1;
}

/* What seqeval 1.2 says of random tags, of which most do not fit each other. */
static void entities_are_counted_as_elsewhere(void **state)
{
    (void)state;
    static const char *const names[] = {"O", "B-P", "I-P", "E-P", "S-P", "B-L", "I-L", "E-L", "S-L"};
    static const struct {
        const char *labels, *predictions;
        double micro, macro;
    } cases[] = {
        {"I-P O | B-L B-L B-P O O O | I-L I-P O B-P", "I-P O | O B-L O I-P B-P O | I-L I-P O B-L", 0.5714285714285714,
         0.5833333333333333},
        {"B-P B-P B-P B-L I-P | I-L | I-P O I-P I-L I-P I-L B-P", "B-P B-P B-P B-L I-P | O | I-P O I-L I-L I-P I-L B-P",
         0.8181818181818182, 0.7523809523809524},
        {"B-L | B-L I-P | I-P B-L", "I-P | B-P O | B-P B-L", 0.4444444444444445, 0.45},
        {"I-L B-P O I-P B-P | B-L O O | O I-P I-P", "I-L B-P B-L I-L O | B-L O O | O I-P I-P", 0.7272727272727272,
         0.7333333333333334},
        {"O B-L O E-L I-P | B-L S-P B-P | E-P I-L E-P B-P", "O B-L O I-P S-L | B-L S-P B-P | S-P I-L E-P B-P",
         0.8000000000000002, 0.7916666666666667},
        {"E-L I-L | O E-P I-L E-L | I-L E-P", "E-L I-L | O E-P I-L E-L | I-P E-P", 0.7272727272727272,
         0.6785714285714286},
        {"B-P I-L O | I-L B-P I-L E-P | I-P B-L S-P E-L B-L I-L S-L",
         "B-P S-P O | I-L B-P S-P E-P | I-P I-P S-P O E-L I-L I-L", 0.4545454545454545, 0.4333333333333333},
        {"O E-P | O S-P | I-L", "I-L S-L | O I-P | B-L", 0.5714285714285715, 0.5833333333333333},
    };
    FREED_WITH(arena_free) Arena arena = {0};
    EntityTags tags = entity_tags(names, 9, &arena);
    assert_true(tags.type_count == 2 && entity_tags((const char *const[]){"O", "good"}, 2, &arena).count == 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *labels = cases[i].labels, *predictions = cases[i].predictions;
        EntityCounter counter;
        entity_counter_open(&counter, &tags);
        while (*labels) {
            int64_t label = next_tag(&labels, names, 9), prediction = next_tag(&predictions, names, 9);
            if (label < 0)
                entity_counter_end_row(&counter);
            else
                entity_counter_add(&counter, label, prediction);
        }
        entity_counter_end_row(&counter);
        assert_true(close_to(entity_counter_f1(&counter, F1_MICRO), cases[i].micro));
        assert_true(close_to(entity_counter_f1(&counter, F1_MACRO), cases[i].macro));
        entity_counter_close(&counter);
    }
}

/* As SQuAD's evaluation script has them. */
static void answers_are_compared_as_elsewhere(void **state)
{
    (void)state;
    static const struct {
        const char *found, *right;
        double exact, f1;
    } cases[] = {{"The cat.", "cat", 1, 1},
                 {"a theatre", "the theatre", 1, 1},
                 {"New York", "new  york city", 0, 0.8},
                 {"", "the", 1, 1},
                 {"", "cat", 0, 0},
                 {"\u201cthe cat\u201d", "cat", 0, 0},
                 {"\u00c9COLE", "\u00e9cole", 1, 1},
                 {"x_y", "xy", 1, 1},
                 {"is is a", "is", 0, 2.0 / 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double exact, f1;
        answer_compare(cases[i].found, cases[i].right, &exact, &f1);
        assert_true(exact == cases[i].exact && close_to(f1, cases[i].f1));
    }
}

/* Spans end no sooner than they begin, are no longer than 30 tokens, and are of the text; the best of all windows. */
static void the_best_span_is_found(void **state)
{
    (void)state;
    static const int32_t begins[2][4] = {{-1, 0, 4, 8}, {-1, 4, 8, 12}}, ends[2][4] = {{-1, 3, 7, 11}, {-1, 7, 11, 15}};
    int32_t questions[] = {0, 0};
    const char *contexts[] = {"one two six ten"}, *answers[] = {"six ten\0Six\0"};
    const AnswerTexts texts = {2, 4, begins[0], ends[0], questions, contexts, answers, 1, false};
    BestAnswer best[1], other[1];
    double exact, f1;
    best_answers_begin(best, &texts);
    best_answers_begin(other, &texts);
    best_answer_take(best, &texts, 0, (double[]){9, 0, 0, 3}, (double[]){9, 4, 0, 2},
                     4); /* not backwards, not no text */
    best_answers_measure(best, &texts, &exact, &f1);
    assert_true(best->score == 5 && best->begin == 8 && exact == 1 && f1 == 1);
    best_answer_take(other, &texts, 1, (double[]){0, 3, 0, 0}, (double[]){0, 0, 0, 3}, 4);
    best_answers_merge(best, other, 1);
    best_answers_measure(best, &texts, &exact, &f1);
    assert_true(best->score == 6 && best->begin == 4 && best->end == 15 && exact == 0 && close_to(f1, 0.8));
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
        cmocka_unit_test(entities_are_counted_as_elsewhere),
        cmocka_unit_test(answers_are_compared_as_elsewhere),
        cmocka_unit_test(the_best_span_is_found),
        cmocka_unit_test(names_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
