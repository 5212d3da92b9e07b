/* The accountant against published values; clipping and noise. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "federation/privacy.h"

/* Epsilon as it was computed when the values were published: Mironov 2017, proposition 3. */
static double former_epsilon(double rate, double sigma, int64_t rounds, double delta, double *order)
{
    double least = INFINITY;
    for (double at = 2; at <= 64; at++) {
        double epsilon = (double)rounds * privacy_divergence(rate, sigma, at) - log(delta) / (at - 1);
        if (epsilon < least) least = epsilon, *order = at;
    }
    return least;
}

static void the_accountant_gives_the_published_values(void **state)
{
    (void)state;
    double order;
    /* Abadi et al., "Deep learning with differential privacy", CCS 2016, section 3.2 and figure 2: 1.26. */
    assert_true(fabs(former_epsilon(0.01, 4, 10000, 1e-5, &order) - 1.26) < 0.005);
    /* TensorFlow Privacy's tutorial: 60 epochs of MNIST, batches of 256, noise 1.1: 3.01 at order 9. */
    assert_true(fabs(former_epsilon(256.0 / 60000, 1.1, 14062, 1e-5, &order) - 3.01) < 0.005);
    assert_true(order == 9);
    /* Opacus' documentation of compute_dp_sgd_privacy, over orders 2, 5, 10, 20 and 100: 2.39 at order 5. */
    double at_five = 300 * privacy_divergence(0.01, 1, 5) + log1p(-1.0 / 5) - log(1e-5 * 5) / 4;
    assert_true(fabs(at_five - 2.39) < 0.005);
    /* Among all orders there is a better one, next to it. */
    double found = privacy_epsilon(0.01, 1, 300, 1e-5, &order);
    assert_true(found <= at_five && order > 5 && order < 10);
}

static void of_all_members_it_is_the_gaussian_mechanism(void **state)
{
    (void)state;
    assert_true(privacy_divergence(1, 2, 3) == 3 / 8.0);
    /* Rounds compose: as many with noise of as many times the variance are one. */
    double one = privacy_epsilon(1, 1.5, 1, 1e-5, NULL), nine = privacy_epsilon(1, 4.5, 9, 1e-5, NULL);
    assert_true(fabs(one - nine) < 1e-9);
    /* Between the exact value for one application, Balle and Wang, ICML 2018 (4.3776 for sigma 1), and what Mironov's
     * conversion gives, 1 / 2 + sqrt(2 ln 1e5). */
    double gaussian = privacy_epsilon(1, 1, 1, 1e-5, NULL);
    assert_true(gaussian > 4.3776 && gaussian < 0.5 + sqrt(2 * log(1e5)));
    /* A sampling rate just below 1 gives nearly what 1 gives. */
    assert_true(fabs(privacy_divergence(1 - 1e-12, 2, 3) - 3 / 8.0) < 1e-9);
}

static void more_rounds_cost_more_and_more_noise_costs_less(void **state)
{
    (void)state;
    assert_true(privacy_epsilon(1, 1, 0, 1e-5, NULL) == 0);
    assert_true(isinf(privacy_epsilon(1, 0, 1, 1e-5, NULL)));
    double before = 0;
    for (int64_t rounds = 1; rounds < 2000; rounds *= 3) {
        double now = privacy_epsilon(1, 3, rounds, 1e-5, NULL);
        assert_true(now > before);
        assert_true(privacy_epsilon(1, 6, rounds, 1e-5, NULL) < now);
        assert_true(privacy_epsilon(0.5, 3, rounds, 1e-5, NULL) <= now);
        before = now;
    }
}

static void updates_are_clipped_to_the_norm(void **state)
{
    (void)state;
    float values[] = {3, -4, 0}, small[] = {0.3f, 0.4f};
    assert_true(update_clip(values, 3, 1) == 5);
    assert_true(values[0] == 0.6f && values[1] == -0.8f && values[2] == 0);
    update_clip(small, 2, 1);
    assert_true(small[0] == 0.3f && small[1] == 0.4f);
    float none[] = {0, 0};
    assert_true(update_clip(none, 2, 1) == 0 && none[0] == 0);
    float not_a_number[] = {2, NAN}, infinite[] = {-INFINITY, 2};
    assert_true(isnan(update_clip(not_a_number, 2, 1)) && not_a_number[0] == 2 && isnan(not_a_number[1]));
    assert_true(isinf(update_clip(infinite, 2, 1)) && infinite[0] == -INFINITY && infinite[1] == 2);
}

/* Mean and deviation of 2^16 draws within 8 standard errors of theirs. */
static void noise_is_normal_with_the_deviation(void **state)
{
    (void)state;
    enum { COUNT = 1 << 16 };
    float *values = calloc(COUNT, sizeof *values);
    double sum = 0, square = 0;
    int within = 0;
    const unsigned char key[NOISE_KEY_BYTES] = {7};
    update_add_noise(values, COUNT - 1, 2, key); /* an odd number */
    assert_true(values[COUNT - 1] == 0);
    for (int i = 0; i < COUNT; i++) {
        sum += values[i];
        square += (double)values[i] * values[i];
        within += fabsf(values[i]) < 2;
    }
    assert_true(fabs(sum / COUNT) < 8 * 2 / sqrt(COUNT));
    assert_true(fabs(sqrt(square / COUNT) - 2) < 8 * 2 / sqrt(2.0 * COUNT));
    assert_true(fabs(within / (double)COUNT - 0.6827) < 8 * 0.4654 / sqrt(COUNT));
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_accountant_gives_the_published_values),
        cmocka_unit_test(of_all_members_it_is_the_gaussian_mechanism),
        cmocka_unit_test(more_rounds_cost_more_and_more_noise_costs_less),
        cmocka_unit_test(updates_are_clipped_to_the_norm),
        cmocka_unit_test(noise_is_normal_with_the_deviation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
