/* Models that strangers could send: every verdict as listed; no crash, and no more than 2 seconds and 256 MiB, on any
 * prefix or mutation. The sanitizer build of the same tests finds what does not crash. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/json.h"
#include "base/random.h"
#include "models/bert.h"
#include "tests/common/limits.h"
#include "tests/frontend/onnx/import_check.h"
#include "tests/frontend/onnx/model_changes.h"

#define CRAFTED SKY_TEST_DATA "/malformed/crafted"
#define CHECKER SKY_TEST_DATA "/malformed/onnx-checker"

static bool has_suffix(const char *name, const char *suffix)
{
    size_t a = strlen(name), b = strlen(suffix);
    return a >= b && strcmp(name + a - b, suffix) == 0;
}

/* One line of the summary. */
typedef struct Tally {
    const char *what;
    int passed, failed;
    double slowest_s;
} Tally;

static void summarize(const Tally *tally)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%s: %d passed, %d failed; at most %.3f s each, the whole process never over %ld MiB\n", tally->what,
           tally->passed, tally->failed, tally->slowest_s, usage.ru_maxrss / 1024);
    assert_true(tally->passed > 0);
    assert_int_equal(tally->failed, 0);
}

/* Checks a model within the limits; the exit code. */
static int check_limited(Tally *tally, const char *path, char **report)
{
    Limits limits = limits_begin();
    int code = check_model(path, report);
    double seconds = limits_end(&limits);
    if (seconds > tally->slowest_s) tally->slowest_s = seconds;
    if (seconds > LIMIT_SECONDS) fail_msg("%s: took %.1f s", path, seconds);
    return code;
}

static void count(Tally *tally, bool right, const char *name, const char *expected, int code, const char *report)
{
    if (!right) print_error("%s: exit code %d, expected to %s: %s", name, code, expected, report);
    *(right ? &tally->passed : &tally->failed) += 1;
}

/* ---- Verdicts ---- */

static void crafted_models_get_their_verdicts(void **state)
{
    (void)state;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Tally tally = {.what = "crafted models"};
    json_t *manifest = json_read(CRAFTED "/manifest.json", &diagnostics), *entry;
    assert_non_null(manifest);
    copy_file(CRAFTED "/w.bin", "w.bin");
    assert_int_equal(symlink("/etc/passwd", "link-to-passwd"), 0);
    const char *name;
    json_object_foreach(manifest, name, entry)
    {
        char from[512], *report;
        snprintf(from, sizeof from, CRAFTED "/%s", name);
        copy_file(from, name);
        const char *expected = json_string_value(json_object_get(entry, "expect"));
        int code = check_limited(&tally, name, &report);
        bool accepted = code == EXIT_OK;
        bool right = strcmp(expected, accepted ? "accept" : "reject") == 0 || strcmp(expected, "accept-or-reject") == 0;
        right = right && (accepted || code == EXIT_BAD_INPUT || code == EXIT_UNSUPPORTED_OPERATOR);
        count(&tally, right, name, expected, code, report);
        free(report);
    }
    assert_int_equal(tally.passed + tally.failed, json_object_size(manifest));
    json_decref(manifest);
    summarize(&tally);
}

/* Models of ONNX's own checker. What it accepts may still be beyond skycc: control flow is refused as unsupported, and
 * the reason is printed. */
static void models_of_the_onnx_checker_get_its_verdicts(void **state)
{
    (void)state;
    DIR *directory = opendir(CHECKER);
    assert_non_null(directory);
    Tally tally = {.what = "models of ONNX's checker"};
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (!has_suffix(entry->d_name, ".model.pb")) continue;
        char path[512], *report;
        snprintf(path, sizeof path, CHECKER "/%s", entry->d_name);
        int code = check_limited(&tally, path, &report);
        bool accepts = has_suffix(entry->d_name, ".accept.model.pb"), beyond = code == EXIT_UNSUPPORTED_OPERATOR;
        bool right = accepts ? code == EXIT_OK || (beyond && strstr(report, "Loop")) : code == EXIT_BAD_INPUT || beyond;
        count(&tally, right, entry->d_name, accepts ? "accept" : "reject", code, report);
        if (accepts && beyond) printf("%s: sound, but beyond skycc: %s", entry->d_name, strchr(report, ' ') + 1);
        free(report);
    }
    closedir(directory);
    assert_int_equal(tally.passed + tally.failed, 13);
    summarize(&tally);
}

/* ---- Prefixes and mutations ---- */

static unsigned char *small_model(size_t *size)
{
    Diagnostics diagnostics = {0};
    const BertConfig config = {.layers = 2,
                               .hidden = 4,
                               .heads = 2,
                               .intermediate = 4,
                               .vocabulary = 6,
                               .positions = 4,
                               .classes = 2,
                               .batch = 2,
                               .sequence = 3,
                               .weights = true,
                               .seed = 1};
    const char *path = "small.onnx";
    assert_true(bert_write(&config, path, &diagnostics));
    assert_int_equal(check_model(path, NULL), EXIT_OK);
    MappedFile file;
    assert_true(file_map(&file, path, &diagnostics));
    unsigned char *bytes = memory_allocate(file.size);
    memcpy(bytes, file.bytes, *size = file.size);
    file_unmap(&file);
    return bytes;
}

/* A file in memory, because there are many. */
static void assert_survived(Tally *tally, const unsigned char *bytes, size_t size)
{
    char path[64];
    int descriptor = memfd_create("model", MFD_CLOEXEC);
    if (descriptor < 0 || write(descriptor, bytes, size) != (ssize_t)size) fail_msg("cannot write a file in memory");
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    int code = check_limited(tally, path, NULL);
    close(descriptor);
    if (code != EXIT_OK && code != EXIT_BAD_INPUT && code != EXIT_UNSUPPORTED_OPERATOR)
        fail_msg("%s %d: exit code %d", tally->what, tally->passed, code);
    tally->passed++;
}

static void every_prefix_is_survived(void **state)
{
    (void)state;
    size_t size;
    Tally tally = {.what = "prefixes"};
    unsigned char *bytes = small_model(&size);
    for (size_t length = 0; length < size; length++) assert_survived(&tally, bytes, length);
    free(bytes);
    summarize(&tally);
}

/* One change: a byte, a bit, a run copied elsewhere, a run removed, or a number made extreme. */
static size_t mutate(unsigned char *bytes, size_t size, RandomStream stream, uint64_t draw)
{
    static const unsigned char extremes[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    size_t at = (size_t)random_below(stream, draw + 1, size), from = (size_t)random_below(stream, draw + 2, size);
    size_t room = size - (at > from ? at : from), length = 1 + (size_t)random_below(stream, draw + 3, 16);
    if (length > room) length = room;
    uint32_t word = random_word(stream, draw + 4);
    switch (random_below(stream, draw, 5)) {
    case 0: bytes[at] = (unsigned char)word; return size;
    case 1: bytes[at] ^= (unsigned char)(1u << word % 8); return size;
    case 2: memmove(bytes + at, bytes + from, length); return size;
    case 3: memmove(bytes + at, bytes + at + length, size - at - length); return size - length;
    default: bytes[at] = extremes[word % sizeof extremes]; return size;
    }
}

static void random_mutations_are_survived(void **state)
{
    (void)state;
    enum { MUTATIONS = 10000, DRAWS = 5 };
    size_t size;
    Tally tally = {.what = "random mutations"};
    unsigned char *bytes = small_model(&size), *changed = memory_allocate(size);
    for (size_t i = 0; i < MUTATIONS; i++) {
        RandomStream stream = random_substream(random_stream(7, "mutations"), i);
        memcpy(changed, bytes, size);
        size_t length = size, changes = 1 + (size_t)random_below(stream, 0, 4);
        for (size_t c = 0; c < changes; c++) length = mutate(changed, length, stream, 1 + c * DRAWS);
        assert_survived(&tally, changed, length);
    }
    free(bytes);
    free(changed);
    summarize(&tally);
}

/* Models that are well-formed messages, but mean something else. */
static void changes_of_meaning_are_survived(void **state)
{
    (void)state;
    enum { CHANGES = 2000 };
    size_t size;
    Tally tally = {.what = "changes of meaning"};
    unsigned char *bytes = small_model(&size);
    for (size_t i = 0; i < CHANGES; i++) {
        RandomStream stream = random_substream(random_stream(8, "changes"), i);
        FREED_WITH(arena_free) Arena arena = {0};
        ProtobufCAllocator allocator = onnx_allocator(&arena); /* names are moved around, so nothing is freed singly */
        Onnx__ModelProto *model = onnx__model_proto__unpack(&allocator, size, bytes);
        size_t changes = 1 + (size_t)random_below(stream, 0, 3);
        for (size_t c = 0; c < changes; c++) model_change(model, &arena, stream, 1 + c * MODEL_CHANGE_DRAWS);
        size_t packed = onnx__model_proto__get_packed_size(model);
        unsigned char *changed = memory_allocate(packed);
        onnx__model_proto__pack(model, changed);
        assert_survived(&tally, changed, packed);
        free(changed);
    }
    free(bytes);
    summarize(&tally);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(crafted_models_get_their_verdicts, scratch_folder_enter, scratch_folder_leave),
        cmocka_unit_test(models_of_the_onnx_checker_get_its_verdicts),
        cmocka_unit_test_setup_teardown(every_prefix_is_survived, scratch_folder_enter, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(random_mutations_are_survived, scratch_folder_enter, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(changes_of_meaning_are_survived, scratch_folder_enter, scratch_folder_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
