/* Memory and system calls that fail during an import: for every N, the N-th one. The linker redirects them to here. */
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

#include "frontend/import.h"

typedef enum Kind { MEMORY, FILES, KINDS } Kind;

static long calls[KINDS], fails_at[KINDS]; /* 0: never */

static bool fails(Kind kind) { return ++calls[kind] == fails_at[kind]; }

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

/* Imports in a process of its own, whose N-th call of that kind fails; its exit code, or -1 if it ended otherwise. Sets
 * *done if N calls were not reached. Nothing is printed by the child but diagnostics, into a pipe. */
static int import_failing(const char *path, Kind kind, long n, bool *done, char *text, size_t size)
{
    int ends[2];
    if (pipe(ends) != 0) abort();
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        Graph graph;
        ImportedModel model;
        Diagnostics diagnostics = {0};
        memset(calls, 0, sizeof calls);
        fails_at[kind] = n;
        graph_init(&graph, path);
        import_onnx(&graph, &model, path, &(ImportOptions){.default_dimension = 2}, &diagnostics);
        diagnostics_print(&diagnostics, stderr);
        _exit(calls[kind] < n ? 77 : diagnostics.exit_code);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; (got = read(ends[0], text + used, size - 1 - used)) > 0;) used += (size_t)got;
    text[used] = '\0';
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    *done = WIFEXITED(status) && WEXITSTATUS(status) == 77;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A model with a weight in a file beside it. */
static void write_model(char folder[static 64], char path[static 128])
{
    snprintf(folder, 64, "/tmp/skycc-test-XXXXXX");
    if (!mkdtemp(folder)) abort();
    snprintf(path, 128, "%s/model.onnx", folder);
    static const char *const names[] = {"ok-external.onnx", "w.bin"};
    for (int i = 0; i < 2; i++) {
        char from[512], to[128], bytes[1024];
        snprintf(from, sizeof from, SKY_TEST_DATA "/malformed/crafted/%s", names[i]);
        snprintf(to, sizeof to, "%s/%s", folder, i ? names[i] : "model.onnx");
        FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
        if (!in || !out) abort();
        fwrite(bytes, 1, fread(bytes, 1, sizeof bytes, in), out);
        fclose(in);
        fclose(out);
    }
}

static void remove_model(const char *folder)
{
    char path[128];
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/w.bin", folder);
    unlink(path);
    rmdir(folder);
}

static void assert_every_failure_is_reported(const char *path, Kind kind, long least)
{
    char text[4096];
    bool done = false;
    long n = 0;
    while (!done) {
        int code = import_failing(path, kind, ++n, &done, text, sizeof text);
        if (!done && (code != EXIT_BAD_INPUT || !strstr(text, "error: ")))
            fail_msg("call %ld: exit code %d: %s", n, code, text);
    }
    if (n < least) fail_msg("only %ld calls", n);
}

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    assert_every_failure_is_reported(SKY_TEST_DATA "/bert/bert-nano-seqcls-opset17-dyn.onnx", MEMORY, 200);
}

static void every_failure_with_external_data_is_reported(void **state)
{
    (void)state;
    char folder[64], path[128];
    write_model(folder, path);
    assert_every_failure_is_reported(path, MEMORY, 20);
    assert_every_failure_is_reported(path, FILES, 7); /* open, fstat, mmap of model and weights, the folder's open */
    remove_model(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_allocation_is_reported),
        cmocka_unit_test(every_failure_with_external_data_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
