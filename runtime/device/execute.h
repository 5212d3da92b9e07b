/* Executes the call lists of a program's stages: memory spaces, resolution of operands, threads. Knows nothing of other
 * ranks. Used by stage programs and, in memory, by `skycc run`. */
#ifndef RUNTIME_DEVICE_EXECUTE_H
#define RUNTIME_DEVICE_EXECUTE_H

#include "runtime/device/device.h"

/* Allocates every space, zeroed. `threads` as from parallel_threads; `interpreter` may be NULL when no call needs it.
 * On failure nothing is left allocated. */
bool execution_open(Execution *execution, const SkyProgram *program, int threads, ExecuteInterpreter *interpreter,
                    Diagnostics *diagnostics);
void execution_close(Execution *execution);

/* Whether lists take as long as the calling thread computes: nobody else does. */
static inline bool execution_by_this_thread(const Execution *execution)
{
    return execution->threads == 1 && !execution->kind->fetch;
}

/* From now on the micro-batch in the slot has so many tokens: all of its lines (runtime/program/packing.h) but the last
 * one, and of that up to the last token that a row has. 1 if rows are not packed. */
void execution_set_tokens(Execution *execution, uint32_t stage, uint32_t slot, uint32_t tokens);

/* From now on threads meet after every call or group, and `between` is called there: for those who time them. */
void execution_keep_apart(Execution *execution);

/* Where the host reads and writes. `stage` counts the stages of this rank; `slot` matters for SKY_SPACE_SLOT only. */
void *execution_address(const Execution *execution, uint32_t stage, uint32_t slot, SkyLocation location);
/* The same, once so many bytes there are what the device has: before the host reads what kernels wrote. */
void *execution_fetch(const Execution *execution, uint32_t stage, uint32_t slot, SkyLocation location, size_t bytes);
/* The same without waiting: the bytes are there once execution_fetched says so, which waits for it if asked to.
 * Lists that write other bytes may run meanwhile. */
void execution_fetch_ahead(const Execution *execution, uint32_t stage, uint32_t slot, SkyLocation location,
                           size_t bytes);
bool execution_fetched(const Execution *execution, bool wait);
/* Gives the device so many bytes from there: after the host wrote what kernels will read. */
void execution_hand(const Execution *execution, uint32_t stage, uint32_t slot, SkyLocation location, size_t bytes);

/* Runs one list of calls; subnormal numbers count as 0. An update touches no slot: any will do. False, after reporting
 * the call, if an interpreted kernel was given an index out of range. */
bool execution_run(Execution *execution, uint32_t stage, SkyListKind list, uint32_t slot, Diagnostics *diagnostics);

/* Exempts the parameters of the classes in `classes` (bit 1 << decay_exempt_class) from weight decay: their update
 * calls read the second group of step scalars. */
void execution_exempt_from_decay(Execution *execution, uint32_t classes);
/* Multiplies the learning rate of a parameter of that stage, one that has an update. */
void execution_set_rate(Execution *execution, uint32_t stage, const SkyParameter *parameter, double rate);
/* Where the stage has all layers: sums the uses of its shared parameters, as the runtime does across stages. */
void execution_sum_uses(const Execution *execution, uint32_t stage);

/* Of every trained parameter of the stage the sum of the squares of one tensor, in double, in an order that threads do
 * not change; 0 for frozen ones. Valid until it is called again for this stage. */
enum { EXECUTION_GRADIENT = 0, EXECUTION_VALUE = 2, EXECUTION_STATE = 3 /* + which */ };
const double *execution_squares(const Execution *execution, uint32_t stage, int tensor);

/* The first trained parameter of the stage whose value or any state of its optimiser is not finite: *state is which, -1
 * the value. NULL if all are finite. */
const SkyParameter *execution_not_finite(const Execution *execution, uint32_t stage, int *state);
/* The same for the first elements of every value, in a hundredth of the time. A NaN in activations or gradients soon is
 * in all elements of biases, and in the first row of matrices. */
const SkyParameter *execution_spot_not_finite(const Execution *execution, uint32_t stage);

#endif
