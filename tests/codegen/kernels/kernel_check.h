/* Checks compiled kernels against the interpreter: what the tests of code generation share. */
#ifndef TESTS_CODEGEN_KERNELS_KERNEL_CHECK_H
#define TESTS_CODEGEN_KERNELS_KERNEL_CHECK_H

#include "codegen/kernels/kernel_compiler.h"

extern Target target; /* a processor that this machine can run code for */
extern Diagnostics diagnostics;
extern Kernel kernel; /* the one being built */

uint32_t draw(uint32_t limit); /* 0 ... limit - 1; the same sequence in every run */

/* Fills operand `operand` of `elements` elements. */
typedef void Fill(const Kernel *checked, int operand, int64_t elements, void *data);
void fill_random(const Kernel *checked, int operand, int64_t elements, void *data);

/* Runs the kernel by the interpreter, compiled, and compiled with its units in pieces: the first two agree within
 * `tolerance` times an element's size plus a tenth of the largest's, the last two in every bit. Compiled once more,
 * to a drawn limit, it makes the same bits before that. Products whose sums may be limited (kernel_limit_sum) run that
 * way too, over factors that are no numbers after the limit. */
void check_filled(const Kernel *checked, double tolerance, Fill *fill);
void check(const Kernel *checked); /* random operands, 1e-5 */
/* The same, but with a comparison of the caller's own; it fails the test itself. */
typedef void Compare(const Kernel *checked, void *const *expected, void *const *found, double tolerance);
void check_compared(const Kernel *checked, double tolerance, Fill *fill, Compare *compare);
/* How many rounds of random cases to do, of those that a test does on this processor: fewer under emulation. */
int check_rounds(int rounds);

void build_softmax(int64_t rows, int64_t columns);

/* Runs the tests once for every processor that this machine can stand in for (under the sanitizers, for the first and
 * the last of them); the number of failures. `target` is set. With the argument "aarch64": once, for that processor,
 * whose code is run under emulation when the tests have collected it; 77 after printing why if that is not possible
 * here. */
struct CMUnitTest;
int check_run(int argc, char **argv, const struct CMUnitTest *tests, size_t count);
/* The same, but kernels run on the first OpenCL device; 77 after printing why there is none. "opencl" as argument of
 * check_run means this. */
int check_run_on_opencl(const struct CMUnitTest *tests, size_t count);
/* The same, but once, for this machine's processor. */
int check_run_here(const struct CMUnitTest *tests, size_t count);

#endif
