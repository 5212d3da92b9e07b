/* Weights in files next to the model: which names and contents are allowed, and what happens when a file changes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/common/command.h"
#include "tests/frontend/onnx/import_check.h"

#define CRAFTED SKY_TEST_DATA "/malformed/crafted"

/* ---- The moment between check and use ---- */

typedef enum Moment { NEVER, BEFORE_OPEN, AFTER_OPEN } Moment;

/* At that moment of opening the external file, "w.bin" is replaced by the file "other". */
static Moment swap_at;

static void swap_files(Moment now)
{
    if (now != swap_at) return;
    if (rename("other", "w.bin") != 0) abort();
    swap_at = NEVER;
}

/* The linker redirects syscall to here: openat2, whose four arguments arrive as if it were not variadic. */
long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, const void *b, const void *c, size_t d);
long __wrap_syscall(long number, long a, const void *b, const void *c, size_t d)
{
    if (number == SYS_openat2) swap_files(BEFORE_OPEN);
    long result = __real_syscall(number, a, b, c, d);
    if (number == SYS_openat2) swap_files(AFTER_OPEN);
    return result;
}

/* ---- Places ---- */

/* A model, external.onnx, whose 64 bytes of weights are said to lie there. */
static void write_external_model(const char *location, const char *offset, const char *length)
{
    MappedFile file;
    Diagnostics diagnostics = {0};
    FREED_WITH(arena_free) Arena arena = {0};
    assert_true(file_map(&file, CRAFTED "/ok-external.onnx", &diagnostics));
    ProtobufCAllocator allocator = onnx_allocator(&arena);
    Onnx__ModelProto *model = onnx__model_proto__unpack(&allocator, file.size, file.bytes);
    assert_non_null(model);
    Onnx__TensorProto *weight = model->graph->initializer[0];
    assert_int_equal(weight->n_external_data, 3);
    const char *const values[] = {location, offset, length};
    for (int i = 0; i < 3; i++) weight->external_data[i]->value = arena_string(&arena, values[i]);
    size_t size = onnx__model_proto__get_packed_size(model);
    unsigned char *bytes = arena_allocate(&arena, size);
    onnx__model_proto__pack(model, bytes);
    write_bytes("external.onnx", bytes, size);
    file_unmap(&file);
}

/* `problem`: NULL if the model is accepted. */
static void assert_external_range(const char *location, const char *offset, const char *length, const char *problem)
{
    char *report;
    write_external_model(location, offset, length);
    int code = check_model("external.onnx", &report);
    if (!problem ? code != EXIT_OK : code != EXIT_BAD_INPUT || !strstr(report, problem))
        fail_msg("'%s', %s, %s: exit code %d: %s", location, offset, length, code, report);
    free(report);
}

static void assert_external(const char *location, const char *problem)
{
    assert_external_range(location, "0", "64", problem);
}

static void external_data_stays_inside_the_folder(void **state)
{
    (void)state;
    assert_int_equal(mkdir("d", 0700), 0);
    copy_file(CRAFTED "/w.bin", "w.bin");
    copy_file(CRAFTED "/w.bin", "d/w.bin");
    copy_file(CRAFTED "/w.bin", "a..b");
    assert_external("w.bin", NULL);
    assert_external("d/w.bin", NULL);
    assert_external("./d//w.bin", NULL);
    assert_external("a..b", NULL); /* dots within a name are a name */
    assert_external("", "is empty");
    assert_external("none.bin", "does not exist");
    assert_external("..", "leaves the model's folder");
    assert_external("../w.bin", "leaves the model's folder");
    assert_external("d/../w.bin", "leaves the model's folder");
    assert_external("d/../../w.bin", "leaves the model's folder");
    assert_external("d/..", "leaves the model's folder");
    assert_external("none/../w.bin", "leaves the model's folder");
    assert_external("..\\w.bin", "backslash");
    char *whole = realpath("w.bin", NULL);
    assert_external(whole, "absolute path");
    free(whole);
    assert_external("//etc/passwd", "absolute path");
    assert_external("w.bin/", "w.bin/'"); /* a file is no folder */
    assert_external("/proc/self/fd/0", "absolute path");
}

static void external_data_is_a_plain_file_of_its_own(void **state)
{
    (void)state;
    assert_int_equal(mkdir("d", 0700), 0);
    assert_int_equal(mkdir("d/e", 0700), 0);
    copy_file(CRAFTED "/w.bin", "w.bin");
    copy_file(CRAFTED "/w.bin", "d/e/w.bin");
    copy_file(CRAFTED "/w.bin", "hard1");
    assert_int_equal(link("hard1", "hard2"), 0);
    assert_int_equal(symlink("w.bin", "final"), 0);
    assert_int_equal(symlink("none", "dangling"), 0);
    assert_int_equal(symlink("loop", "loop"), 0);
    assert_int_equal(symlink("d", "parent"), 0);
    assert_int_equal(symlink("e", "d/middle"), 0);
    assert_int_equal(symlink("/proc/self", "magic"), 0);
    assert_int_equal(mkfifo("fifo", 0600), 0);
    write_bytes("empty", "", 0);
    assert_external("final", "symbolic link");
    assert_external("dangling", "symbolic link");
    assert_external("loop", "symbolic link");
    assert_external("parent/e/w.bin", "symbolic link");
    assert_external("d/middle/w.bin", "symbolic link");
    assert_external("magic/environ", "symbolic link");
    assert_external("hard1", "several hard links");
    assert_external("hard2", "several hard links");
    assert_external("fifo", "not a regular file");
    assert_external("d", "not a regular file");
    assert_external(".", "not a regular file");
    assert_external("empty", "beyond the end");
    if (mknod("zero", S_IFCHR | 0600, makedev(1, 5)) == 0) /* which not everybody may */
        assert_external("zero", "not a regular file");
}

static void external_data_lies_inside_the_file(void **state)
{
    (void)state;
    unsigned char bytes[160] = {0};
    write_bytes("w.bin", bytes, sizeof bytes);
    static const struct {
        const char *offset, *length, *problem;
    } ranges[] = {
        {"0", "64", NULL},
        {"96", "64", NULL},
        {"97", "64", "beyond the end"},
        {"160", "64", "beyond the end"},
        {"161", "0", "beyond the end"},
        {"160", "0", "needs 64"},
        {"0", "63", "needs 64"},
        {"0", "65", "needs 64"},
        {"0", "161", "beyond the end"},
        {"18446744073709551615", "64", "beyond the end"},
        {"18446744073709551552", "64", "beyond the end"}, /* their sum is 2^64, which is 0 */
        {"64", "18446744073709551552", "beyond the end"},
        {"9223372036854775807", "9223372036854775807", "beyond the end"},
        {"18446744073709551616", "64", "offset that is not a number"},
        {"0", "18446744073709551616", "length that is not a number"},
        {"-1", "64", "offset that is not a number"},
        {"+0", "64", "offset that is not a number"},
        {" 0", "64", "offset that is not a number"},
        {"0x0", "64", "offset that is not a number"},
        {"", "64", "offset that is not a number"},
        {"0", "64 ", "length that is not a number"},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        assert_external_range("w.bin", ranges[i].offset, ranges[i].length, ranges[i].problem);
}

/* ---- Changes ---- */

/* Imports external.onnx, swapping files at that moment; it must fail and say `problem`, or, if that is NULL, find
 * weights that are all 2. */
static void assert_swapped(Moment moment, const char *problem)
{
    Graph graph;
    ImportedModel model;
    Diagnostics diagnostics = {0};
    const char *path = "external.onnx";
    graph_init(&graph, path);
    swap_at = moment;
    bool ok = import_onnx(&graph, &model, path, &(ImportOptions){.default_dimension = 8}, &diagnostics);
    char *report = diagnostics_text(&diagnostics);
    if (ok == (problem != NULL) || (problem && !strstr(report, problem)))
        fail_msg("not '%s': %s", problem ? problem : "accepted", report);
    if (ok) assert_int_equal(*(const unsigned char *)graph_value(&graph, model.parameters[0].value)->data, 2);
    assert_int_equal(swap_at, NEVER);
    free(report);
    graph_free(&graph);
    imported_model_free(&model);
    diagnostics_free(&diagnostics);
    unlink("w.bin");
}

static void what_was_opened_is_what_is_checked_and_read(void **state)
{
    (void)state;
    unsigned char first[64], second[64];
    memset(first, 1, sizeof first);
    memset(second, 2, sizeof second);
    write_external_model("w.bin", "0", "64");
    for (Moment moment = BEFORE_OPEN; moment <= AFTER_OPEN; moment++) {
        const char *after = moment == AFTER_OPEN ? "was replaced" : NULL;
        write_bytes("w.bin", first, sizeof first);
        write_bytes("other", second, sizeof second);
        assert_swapped(moment, after);
        write_bytes("w.bin", first, sizeof first);
        write_bytes("other", second, 1);
        assert_swapped(moment, after ? after : "beyond the end");
        write_bytes("w.bin", first, sizeof first);
        assert_int_equal(symlink("external.onnx", "other"), 0);
        assert_swapped(moment, after ? after : "symbolic link");
        write_bytes("w.bin", first, sizeof first);
        assert_int_equal(mkfifo("other", 0600), 0);
        assert_swapped(moment, after ? after : "not a regular file");
    }
}

/* What was mapped cannot be taken out of its file's hands: whoever cuts it short ends the command, with a reason. */
static void a_file_cut_short_while_mapped_ends_the_process_cleanly(void **state)
{
    (void)state;
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        static const char bytes[1 << 16] = {1};
        Diagnostics diagnostics = {0};
        MappedFile file;
        OutputFile output;
        dup2(ends[1], STDERR_FILENO);
        files_removed_by_interrupts();
        write_bytes("cut", bytes, sizeof bytes);
        if (!file_create(&output, "output", &diagnostics)) _exit(2);
        if (!file_map(&file, "cut", &diagnostics) || truncate("cut", 0) != 0) _exit(2);
        _exit(((volatile const unsigned char *)file.bytes)[sizeof bytes - 1] ? 3 : 4);
    }
    close(ends[1]);
    char text[512] = "";
    size_t size = 0; /* the message comes in pieces */
    for (ssize_t some; (some = read(ends[0], text + size, sizeof text - 1 - size)) > 0;) size += (size_t)some;
    close(ends[0]);
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_BAD_INPUT);
    assert_non_null(strstr(text, "cut short"));
    assert_int_equal(unlink("cut"), 0);
    must_run("test -z \"$(ls -A)\""); /* nothing of the output is left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(external_data_stays_inside_the_folder, scratch_folder_enter,
                                        scratch_folder_leave),
        cmocka_unit_test_setup_teardown(external_data_is_a_plain_file_of_its_own, scratch_folder_enter,
                                        scratch_folder_leave),
        cmocka_unit_test_setup_teardown(external_data_lies_inside_the_file, scratch_folder_enter, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(what_was_opened_is_what_is_checked_and_read, scratch_folder_enter,
                                        scratch_folder_leave),
        cmocka_unit_test_setup_teardown(a_file_cut_short_while_mapped_ends_the_process_cleanly, scratch_folder_enter,
                                        scratch_folder_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
