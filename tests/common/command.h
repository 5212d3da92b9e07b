/* Commands that tests run, and what they print. */
#ifndef TESTS_COMMON_COMMAND_H
#define TESTS_COMMON_COMMAND_H

#include "base/safetensors.h"

/* Runs a command of the shell, without input. Its exit code, -1 if a signal ended it; what it, and what it started and
 * waited for, printed on both streams is in `printed` until the next one. */
int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern char *printed;

/* As run, of a command that must succeed. */
void must_run(const char *format, ...) __attribute__((format(printf, 1, 2)));

void assert_printed(const char *part);

/* That the last command's exit code, `found`, is `code`, and that it printed each of the parts, which a NULL ends. */
void assert_ran(int found, int code, const char *const *parts);
/* ASSERT_RAN(run(...), code, part, part ...) */
#define ASSERT_RAN(found, code, ...) assert_ran(found, code, (const char *const[]){__VA_ARGS__, NULL})

/* Tensors that a command wrote, or that data holds; safetensors_close them. */
void open_tensors(SafeTensors *file, const char *path);

#endif
