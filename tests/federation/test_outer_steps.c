/* Outer steps, fragments, and the global model on disk. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <signal.h>

#include "base/random.h"
#include "base/safetensors.h"
#include "federation/global_model.h"
#include "tests/common/scratch.h"

enum { COUNT = 4 };

static void average_gives_the_mean_of_models(void **state)
{
    (void)state;
    float values[COUNT] = {1, -2, 0.5f, 8}, mean[COUNT] = {0.25f, -1, 0.5f, 0};
    OuterRule rule = outer_rule_default(OUTER_AVERAGE);
    outer_step(&rule, values, NULL, NULL, mean, COUNT);
    const float expected[COUNT] = {0.75f, -1, 0, 8};
    assert_memory_equal(values, expected, sizeof expected);
}

/* What torch.optim.SGD(lr=0.7, momentum=0.9, nesterov=True) does to 1.0 with gradients 0.5, -0.25, 1: 0.335, 0.384,
 * -1.0594. By hand: b = 0.5; 1 - 0.7 (0.5 + 0.45). b = 0.2; 0.335 - 0.7 (-0.25 + 0.18). b = 1.18; 0.384 - 0.7 (1 +
 * 1.062). */
static void nesterov_is_that_of_diloco(void **state)
{
    (void)state;
    OuterRule rule = outer_rule_default(OUTER_NESTEROV);
    assert_true(rule.rate == 0.7 && rule.momentum == 0.9);
    float value = 1, momentum = 0;
    const float gradients[] = {0.5f, -0.25f, 1}, expected[] = {0.335f, 0.384f, -1.0594f};
    for (int i = 0; i < 3; i++) {
        outer_step(&rule, &value, &momentum, NULL, &gradients[i], 1);
        assert_true(fabsf(value - expected[i]) < 1e-6f);
    }
    value = 1;
    rule = (OuterRule){OUTER_SGD, 0.5, 0, 0, 0};
    outer_step(&rule, &value, NULL, NULL, gradients, 1);
    assert_true(value == 0.75f);
}

static void every_tensor_is_in_one_fragment_and_none_is_empty(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 200; trial++) {
        RandomStream stream = random_substream(random_stream(1, "fragments"), trial);
        size_t tensors = 1 + (size_t)random_below(stream, 0, 30), elements[30], all = 0, largest = 0;
        for (size_t i = 0; i < tensors; i++) {
            elements[i] = 1 + (size_t)random_below(stream, i + 2, i % 5 ? 100 : 5000);
            all += elements[i];
            if (elements[i] > largest) largest = elements[i];
        }
        size_t count = fragments_most(tensors, 1 + (size_t)random_below(stream, 1, 12)), next = 0;
        for (size_t f = 0; f < count; f++) {
            FragmentRange range = fragment_range(elements, tensors, count, f);
            size_t size = 0;
            assert_int_equal(range.first, next);
            assert_true(range.end > range.first);
            for (size_t i = range.first; i < range.end; i++) size += elements[i];
            /* Where tensors are no larger than a fragment, ends are off by half a tensor at most. */
            if (largest * count <= all && count * 3 <= tensors) assert_true(size <= all / count + 2 * largest);
            next = range.end;
        }
        assert_int_equal(next, tensors);
    }
    assert_int_equal(fragments_most(3, 8), 3);
    assert_int_equal(fragment_of_round(7, 3), 1);
}

/* ---- On disk ---- */

static const char *const names[] = {"a.weight", "b", "scalar"};
static const Shape shapes[] = {{2, {2, 3}}, {1, {4}}, {0, {0}}};
static const Hash identity = {1, 2};

static void fill(GlobalModel *model, uint64_t number)
{
    random_fill_normal(random_stream(number, "values"), 0, 1, model->values, model->elements);
    if (model->momentum) random_fill_normal(random_stream(number, "m"), 0, 1, model->momentum, model->elements);
}

/* A round's outer step, with the model in two fragments, which meet in turn. */
static void step(GlobalModel *model, const OuterRule *rule, const float *mean)
{
    FragmentRange part = global_model_part(model, model->round++, 2);
    assert_true(global_model_move(model, rule, part.first, mean, part.end - part.first, 1));
}

static void what_is_written_is_read_and_goes_on_bit_for_bit(void **state)
{
    (void)state;
    GlobalModel model, again;
    Diagnostics diagnostics = {0};
    OuterRule rule = outer_rule_default(OUTER_NESTEROV);
    global_model_open(&model, identity, names, shapes, 3, true);
    global_model_open(&again, identity, names, shapes, 3, true);
    assert_int_equal(model.elements, 11);
    fill(&model, 1);
    float mean[11];
    random_fill_normal(random_stream(2, "mean"), 0, 1, mean, 11);
    for (int round = 0; round < 6; round++) {
        assert_true(global_model_write(&model, "model.safetensors", &diagnostics));
        assert_true(global_model_read(&again, "model.safetensors", &diagnostics));
        step(&model, &rule, mean);
        step(&again, &rule, mean);
        assert_int_equal(again.round, round + 1);
        assert_memory_equal(model.values, again.values, sizeof mean);
        assert_memory_equal(model.momentum, again.momentum, sizeof mean);
    }
    global_model_free(&again);
    model.step = 77;
    assert_true(global_model_write(&model, "model.safetensors", &diagnostics));
    assert_true(global_model_open_file(&again, identity, "model.safetensors", true, &diagnostics));
    assert_int_equal(again.round, 6);
    assert_int_equal(again.step, 77);
    assert_int_equal(again.tensor_count, 3);
    assert_string_equal(again.tensors[2].name, "scalar");
    assert_memory_equal(model.values, again.values, sizeof mean);
    assert_memory_equal(model.momentum, again.momentum, sizeof mean);
    FragmentRange even = global_model_part(&model, 0, 2), odd = global_model_part(&model, 1, 2);
    assert_int_equal(even.first, 0);
    assert_int_equal(even.end, odd.first);
    assert_int_equal(odd.end, 11);
    global_model_free(&model);
    global_model_free(&again);
}

static void control_variates_are_written_and_take_their_share(void **state)
{
    (void)state;
    GlobalModel model, again;
    Diagnostics diagnostics = {0};
    OuterRule rule = outer_rule_default(OUTER_AVERAGE);
    global_model_open(&model, identity, names, shapes, 3, false);
    fill(&model, 5);
    float before[11], mean[22];
    memcpy(before, model.values, sizeof before);
    random_fill_normal(random_stream(6, "mean"), 0, 1, mean, 22);
    global_model_keep_control(&model, true);
    assert_memory_equal(model.values, before, sizeof before);
    assert_int_equal(global_model_part(&model, 0, 1).end, 22);
    assert_true(global_model_move(&model, &rule, 0, mean, 5, 0.25)); /* pieces of any size */
    assert_true(global_model_move(&model, &rule, 5, mean + 5, 10, 0.25));
    assert_true(global_model_move(&model, &rule, 15, mean + 15, 7, 0.25));
    for (int i = 0; i < 11; i++) {
        assert_true(model.values[i] == (float)((double)before[i] - (double)mean[i]));
        assert_true(model.control[i] == (float)(0.25 * (double)mean[11 + i]));
    }
    assert_true(global_model_write(&model, "model.safetensors", &diagnostics));
    assert_true(global_model_open_file(&again, identity, "model.safetensors", 0, &diagnostics));
    assert_memory_equal(again.values, model.values, sizeof mean);
    assert_int_equal(again.tensor_count, 3);
    mean[12] = INFINITY;
    assert_false(global_model_move(&model, &rule, 10, mean + 10, 4, 1));
    global_model_keep_control(&again, false);
    assert_null(again.control);
    assert_memory_equal(again.values, model.values, 10 * sizeof(float));
    global_model_free(&model);
    global_model_free(&again);
}

/* Fragments that met since a site's last step add up, on disk, too; a step or the whole model begins anew. */
static void fragments_that_met_are_known_until_the_next_step(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    GlobalModel model, read;
    global_model_open(&model, identity, names, shapes, 3, 0);
    const FragmentRange a = {0, model.tensors[1].first}, c = {model.tensors[2].first, 11}, all = {0, 11};
    global_model_note_met(&model, a, false);
    assert_null(model.met); /* all were new already */
    global_model_note_met(&model, a, true);
    assert_true(model.met && model.met[0] && !model.met[1] && !model.met[2]);
    global_model_note_met(&model, c, false);
    assert_true(model.met[0] && !model.met[1] && model.met[2]);
    assert_true(global_model_write(&model, "model.safetensors", &diagnostics));
    assert_true(global_model_open_file(&read, model.identity, "model.safetensors", 0, &diagnostics));
    assert_memory_equal(read.met, model.met, 3 * sizeof *model.met);
    global_model_note_met(&read, c, true);
    assert_true(!read.met[0] && read.met[2]);
    global_model_note_met(&read, all, false);
    assert_null(read.met);
    global_model_free(&read);
    global_model_free(&model);
}

static void a_disk_that_is_full_leaves_the_model_before(void **state)
{
    (void)state;
    GlobalModel model, again;
    Diagnostics diagnostics = {0};
    global_model_open(&model, identity, names, shapes, 3, false);
    global_model_open(&again, identity, names, shapes, 3, false);
    fill(&model, 3);
    assert_true(global_model_write(&model, "model.safetensors", &diagnostics));
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    none = (struct rlimit){64, limit.rlim_max}; /* the largest file: fails as a full disk does */
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    model.round = 9;
    bool written = global_model_write(&model, "model.safetensors", &diagnostics);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_false(written);
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "model.safetensors");
    diagnostics = (Diagnostics){0};
    assert_true(global_model_read(&again, "model.safetensors", &diagnostics));
    assert_int_equal(again.round, 0);
    assert_memory_equal(again.values, model.values, 11 * sizeof(float));
    global_model_free(&model);
    global_model_free(&again);
}

static void other_federations_and_models_are_refused(void **state)
{
    (void)state;
    GlobalModel model, other;
    Diagnostics diagnostics = {0};
    global_model_open(&model, identity, names, shapes, 3, false);
    assert_true(global_model_write(&model, "model.safetensors", &diagnostics));
    global_model_open(&other, (Hash){1, 3}, names, shapes, 3, false);
    assert_false(global_model_read(&other, "model.safetensors", &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "is not of this federation");
    global_model_free(&other);
    global_model_open(&other, identity, names, shapes, 3, true);
    diagnostics = (Diagnostics){0};
    assert_false(global_model_read(&other, "model.safetensors", &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "momentum/a.weight: the tensor is missing");
    global_model_free(&other);
    const Shape turned[] = {{2, {3, 2}}, {1, {4}}, {0, {0}}};
    global_model_open(&other, identity, names, turned, 3, false);
    diagnostics = (Diagnostics){0};
    assert_false(global_model_read(&other, "model.safetensors", &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "another type or shape");
    global_model_free(&other);
    model.values[7] = NAN;
    diagnostics = (Diagnostics){0};
    assert_true(global_model_write(&model, "model.safetensors", &diagnostics));
    assert_false(global_model_read(&model, "model.safetensors", &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "element 1 is not finite");
    global_model_free(&model);
}

/* Another program has saved the file: values are told by position. */
static void another_order_is_refused(void **state)
{
    (void)state;
    GlobalModel model;
    Diagnostics diagnostics = {0};
    global_model_open(&model, identity, names, shapes, 3, false);
    fill(&model, 4);
    char check[33], name[33];
    SafeTensorsWriter *writer = safetensors_writer();
    safetensors_writer_metadata(writer, "federation", hash_format(identity, name));
    safetensors_writer_metadata(writer, "round", "0");
    safetensors_writer_metadata(writer, "check", hash_format(global_model_hash(&model, (Hash){0}), check));
    for (size_t i = 3; i-- > 0;)
        safetensors_writer_add(writer, names[i], DTYPE_F32, &shapes[i], model.values + model.tensors[i].first);
    assert_true(safetensors_write(writer, "model.safetensors", &diagnostics));
    global_model_free(&model);
    assert_false(global_model_open_file(&model, identity, "model.safetensors", 0, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "in another order");
    global_model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(average_gives_the_mean_of_models),
        cmocka_unit_test(nesterov_is_that_of_diloco),
        cmocka_unit_test(every_tensor_is_in_one_fragment_and_none_is_empty),
        cmocka_unit_test_setup_teardown(what_is_written_is_read_and_goes_on_bit_for_bit, scratch_folder_enter,
                                        scratch_folder_leave),
        cmocka_unit_test_setup_teardown(control_variates_are_written_and_take_their_share, scratch_folder_enter,
                                        scratch_folder_leave),
        cmocka_unit_test_setup_teardown(fragments_that_met_are_known_until_the_next_step, scratch_folder_enter,
                                        scratch_folder_leave),
        cmocka_unit_test_setup_teardown(a_disk_that_is_full_leaves_the_model_before, scratch_folder_enter,
                                        scratch_folder_leave),
        cmocka_unit_test_setup_teardown(other_federations_and_models_are_refused, scratch_folder_enter,
                                        scratch_folder_leave),
        cmocka_unit_test_setup_teardown(another_order_is_refused, scratch_folder_enter, scratch_folder_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
