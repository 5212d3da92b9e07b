/* Memory and system calls that fail during an import: each in its turn. The linker redirects them to here. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontend/onnx/import.h"
#include "tests/common/limits.h"
#include "tests/common/scratch.h"

typedef enum Kind { NONE, MEMORY, FILES } Kind;

static Kind failing;       /* of which every call is to fail, each in a process of its own */
static bool failed;        /* in this process: nothing more is to fail */
static long calls;         /* that were made so far */
static int step = 1;       /* every so manyth of them fails */
static char problem[4200]; /* of the first process that did not report its failure as it should */

static void check_failure(pid_t child, int output)
{
    char text[4096];
    size_t used = 0;
    int status;
    for (ssize_t got; (got = read(output, text + used, sizeof text - 1 - used)) > 0;) used += (size_t)got;
    text[used] = '\0';
    waitpid(child, &status, 0);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (!*problem && (code != EXIT_BAD_INPUT || !strstr(text, "error: ")))
        snprintf(problem, sizeof problem, "call %ld: exit code %d: %s", calls, code, text);
}

/* Ends a child at once, before LeakSanitizer looks, which takes most of the time: what ends early frees nothing. */
static void leave(int code, void *unused)
{
    (void)unused;
    _exit(code);
}

/* Whether this call is to fail. It does in a child, which sees how the import ends; here it does not: so one import,
 * forked at every call, tries the failure of each. */
static bool fails(Kind kind)
{
    int ends[2];
    if (kind != failing || failed || calls++ % step) return false;
    if (pipe(ends) != 0) abort();
    pid_t child = fork();
    if (child < 0) abort();
    failed = child == 0;
    if (failed) {
        dup2(ends[1], STDERR_FILENO);
        on_exit(leave, NULL);
        return true;
    }
    close(ends[1]);
    check_failure(child, ends[0]);
    close(ends[0]);
    return false;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *pointer, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
int __real_open(const char *path, int flags, ...);
int __real_fstat(int descriptor, struct stat *status);
void *__real_mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset);
long __real_syscall(long number, ...);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *pointer, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
int __wrap_open(const char *path, int flags, ...);
int __wrap_fstat(int descriptor, struct stat *status);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset);
long __wrap_syscall(long number, long a, const void *b, const void *c, size_t d);

void *__wrap_malloc(size_t size) { return fails(MEMORY) ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return fails(MEMORY) ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *pointer, size_t size) { return fails(MEMORY) ? NULL : __real_realloc(pointer, size); }
char *__wrap_strdup(const char *text) { return fails(MEMORY) ? NULL : __real_strdup(text); }
char *__wrap_strndup(const char *text, size_t size) { return fails(MEMORY) ? NULL : __real_strndup(text, size); }

static int io_error(void)
{
    errno = EIO;
    return -1;
}

int __wrap_open(const char *path, int flags, ...) { return fails(FILES) ? io_error() : __real_open(path, flags, 0600); }
int __wrap_fstat(int descriptor, struct stat *status)
{
    return fails(FILES) ? io_error() : __real_fstat(descriptor, status);
}
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset)
{
    if (!fails(FILES)) return __real_mmap(address, length, protection, flags, descriptor, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}
/* openat2, whose four arguments arrive as if syscall were not variadic */
long __wrap_syscall(long number, long a, const void *b, const void *c, size_t d)
{
    return fails(FILES) ? io_error() : __real_syscall(number, a, b, c, d);
}

static void assert_every_failure_is_reported(const char *path, Kind kind, long least)
{
    Graph graph;
    ImportedModel model;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    calls = 0;
    failing = kind;
    graph_init(&graph, path);
    import_onnx(&graph, &model, path, &(ImportOptions){.default_dimension = 2}, &diagnostics);
    failing = NONE;
    if (failed) {
        diagnostics_print(&diagnostics, stderr);
        _exit(diagnostics.exit_code);
    }
    assert_int_equal(diagnostics.exit_code, EXIT_OK);
    if (*problem) fail_msg("%s", problem);
    if (calls < least) fail_msg("only %ld calls", calls);
    graph_free(&graph);
    imported_model_free(&model);
}

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    step = ADDRESS_SANITIZER ? 5 : 1; /* a fork takes 40 times as long */
    assert_every_failure_is_reported(SKY_TEST_DATA "/bert/bert-nano-seqcls-opset17-dyn.onnx", MEMORY, 200);
    step = 1;
}

static void every_failure_with_external_data_is_reported(void **state)
{
    (void)state;
    copy_file(SKY_TEST_DATA "/malformed/crafted/ok-external.onnx", "model.onnx");
    copy_file(SKY_TEST_DATA "/malformed/crafted/w.bin", "w.bin");
    assert_every_failure_is_reported("model.onnx", MEMORY, 20);
    /* open, fstat, mmap of model and weights, the folder's open */
    assert_every_failure_is_reported("model.onnx", FILES, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_allocation_is_reported),
        cmocka_unit_test(every_failure_with_external_data_is_reported),
    };
    return cmocka_run_group_tests(tests, scratch_folder_enter, scratch_folder_leave);
}
