#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buffer.h"
#include "frontend/numpy/npy.h"
#include "tests/common/scratch.h"

#define DATA SKY_TEST_DATA "/npy/"

typedef struct Read {
    Arena arena;
    NpyArray *arrays;
    size_t count;
} Read;

static Read read_good(const char *path)
{
    Diagnostics diagnostics = {0};
    Read read = {0};
    bool ok = npy_read(path, &read.arena, &read.arrays, &read.count, &diagnostics);
    if (!ok) diagnostics_print(&diagnostics, stderr);
    assert_true(ok);
    return read;
}

static void arrays_written_by_numpy_are_read(void **state)
{
    (void)state;
    Read read = read_good(DATA "f32.npy");
    assert_int_equal(read.count, 1);
    assert_null(read.arrays->name);
    assert_int_equal(read.arrays->dtype, DTYPE_F32);
    assert_true(shape_equal(&read.arrays->shape, &(Shape){2, {2, 3}}));
    for (int i = 0; i < 6; i++) assert_true(element_as_double(DTYPE_F32, read.arrays->data, i) == i);
    arena_free(&read.arena);
    read = read_good(DATA "fortran.npy");
    assert_true(shape_equal(&read.arrays->shape, &(Shape){3, {2, 3, 4}}));
    for (int i = 0; i < 24; i++) assert_int_equal(element_as_integer(DTYPE_I64, read.arrays->data, i), i);
    arena_free(&read.arena);
    read = read_good(DATA "big-endian.npy");
    assert_memory_equal(read.arrays->data, ((int32_t[]){1, -2, 300}), 12);
    arena_free(&read.arena);
    read = read_good(DATA "scalar.npy");
    assert_int_equal(read.arrays->shape.rank, 0);
    assert_true(element_as_double(DTYPE_F64, read.arrays->data, 0) == 2.5);
    arena_free(&read.arena);
}

static void archives_written_by_numpy_are_read(void **state)
{
    (void)state;
    Read read = read_good(DATA "stored.npz");
    assert_int_equal(read.count, 2);
    assert_string_equal(read.arrays[0].name, "input_ids");
    assert_int_equal(element_as_integer(DTYPE_I64, read.arrays[0].data, 7), 7);
    assert_string_equal(read.arrays[1].name, "mask");
    assert_int_equal(read.arrays[1].dtype, DTYPE_BOOL);
    assert_memory_equal(read.arrays[1].data, "\1\0", 2);
    arena_free(&read.arena);
    read = read_good(DATA "deflated.npz");
    assert_true(shape_equal(&read.arrays[0].shape, &(Shape){2, {4, 100}}));
    for (int i = 0; i < 400; i++) assert_int_equal(element_as_integer(DTYPE_I32, read.arrays[0].data, i), 7);
    assert_int_equal(read.arrays[1].dtype, DTYPE_F16);
    assert_true(element_as_double(DTYPE_F16, read.arrays[1].data, 5) == 5);
    arena_free(&read.arena);
}

static void refuses_path(const char *path, const char *expected)
{
    Diagnostics diagnostics = {0};
    Read read = {0};
    assert_false(npy_read(path, &read.arena, &read.arrays, &read.count, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, expected);
    arena_free(&read.arena);
}

/* A version 1 array with this header and `size` zero bytes of data. */
static void refuses(const char *header, size_t size, const char *expected)
{
    static const char zeros[64];
    FREED_WITH(buffer_free) Buffer bytes = {0};
    buffer_append(&bytes, "\x93NUMPY\x01\x00", 8);
    buffer_append(&bytes, (char[]){(char)strlen(header), (char)(strlen(header) >> 8)}, 2);
    buffer_append(&bytes, header, strlen(header));
    buffer_append(&bytes, zeros, size);
    Scratch file = scratch_file(bytes.bytes, bytes.size);
    refuses_path(file.path, expected);
    unlink(file.path);
}

static void what_is_no_supported_array_is_refused(void **state)
{
    (void)state;
    refuses_path(scratch_absent().path, "cannot open");
    refuses_path(DATA "objects.npy", "element type that is not supported");
#define ARRAY(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"
    refuses(ARRAY("'<f4'", "False", "(1,)"), 5, "more or fewer bytes");
    refuses(ARRAY("'<f4'", "False", "(1,)"), 0, "more or fewer bytes");
    refuses(ARRAY("'<f4'", "False", "(4611686018427387904, 4)"), 0, "damaged or not supported");
    refuses(ARRAY("'<f4'", "False", "(99999999999999999999,)"), 0, "damaged or not supported");
    refuses(ARRAY("'<f4'", "False", "(1,1,1,1,1,1,1,1,1)"), 4, "damaged or not supported");
    refuses(ARRAY("'<f4'", "False", "(-1,)"), 0, "damaged or not supported");
    refuses(ARRAY("'<f4'", "False", "(1"), 4, "damaged or not supported");
    refuses(ARRAY("'<f4'", "0", "(1,)"), 4, "damaged or not supported");
    refuses(ARRAY("[('a', '<f4')]", "False", "(1,)"), 4, "damaged or not supported");
    refuses(ARRAY("'<c8'", "False", "(1,)"), 8, "element type that is not supported");
    refuses(ARRAY("'f4'", "False", "(1,)"), 4, "element type that is not supported");
    refuses(ARRAY("'<U1'", "False", "(1,)"), 4, "element type that is not supported");
#undef ARRAY
    refuses("{'descr': '<f4', 'shape': (1,)}", 4, "damaged or not supported");
    refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}", 4, "damaged or not supported");
    char wide[10020]; /* a dictionary that would be right, were it shorter */
    snprintf(wide, sizeof wide, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,) %9960s}", "");
    refuses(wide, 4, "damaged or not supported");
    refuses("", 0, "is not a NumPy array");
}

/* The offset of the first entry of the central directory. */
static size_t directory_of(const MappedFile *archive)
{
    const unsigned char *record = memmem(archive->bytes, archive->size, "PK\1\2", 4);
    assert_non_null(record);
    return (size_t)(record - archive->bytes);
}

static void refuses_archive(const void *bytes, size_t size, const char *expected)
{
    Scratch plain = scratch_file(bytes, size);
    char named[80];
    snprintf(named, sizeof named, "%s.npz", plain.path);
    assert_int_equal(rename(plain.path, named), 0);
    refuses_path(named, expected);
    unlink(named);
}

static void hostile_archives_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at; /* in the first entry of the central directory */
        const char *bytes;
        size_t size;
        const char *expected;
    } changes[] = {
        {8, "\1", 1, "input_ids.npy: is encrypted"},
        {10, "\14", 1, "input_ids.npy: is compressed in a way that is not supported"},
        {16, "\1\2\3\4", 4, "input_ids.npy: is damaged"},
        {24, "\xfe\xff\xff\xff", 4, "input_ids.npy: claims more bytes than the archive can hold"},
        {20, "\xff\xff\xff\x7f\xff\xff\xff\x7f", 8, "input_ids.npy: claims more bytes than the archive can hold"},
    };
    Diagnostics diagnostics = {0};
    MappedFile archive;
    assert_true(file_map(&archive, DATA "deflated.npz", &diagnostics));
    size_t directory = directory_of(&archive);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        unsigned char *copy = memory_allocate(archive.size);
        memcpy(copy, archive.bytes, archive.size);
        memcpy(copy + directory + changes[i].at, changes[i].bytes, changes[i].size);
        refuses_archive(copy, archive.size, changes[i].expected);
        free(copy);
    }
    refuses_archive("", 0, "is not a ZIP archive");
    file_unmap(&archive);
}

/* The first member listed `times` times, each time with the digit of its turn as its name's first letter if `renamed`:
 * all share the bytes that are in the archive once. */
static void refuses_repeated(int times, bool renamed, const char *expected)
{
    enum { RECORD_BYTES = 46, END_BYTES = 22 };
    Diagnostics diagnostics = {0};
    MappedFile archive;
    assert_true(file_map(&archive, DATA "stored.npz", &diagnostics));
    size_t directory = directory_of(&archive), size = RECORD_BYTES + strlen("input_ids.npy");
    FREED_WITH(buffer_free) Buffer bytes = {0};
    buffer_append(&bytes, archive.bytes, directory);
    for (int i = 0; i < times; i++) {
        buffer_append(&bytes, archive.bytes + directory, size);
        if (renamed) bytes.bytes[bytes.size - strlen("input_ids.npy")] = (char)('0' + i);
    }
    buffer_append(&bytes, archive.bytes + archive.size - END_BYTES, END_BYTES);
    char *end = bytes.bytes + bytes.size - END_BYTES;
    end[8] = end[10] = (char)times;
    uint32_t length = (uint32_t)((size_t)times * size);
    memcpy(end + 12, &length, sizeof length);
    refuses_archive(bytes.bytes, bytes.size, expected);
    file_unmap(&archive);
}

static void members_that_repeat_are_refused(void **state)
{
    (void)state;
    refuses_repeated(2, false, "input_ids: is in the archive twice");
    refuses_repeated(9, true, "claims more bytes than the archive can hold");
}

/* Every prefix and many changed bytes of `path`, whose name ends in `suffix`: read or refused, never worse. */
static void damage(const char *path, const char *suffix)
{
    static const unsigned char replacements[] = {0, 1, 0x7f, 0x80, 0xff, '(', '\''};
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    MappedFile whole;
    assert_true(file_map(&whole, path, &diagnostics));
    unsigned char *copy = memory_allocate(whole.size);
    int refused = 0;
    for (size_t at = 0; at < whole.size; at++)
        for (size_t r = 0; r <= sizeof replacements; r++) {
            memcpy(copy, whole.bytes, whole.size);
            bool prefix = r == sizeof replacements;
            if (!prefix) copy[at] = replacements[r];
            Scratch plain = scratch_file(copy, prefix ? at : whole.size);
            char named[80];
            snprintf(named, sizeof named, "%s%s", plain.path, suffix);
            assert_int_equal(rename(plain.path, named), 0);
            Read read = {0};
            int errors = diagnostics.errors;
            bool ok = npy_read(named, &read.arena, &read.arrays, &read.count, &diagnostics);
            assert_int_equal(diagnostics.errors - errors, !ok);
            if (prefix) assert_false(ok);
            refused += !ok;
            arena_free(&read.arena);
            unlink(named);
        }
    assert_true(refused > 500);
    free(copy);
    file_unmap(&whole);
}

static void damaged_files_are_survived(void **state)
{
    (void)state;
    damage(DATA "fortran.npy", ".npy");
    damage(DATA "stored.npz", ".npz");
    damage(DATA "deflated.npz", ".npz");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_written_by_numpy_are_read),      cmocka_unit_test(archives_written_by_numpy_are_read),
        cmocka_unit_test(what_is_no_supported_array_is_refused), cmocka_unit_test(hostile_archives_are_refused),
        cmocka_unit_test(members_that_repeat_are_refused),       cmocka_unit_test(damaged_files_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
