/* Data sets of training: their order, what is read of them, and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "runtime/storage/data_order.h"
#include "runtime/storage/dataset.h"
#include "runtime/storage/hash_cache.h"
#include "tests/common/command.h"
#include "tests/common/scratch.h"

static void every_epoch_uses_each_row_once(void **state)
{
    (void)state;
    enum { ROWS = 23, BATCH = 5 };
    DataOrder order;
    DataCursor cursor = {0, 0};
    uint32_t rows[BATCH], first_epoch[5 * BATCH];
    data_order_open(&order, 42, ROWS, BATCH, true);
    for (int epoch = 0; epoch < 3; epoch++) {
        int uses[ROWS] = {0}, differ = 0;
        for (int batch = 0; batch <= ROWS / BATCH; batch++) {
            int64_t count = data_order_next(&order, &cursor, rows);
            assert_int_equal(count, batch == ROWS / BATCH ? ROWS % BATCH : BATCH);
            assert_int_equal(cursor.epoch, epoch);
            assert_int_equal(data_order_at_epoch_end(&order, &cursor), batch == ROWS / BATCH);
            for (int64_t i = count; i < BATCH; i++) assert_int_equal(rows[i], DATASET_NO_ROW);
            for (int i = 0; i < count; i++) {
                assert_int_equal(uses[rows[i]]++, 0);
                if (epoch == 0) first_epoch[batch * BATCH + i] = rows[i];
                differ += rows[i] != first_epoch[batch * BATCH + i];
            }
        }
        assert_int_equal(epoch > 0, differ > 0);
    }
    /* From a cursor in the middle, the same rows as without the interruption. */
    data_order_close(&order);
    data_order_open(&order, 42, ROWS, BATCH, true);
    cursor = (DataCursor){0, BATCH};
    data_order_next(&order, &cursor, rows);
    assert_memory_equal(rows, first_epoch + BATCH, sizeof rows);
    data_order_close(&order);
    data_order_open(&order, 42, ROWS, BATCH, false);
    cursor = (DataCursor){7, BATCH};
    data_order_next(&order, &cursor, rows);
    for (uint32_t i = 0; i < BATCH; i++) assert_int_equal(rows[i], BATCH + i);
    /* Where a loss needs whole batches, the last one is filled up. */
    order.whole = true;
    cursor.offset = ROWS - 2;
    assert_int_equal(data_order_next(&order, &cursor, rows), BATCH);
    assert_int_equal(cursor.offset, ROWS);
    for (uint32_t i = 0; i < BATCH; i++) assert_int_equal(rows[i], (ROWS - 2 + i) % ROWS);
    data_order_close(&order);
    assert_int_equal(data_order_batches(ROWS, BATCH), 5);
    assert_int_equal(data_order_batches(2, BATCH), 1);
    /* Backwards: epochs of 5, 5, 5, 5 and 3 rows. */
    assert_int_equal(data_order_rows_before((DataCursor){1, 10}, ROWS, BATCH, 3), 13);
    assert_int_equal(data_order_rows_before((DataCursor){1, 10}, ROWS, BATCH, 7), 33);
    assert_int_equal(data_order_rows_before((DataCursor){1, ROWS}, ROWS, BATCH, 1), 3);
    assert_int_equal(data_order_rows_before((DataCursor){1, ROWS}, ROWS, BATCH, 6), 26);
    assert_int_equal(data_order_rows_before((DataCursor){0, 5}, ROWS, BATCH, 2), 5);
    assert_int_equal(data_order_rows_before((DataCursor){3, 2}, 2, BATCH, 3), 6);
}

static void hashes_are_kept_while_a_file_is_the_same(void **state)
{
    (void)state;
    Hash found, hash = hash_bytes("a hash", 6), reading = hash_bytes("u8", 2);
    setenv("SKYCC_CACHE", "kept/cache", 1);
    FILE *file = fopen("hashed", "w+");
    assert_true(file && fputs("content", file) >= 0 && fflush(file) == 0);
    int descriptor = fileno(file);
    Hash key = hash_cache_key(descriptor, 3, reading), other = hash_cache_key(descriptor, 4, reading);
    assert_false(hash_cache_find(key, &found));
    hash_cache_keep(descriptor, key, hash); /* too soon after the file was written */
    assert_false(hash_cache_find(key, &found));
    sleep(3);
    hash_cache_keep(descriptor, key, hash);
    assert_true(hash_cache_find(key, &found) && hash_equal(found, hash));
    assert_false(hash_cache_find(other, &found));
    assert_true(hash_equal(hash_cache_key(descriptor, 3, reading), key));
    assert_int_equal(run("chmod 600 hashed"), 0); /* changes ctime alone */
    assert_false(hash_equal(hash_cache_key(descriptor, 3, reading), key));
    assert_int_equal(run("truncate -s -1 kept/cache/data/*"), 0);
    assert_false(hash_cache_find(key, &found));
    hash_cache_keep(descriptor, key, hash); /* the file was changed just now */
    assert_false(hash_cache_find(key, &found));
    assert_int_equal(run("chmod 777 kept/cache/data"), 0); /* anybody may put hashes there */
    sleep(3);
    hash_cache_keep(descriptor, key, hash);
    assert_false(hash_cache_find(key, &found));
    setenv("SKYCC_CACHE", "/dev/null/none", 1); /* no folder is no error */
    hash_cache_keep(descriptor, key, hash);
    assert_false(hash_cache_find(key, &found));
    unsetenv("SKYCC_CACHE");
    fclose(file);
}

/* A program that reads `ids` [2,3] and `labels` [2] of the given types. */
static SkyProgram *reading_program(DType ids, DType labels)
{
    static SkyTensor inputs[2];
    static SkyStage stage;
    static SkyProgram program;
    static const SkyLabels label_inputs[] = {{.name = "other", .ignore_index = 2, .classes = 3},
                                             {.name = "labels", .ignore_index = -100, .classes = 3}};
    inputs[0] = (SkyTensor){.name = "ids", .dtype = ids, .rank = 2, .dim = {2, 3}, .value_limit = 10};
    inputs[1] = (SkyTensor){.name = "labels", .dtype = labels, .rank = 1, .dim = {2}};
    stage = (SkyStage){.inputs = inputs, .input_count = 2};
    program = (SkyProgram){.stages = &stage,
                           .stage_count = 1,
                           .microbatch_size = 2,
                           .microbatch_count = 1,
                           .labels = label_inputs,
                           .label_count = 2};
    return &program;
}

static const char data_path[] = "data.safetensors";

static void write_data(DType id_type, const void *ids, DType label_type, const void *labels)
{
    Diagnostics diagnostics = {0};
    SafeTensorsWriter *writer = safetensors_writer();
    safetensors_writer_add(writer, "ids", id_type, &(Shape){2, {4, 3}}, ids);
    safetensors_writer_add(writer, "labels", label_type, &(Shape){1, {4}}, labels);
    assert_true(safetensors_write(writer, data_path, &diagnostics));
}

static const int32_t good_ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}, good_labels[] = {0, -100, 2, 1};

static void rows_are_converted(void **state)
{
    (void)state;
    const DType types[] = {DTYPE_I32, DTYPE_I64, DTYPE_F32, DTYPE_U8, DTYPE_I16};
    write_data(DTYPE_I32, good_ids, DTYPE_I32, good_labels);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        SkyProgram *program = reading_program(types[t], DTYPE_I64);
        Diagnostics diagnostics = {0};
        Dataset data;
        assert_true(dataset_open(&data, data_path, program, NULL, &diagnostics));
        assert_int_equal(data.rows, 4);
        const uint32_t rows[] = {3, 1}, padded[] = {2, DATASET_NO_ROW};
        int64_t ids[6], labels[2];
        dataset_fill(&data, program, &program->stages->inputs[0], rows, ids);
        for (int i = 0; i < 6; i++)
            assert_int_equal(element_as_integer(types[t], ids, i), good_ids[rows[i / 3] * 3 + (uint32_t)i % 3]);
        dataset_fill(&data, program, &program->stages->inputs[1], padded, labels);
        assert_int_equal(labels[0], 2);
        assert_int_equal(labels[1], -100);
        dataset_fill(&data, program, &program->stages->inputs[0], padded, ids);
        assert_int_equal(element_as_integer(types[t], ids, 3), good_ids[0]);
        LabelCount valid[SKY_MOST_LABELS];
        for (int i = 0; i < 2; i++) {
            dataset_count_labels(&data, program, i ? padded : rows, 2, valid);
            assert_int_equal(valid[0].count, 0);
            assert_int_equal(valid[1].count, 1);
        }
        dataset_close(&data);
    }
}

static void refuse_data(SkyProgram *program, const char *expected)
{
    Diagnostics diagnostics = {0};
    Dataset data;
    assert_false(dataset_open(&data, data_path, program, NULL, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, expected);
}

static void values_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    float fractions[12] = {0.5f}, floats[4] = {0, 1, NAN, 2};
    write_data(DTYPE_F32, fractions, DTYPE_I32, good_labels);
    refuse_data(reading_program(DTYPE_I64, DTYPE_I64), "'ids': holds f32, but the model wants integers (i64)");
    write_data(DTYPE_I32, good_ids, DTYPE_F32, floats);
    refuse_data(reading_program(DTYPE_I64, DTYPE_F32), "'labels': element 2 is not finite");
    int64_t wide[12] = {0, 0, 0, 0, 1LL << 32};
    write_data(DTYPE_I64, wide, DTYPE_I32, good_labels);
    SkyProgram *program = reading_program(DTYPE_I32, DTYPE_I64);
    refuse_data(program, "row 1 holds 4294967296, which is not in 0 ... 9");
    ((SkyTensor *)program->stages->inputs)[0].value_limit = 0; /* then the type is the limit */
    refuse_data(program, "row 1 holds 4294967296, which is not in -2147483648 ... 2147483647");
}

/* Two positions a row, of which the first is compared with nothing; the second program reads them as probabilities. */
/* Holes of a sparse file are zeros that are not read: hashes are those of a file that has all of its zeros, and what
 * comes after a hole is checked. */
static void holes_are_zeros(void **state)
{
    (void)state;
    enum { SPARSE_ROWS = 200000 };
    int32_t *ids = calloc(3 * SPARSE_ROWS, sizeof *ids), *labels = calloc(SPARSE_ROWS, sizeof *labels);
    SkyProgram *program = reading_program(DTYPE_I64, DTYPE_I64);
    Diagnostics diagnostics = {0};
    Dataset whole, sparse;
    struct stat status;
    ids[1] = 3, ids[3 * 150000 + 2] = 9, labels[SPARSE_ROWS - 1] = 2;
    for (int invalid = 0; invalid < 2; invalid++) {
        SafeTensorsWriter *writer = safetensors_writer();
        ids[3 * 150000] = invalid ? 11 : 0;
        safetensors_writer_add(writer, "ids", DTYPE_I32, &(Shape){2, {SPARSE_ROWS, 3}}, ids);
        safetensors_writer_add(writer, "labels", DTYPE_I32, &(Shape){1, {SPARSE_ROWS}}, labels);
        assert_true(safetensors_write(writer, "whole", &diagnostics));
        assert_int_equal(run("cp --sparse=always whole data.safetensors"), 0);
        assert_true(stat(data_path, &status) == 0 && status.st_blocks * 512 < status.st_size / 2);
        if (invalid) {
            refuse_data(program, "row 150000 holds 11, which is not in 0 ... 9");
            continue;
        }
        assert_true(dataset_open(&whole, "whole", program, NULL, &diagnostics));
        assert_true(dataset_open(&sparse, data_path, program, NULL, &diagnostics));
        for (int i = 0; i < 2; i++) assert_true(hash_equal(whole.read[i].content, sparse.read[i].content));
        dataset_close(&whole);
        dataset_close(&sparse);
    }
    free(ids);
    free(labels);
}

static void labels_weigh_what_their_kind_says(void **state)
{
    (void)state;
    static const float weights[] = {0.5f, 0, 4};
    static const int32_t classes[] = {2, 0, 0, -100, 1, 1, 2, 2};
    const float numbers[] = {0.5f, NAN, -100, 1, 0, 0.25f, NAN, NAN};
    const Shape shape = {2, {4, 2}};
    static const struct {
        SkyLabels labels;
        LabelCount expected; /* of rows 0 ... 3 */
    } cases[] = {
        {{.kind = SKY_LABELS_CLASSES, .ignore_index = -100}, {7, 7}},
        {{.kind = SKY_LABELS_CLASSES, .ignore_index = -100, .shifted = 1}, {3, 3}},
        {{.kind = SKY_LABELS_CLASSES, .ignore_index = -100, .weights = weights, .weight_count = 3}, {7, 13}},
        {{.kind = SKY_LABELS_CLASSES, .ignore_index = 2, .weights = weights, .weight_count = 3, .shifted = 1},
         {3, 1.5}},
        {{.kind = SKY_LABELS_NUMBERS}, {5, 5}},
        {{.kind = SKY_LABELS_PROBABILITIES, .ignore_index = -100}, {4, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool number = cases[i].labels.kind != SKY_LABELS_CLASSES;
        LabelCount count = {0};
        const void *data = number ? (const void *)numbers : (const void *)classes;
        labels_count(&cases[i].labels, number ? DTYPE_F32 : DTYPE_I32, &shape, data, 0, 4, &count);
        assert_int_equal(count.count, cases[i].expected.count);
        assert_true(count.weight == cases[i].expected.weight);
    }
}

static void numbers_as_labels_are_checked_and_padded(void **state)
{
    (void)state;
    const float good[4] = {0.5f, NAN, -100, 1}, bad[4] = {0.5f, 0, 3, 1};
    const double infinite[4] = {0, 0, -INFINITY, 0};
    SkyProgram *program = reading_program(DTYPE_I64, DTYPE_F32);
    SkyLabels labels = {.name = "labels", .kind = SKY_LABELS_PROBABILITIES, .ignore_index = -100};
    program->labels = &labels;
    program->label_count = 1;
    write_data(DTYPE_I32, good_ids, DTYPE_F32, bad);
    refuse_data(program, "'labels': row 2 holds 3, which is not in 0 ... 1");
    write_data(DTYPE_I32, good_ids, DTYPE_F32, good);
    Diagnostics diagnostics = {0};
    Dataset data;
    LabelCount count[SKY_MOST_LABELS];
    float filled[2];
    const uint32_t rows[] = {0, 2, 1, 3}, padded[] = {3, DATASET_NO_ROW};
    assert_true(dataset_open(&data, data_path, program, NULL, &diagnostics));
    dataset_count_labels(&data, program, rows, 4, count);
    assert_int_equal(count[0].count, 2);
    dataset_fill(&data, program, &program->stages->inputs[1], padded, filled);
    assert_true(filled[0] == 1 && isnan(filled[1]));
    dataset_close(&data);
    labels.kind = SKY_LABELS_NUMBERS;
    write_data(DTYPE_I32, good_ids, DTYPE_F64, infinite);
    refuse_data(program, "'labels': row 2 holds -inf, which is not finite");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_epoch_uses_each_row_once),
        cmocka_unit_test(hashes_are_kept_while_a_file_is_the_same),
        cmocka_unit_test(rows_are_converted),
        cmocka_unit_test(values_that_do_not_fit_are_refused),
        cmocka_unit_test(holes_are_zeros),
        cmocka_unit_test(labels_weigh_what_their_kind_says),
        cmocka_unit_test(numbers_as_labels_are_checked_and_padded),
    };
    return cmocka_run_group_tests(tests, scratch_folder_enter, scratch_folder_leave);
}
