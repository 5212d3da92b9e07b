#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buffer.h"
#include "base/safetensors.h"
#include "tests/common/scratch.h"

static Scratch file_of(const char *header, const char *data, size_t data_size)
{
    FREED_WITH(buffer_free) Buffer buffer = {0};
    uint64_t length = strlen(header);
    for (int i = 0; i < 8; i++) buffer_append(&buffer, &(char){(char)(length >> 8 * i)}, 1);
    buffer_append(&buffer, header, length);
    buffer_append(&buffer, data, data_size);
    Scratch file = scratch_file(buffer.bytes, buffer.size);
    return file;
}

static void expect_refused(Scratch file, const char *expected)
{
    Diagnostics diagnostics = {0};
    SafeTensors tensors;
    assert_false(safetensors_open(&tensors, file.path, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, expected);
    unlink(file.path);
}

static void refuses(const char *header, size_t data_size, const char *expected)
{
    static const char zeros[64];
    expect_refused(file_of(header, zeros, data_size), expected);
}

static void bad_headers_are_refused(void **state)
{
    (void)state;
    refuses("", 0, "no valid header");
    refuses("[]", 0, "not an object");
    refuses("{\"a\":", 0, "no valid header");
    refuses("{\"a\":{},\"a\":{}}", 0, "duplicate");
    refuses("{\"a\":{}}", 0, "tensor 'a': has no dtype");
    refuses("{\"a\":7}", 0, "has no dtype");
    refuses("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, "not supported");
    refuses("{\"__metadata__\":{\"a\":1}}", 0, "strings only");
    refuses("{\"__metadata__\":[]}", 0, "must be an object");
    expect_refused(scratch_file("short", 5), "too short");
    expect_refused(scratch_file("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "not a safetensors file");
    expect_refused(scratch_file("\x40\0\0\0\0\0\0\0{}", 10), "not a safetensors file");
    expect_refused(scratch_file("", 0), "too short");
}

static void bad_shapes_and_offsets_are_refused(void **state)
{
    (void)state;
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "does not match");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3, "outside the file");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "outside the file");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "outside the file");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]}}", 4, "has no data_offsets");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "has no data_offsets");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "has no data_offsets");
    refuses("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "a wrong shape");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "a wrong shape");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}}", 4, "a wrong shape");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "a wrong shape");
    /* Products that wrap to the right size in 64 bits. */
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}", 4, "a wrong shape");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "a wrong shape");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
            3, "overlaps");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
            2, "overlaps");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3, "unused bytes");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 3, "bytes after the last tensor");
    expect_refused(file_of("{\"a\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}}", "\1\2", 2),
                   "neither 0 nor 1");
}

static void unaligned_and_empty_tensors_are_read(void **state)
{
    (void)state;
    static const char data[] = {7, 1, 0, 0, 0, 2, 0, 0, 0};
    Scratch file = file_of("{\"x\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[1,9]},"
                           "\"none\":{\"dtype\":\"F64\",\"shape\":[0,3],\"data_offsets\":[1,1]},"
                           "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
                           data, sizeof data);
    Diagnostics diagnostics = {0};
    SafeTensors tensors;
    assert_true(safetensors_open(&tensors, file.path, &diagnostics));
    assert_int_equal(tensors.count, 3);
    assert_string_equal(tensors.tensors[0].name, "b");
    assert_string_equal(tensors.tensors[1].name, "none");
    const SafeTensor *x = safetensors_find(&tensors, "x");
    assert_int_equal((uintptr_t)x->data % 4, 0);
    assert_int_equal(element_as_integer(x->dtype, x->data, 1), 2);
    assert_int_equal(safetensors_find(&tensors, "none")->bytes, 0);
    assert_null(safetensors_find(&tensors, "y"));
    assert_null(safetensors_metadata(&tensors, "y"));
    safetensors_close(&tensors);
    unlink(file.path);
}

/* Writes three tensors of different widths and metadata to a scratch file. */
static Scratch write_sample(void)
{
    static const uint8_t flags[3] = {1, 0, 1};
    static const float numbers[4] = {1, 2, 3, 4};
    static const int64_t labels[1] = {-100};
    SafeTensorsWriter *writer = safetensors_writer();
    safetensors_writer_metadata(writer, "labels", "0 \"no\", 1 yes");
    safetensors_writer_add(writer, "flags", DTYPE_BOOL, &(Shape){1, {3}}, flags);
    safetensors_writer_add(writer, "a/\"number\"", DTYPE_F32, &(Shape){2, {2, 2}}, numbers);
    safetensors_writer_add(writer, "labels", DTYPE_I64, &(Shape){1, {1}}, labels);
    Scratch file = scratch_text("");
    Diagnostics diagnostics = {0};
    assert_true(safetensors_write(writer, file.path, &diagnostics));
    return file;
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    Scratch file = write_sample();
    Diagnostics diagnostics = {0};
    SafeTensors tensors;
    assert_true(safetensors_open(&tensors, file.path, &diagnostics));
    assert_int_equal(tensors.count, 3);
    assert_int_equal(((uintptr_t)tensors.tensors[0].data - (uintptr_t)tensors.file.bytes) % 64, 0);
    assert_string_equal(safetensors_metadata(&tensors, "labels"), "0 \"no\", 1 yes");
    const SafeTensor *numbers = safetensors_find(&tensors, "a/\"number\"");
    assert_true(shape_equal(&numbers->shape, &(Shape){2, {2, 2}}));
    assert_true(element_as_double(numbers->dtype, numbers->data, 3) == 4);
    const SafeTensor *labels = safetensors_find(&tensors, "labels");
    assert_int_equal(element_as_integer(labels->dtype, labels->data, 0), -100);
    assert_memory_equal(safetensors_find(&tensors, "flags")->data, "\1\0\1", 3);
    for (size_t i = 0; i < tensors.count; i++) /* aligned where they stand */
        assert_int_equal((uintptr_t)tensors.tensors[i].data % dtype_size(tensors.tensors[i].dtype), 0);
    safetensors_close(&tensors);
    unlink(file.path);
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    Scratch file = write_sample();
    Diagnostics diagnostics = {0};
    MappedFile whole;
    assert_true(file_map(&whole, file.path, &diagnostics));
    for (size_t size = 0; size < whole.size; size++) {
        Scratch prefix = scratch_file(whole.bytes, size);
        SafeTensors tensors;
        assert_false(safetensors_open(&tensors, prefix.path, &diagnostics));
        unlink(prefix.path);
    }
    assert_int_equal((size_t)diagnostics.errors, whole.size);
    file_unmap(&whole);
    diagnostics_free(&diagnostics);
    unlink(file.path);
}

/* Each byte of the header and the length replaced: read or refused, never worse (the sanitizers watch). */
static void every_changed_byte_is_survived(void **state)
{
    (void)state;
    Scratch file = write_sample();
    Diagnostics diagnostics = {0};
    MappedFile whole;
    assert_true(file_map(&whole, file.path, &diagnostics));
    unsigned char *copy = memory_allocate(whole.size);
    static const unsigned char replacements[] = {0, '0', '9', '"', '-', '[', '{', '}', ',', 0xff};
    int refused = 0;
    for (size_t at = 0; at < whole.size; at++)
        for (size_t r = 0; r < sizeof replacements; r++) {
            memcpy(copy, whole.bytes, whole.size);
            copy[at] = replacements[r];
            Scratch changed = scratch_file(copy, whole.size);
            SafeTensors tensors;
            if (safetensors_open(&tensors, changed.path, &diagnostics))
                safetensors_close(&tensors);
            else
                refused++;
            unlink(changed.path);
        }
    assert_int_equal(diagnostics.errors, refused);
    assert_true(refused > 1000);
    free(copy);
    file_unmap(&whole);
    diagnostics_free(&diagnostics);
    unlink(file.path);
}

static void a_file_that_cannot_be_created_is_an_error(void **state)
{
    (void)state;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    SafeTensorsWriter *writer = safetensors_writer();
    safetensors_writer_add(writer, "x", DTYPE_F32, &(Shape){0}, &(float){1});
    assert_false(safetensors_write(writer, scratch_absent().path, &diagnostics));
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(bad_shapes_and_offsets_are_refused),
        cmocka_unit_test(unaligned_and_empty_tensors_are_read),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_changed_byte_is_survived),
        cmocka_unit_test(a_file_that_cannot_be_created_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
