/* Scratch files for tests: written whole under a temporary name, removed by the test. */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diagnostics.h"

typedef struct Scratch {
    char path[64];
} Scratch;

/* A file holding the bytes. */
static inline Scratch scratch_file(const void *bytes, size_t size)
{
    Scratch scratch = {"/tmp/skycc-test-XXXXXX"};
    int descriptor = mkstemp(scratch.path);
    if (descriptor < 0 || write(descriptor, bytes, size) != (ssize_t)size) abort();
    close(descriptor);
    return scratch;
}

static inline Scratch scratch_text(const char *text) { return scratch_file(text, strlen(text)); }

/* What diagnostics_print would print; free it. */
static inline char *diagnostics_text(const Diagnostics *diagnostics)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) abort();
    diagnostics_print(diagnostics, stream);
    fclose(stream);
    return text;
}

/* That what was reported contains `expected` and asks for the exit code; frees the diagnostics. */
static inline void expect_complaint(Diagnostics *diagnostics, int exit_code, const char *expected)
{
    char *message = diagnostics_text(diagnostics);
    if (!strstr(message, expected)) fail_msg("'%s' is not in: %s", expected, message);
    assert_int_equal(diagnostics->exit_code, exit_code);
    free(message);
    diagnostics_free(diagnostics);
}

#endif
