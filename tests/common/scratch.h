/* Files and folders of tests, under names that nobody had. What goes wrong here fails the test. */
#ifndef TESTS_COMMON_SCRATCH_H
#define TESTS_COMMON_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diagnostics.h"

typedef struct Scratch {
    char path[64];
} Scratch;

/* A file that holds the bytes; the test unlinks it. */
Scratch scratch_file(const void *bytes, size_t size);
Scratch scratch_text(const char *text);
/* The path of a file that does not exist, in a folder that does not exist. */
Scratch scratch_absent(void);

/* Set-up and tear-down for cmocka: an empty folder, in which the process then is, and which is removed with all that is
 * in it. One at a time. */
int scratch_folder_enter(void **state);
int scratch_folder_leave(void **state);

void write_bytes(const char *path, const void *bytes, size_t size);
void write_text(const char *path, const char *text);
void copy_file(const char *from, const char *to);
char *read_text(const char *path); /* of the whole file, which may hold no NUL; free it */
void assert_holds(const char *path, const char *expected);

/* What diagnostics_print would print; free it. */
char *diagnostics_text(const Diagnostics *diagnostics);
/* That what was reported contains `expected` and asks for the exit code; frees the diagnostics. */
void expect_complaint(Diagnostics *diagnostics, int exit_code, const char *expected);

#endif
