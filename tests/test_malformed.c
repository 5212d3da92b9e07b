/* Models that strangers could send: every verdict as listed, no crash on any prefix or mutation. The sanitizer build of
 * the same tests finds what does not crash. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/random.h"
#include "frontend/import.h"
#include "graph/fold.h"
#include "graph/fusion.h"
#include "graph/layers.h"
#include "models/bert.h"
#include "tests/model_changes.h"
#include "tests/scratch.h"

#define CRAFTED SKY_TEST_DATA "/malformed/crafted"

/* What `skycc check` does; the exit code. */
static int check(const char *path, char **report)
{
    Graph graph;
    ImportedModel model;
    Diagnostics diagnostics = {0};
    graph_init(&graph, path);
    ImportOptions options = {.default_dimension = 8};
    if (import_onnx(&graph, &model, path, &options, &diagnostics)) {
        graph_verify(&graph);
        graph_remove_dead(&graph);
        fuse_composites(&graph, &diagnostics);
        layers_assign(&graph, &diagnostics);
        graph_verify(&graph);
    }
    int code = diagnostics.exit_code;
    if (report) *report = diagnostics_text(&diagnostics);
    graph_free(&graph);
    imported_model_free(&model);
    diagnostics_free(&diagnostics);
    return code;
}

/* --- A folder to try things in ---------------------------------------------------------------------------------------
 */

static char folder[64];

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
    (void)status, (void)type, (void)ftw;
    return remove(path);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/skycc-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *in_folder(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) fail_msg("cannot write %s", path);
}

static void copy_file(const char *from, const char *to)
{
    MappedFile file;
    Diagnostics diagnostics = {0};
    assert_true(file_map(&file, from, &diagnostics));
    write_file(to, file.bytes, file.size);
    file_unmap(&file);
}

static bool has_suffix(const char *name, const char *suffix)
{
    size_t a = strlen(name), b = strlen(suffix);
    return a >= b && strcmp(name + a - b, suffix) == 0;
}

/* --- Verdicts --------------------------------------------------------------------------------------------------------
 */

static void crafted_models_get_their_verdicts(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    json_t *manifest = json_read(CRAFTED "/manifest.json", &diagnostics), *entry;
    assert_non_null(manifest);
    copy_file(CRAFTED "/w.bin", in_folder("w.bin"));
    assert_int_equal(symlink("/etc/passwd", in_folder("link-to-passwd")), 0);
    const char *name;
    int checked = 0;
    json_object_foreach(manifest, name, entry)
    {
        char from[512], *report;
        snprintf(from, sizeof from, CRAFTED "/%s", name);
        copy_file(from, in_folder(name));
        const char *expected = json_string_value(json_object_get(entry, "expect"));
        int code = check(in_folder(name), &report);
        bool accepted = code == EXIT_OK;
        bool right = strcmp(expected, accepted ? "accept" : "reject") == 0 || strcmp(expected, "accept-or-reject") == 0;
        if (!right || (!accepted && code != EXIT_BAD_INPUT && code != EXIT_UNSUPPORTED_OPERATOR))
            fail_msg("%s: exit code %d, expected to %s: %s", name, code, expected, report);
        free(report);
        checked++;
    }
    assert_true(checked > 50);
    json_decref(manifest);
    diagnostics_free(&diagnostics);
}

/* Models of ONNX's own checker. What it accepts may still be beyond skycc: control flow is refused as unsupported. */
static void models_of_the_onnx_checker_get_its_verdicts(void **state)
{
    (void)state;
    DIR *directory = opendir(SKY_TEST_DATA "/malformed/onnx-checker");
    assert_non_null(directory);
    int checked = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (!has_suffix(entry->d_name, ".model.pb")) continue;
        char path[512], *report;
        snprintf(path, sizeof path, SKY_TEST_DATA "/malformed/onnx-checker/%s", entry->d_name);
        int code = check(path, &report);
        bool accepts = has_suffix(entry->d_name, ".accept.model.pb"), loop = strstr(entry->d_name, "loop") != NULL;
        if (loop ? code != EXIT_UNSUPPORTED_OPERATOR : (code == EXIT_OK) != accepts)
            fail_msg("%s: exit code %d: %s", entry->d_name, code, report);
        free(report);
        checked++;
    }
    closedir(directory);
    assert_int_equal(checked, 13);
}

/* Models of some hundred bytes that would fold 6e10 products, 40 times 60 MB, or a constant of gigabytes. */
static void folding_has_limits(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool accepted; /* what is not folded can still be computed at run time */
    } models[] = {{"product", true}, {"many", true}, {"range", false}, {"cumsum", false}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[512];
        snprintf(path, sizeof path, SKY_TEST_DATA "/malformed/folding/%s.onnx", models[i].name);
        Graph graph;
        ImportedModel model;
        Diagnostics diagnostics = {0};
        graph_init(&graph, path);
        bool ok = import_onnx(&graph, &model, path, &(ImportOptions){0}, &diagnostics);
        assert_int_equal(ok, models[i].accepted);
        size_t constants = 0;
        for (ValueId v = 1; v < graph.value_count; v++) {
            const Value *value = graph_value(&graph, v);
            if (value->role == ROLE_CONSTANT)
                constants += (size_t)shape_elements(&value->shape) * dtype_size(value->dtype);
        }
        assert_true(constants <= FOLD_LIMIT_BYTES + 4096);
        assert_true(graph.folded_iterations <= FOLD_LIMIT_ITERATIONS);
        graph_free(&graph);
        imported_model_free(&model);
        diagnostics_free(&diagnostics);
    }
}

/* --- External data ---------------------------------------------------------------------------------------------------
 */

/* A model whose weights lie in w.bin, renamed to `location`, which is as long. */
static void write_external_model(const char *location)
{
    MappedFile file;
    Diagnostics diagnostics = {0};
    assert_true(file_map(&file, CRAFTED "/ok-external.onnx", &diagnostics));
    unsigned char *bytes = memory_allocate(file.size), *at;
    memcpy(bytes, file.bytes, file.size);
    at = memmem(bytes, file.size, "w.bin", 5);
    assert_non_null(at);
    assert_int_equal(strlen(location), 5);
    memcpy(at, location, 5);
    write_file(in_folder("external.onnx"), bytes, file.size);
    free(bytes);
    file_unmap(&file);
}

static void assert_external(const char *location, const char *problem)
{
    char *report;
    write_external_model(location);
    int code = check(in_folder("external.onnx"), &report);
    if (!problem ? code != EXIT_OK : code != EXIT_BAD_INPUT || !strstr(report, problem))
        fail_msg("'%s': exit code %d: %s", location, code, report);
    free(report);
}

static void external_data_stays_what_and_where_it_is(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_folder("d"), 0700), 0);
    copy_file(CRAFTED "/w.bin", in_folder("w.bin"));
    copy_file(CRAFTED "/w.bin", in_folder("d/w.b"));
    copy_file(CRAFTED "/w.bin", in_folder("hard1"));
    assert_int_equal(link(in_folder("hard1"), in_folder("hard2")), 0);
    assert_int_equal(symlink("w.bin", in_folder("slink")), 0);
    assert_int_equal(symlink("d", in_folder("e")), 0);
    assert_int_equal(mkfifo(in_folder("fifo1"), 0600), 0);
    assert_external("w.bin", NULL);
    assert_external("d/w.b", NULL);
    assert_external("none1", "does not exist");
    assert_external("slink", "symbolic link");
    assert_external("e/w.b", "symbolic link");
    assert_external("hard1", "several hard links");
    assert_external("fifo1", "not a regular file");
    assert_external("d/../", "leaves the model's folder");
    assert_external("../xx", "leaves the model's folder");
    assert_external("/dev/", "absolute path");
    assert_external("a/..b", "does not exist");
}

/* --- Prefixes and mutations ------------------------------------------------------------------------------------------
 */

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
    const char *path = in_folder("small.onnx");
    assert_true(bert_write(&config, path, &diagnostics));
    assert_int_equal(check(path, NULL), EXIT_OK);
    MappedFile file;
    assert_true(file_map(&file, path, &diagnostics));
    unsigned char *bytes = memory_allocate(file.size);
    memcpy(bytes, file.bytes, *size = file.size);
    file_unmap(&file);
    return bytes;
}

/* A file in memory, because there are many. */
static void assert_survived(const unsigned char *bytes, size_t size, const char *what, size_t number)
{
    char path[64];
    int descriptor = memfd_create("model", MFD_CLOEXEC);
    if (descriptor < 0 || write(descriptor, bytes, size) != (ssize_t)size) fail_msg("cannot write a file in memory");
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    int code = check(path, NULL);
    close(descriptor);
    if (code != EXIT_OK && code != EXIT_BAD_INPUT && code != EXIT_UNSUPPORTED_OPERATOR)
        fail_msg("%s %zu: exit code %d", what, number, code);
}

static void every_prefix_is_survived(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = small_model(&size);
    for (size_t length = 0; length < size; length++) assert_survived(bytes, length, "prefix", length);
    free(bytes);
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
    unsigned char *bytes = small_model(&size), *changed = memory_allocate(size);
    for (size_t i = 0; i < MUTATIONS; i++) {
        RandomStream stream = random_substream(random_stream(7, "mutations"), i);
        memcpy(changed, bytes, size);
        size_t length = size, changes = 1 + (size_t)random_below(stream, 0, 4);
        for (size_t c = 0; c < changes; c++) length = mutate(changed, length, stream, 1 + c * DRAWS);
        assert_survived(changed, length, "mutation", i);
    }
    free(bytes);
    free(changed);
}

/* --- Models that are well-formed messages, but mean something else ---------------------------------------------------
 */

static void changes_of_meaning_are_survived(void **state)
{
    (void)state;
    enum { CHANGES = 2000 };
    size_t size;
    unsigned char *bytes = small_model(&size);
    for (size_t i = 0; i < CHANGES; i++) {
        RandomStream stream = random_substream(random_stream(8, "changes"), i);
        Arena arena = {0};
        ProtobufCAllocator allocator = onnx_allocator(&arena); /* names are moved around, so nothing is freed singly */
        Onnx__ModelProto *model = onnx__model_proto__unpack(&allocator, size, bytes);
        size_t changes = 1 + (size_t)random_below(stream, 0, 3);
        for (size_t c = 0; c < changes; c++) model_change(model, &arena, stream, 1 + c * MODEL_CHANGE_DRAWS);
        size_t packed = onnx__model_proto__get_packed_size(model);
        unsigned char *changed = memory_allocate(packed);
        onnx__model_proto__pack(model, changed);
        assert_survived(changed, packed, "change", i);
        free(changed);
        arena_free(&arena);
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(crafted_models_get_their_verdicts, make_folder, remove_folder),
        cmocka_unit_test(models_of_the_onnx_checker_get_its_verdicts),
        cmocka_unit_test(folding_has_limits),
        cmocka_unit_test_setup_teardown(external_data_stays_what_and_where_it_is, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(every_prefix_is_survived, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(random_mutations_are_survived, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(changes_of_meaning_are_survived, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
