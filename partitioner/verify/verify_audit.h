/* Compares what crossed between sites, as a gateway counted it, with what the plan lists. */
#ifndef PARTITIONER_VERIFY_VERIFY_AUDIT_H
#define PARTITIONER_VERIFY_VERIFY_AUDIT_H

#include "partitioner/plan.h"
#include "runtime/wire/audit.h"

/* How many steps' worth of messages counts may be off for each start of the gateway that was broken off or cut short:
 * ranks are no further apart, and none tells how much of its last step was done. In an evaluation, where nothing comes
 * back, the first stage may be at its end while the last one begins: of activations as many more. */
enum { AUDIT_LOOSE_STEPS = 2 };

/* False after reporting (EXIT_BAD_INPUT) everything that is not as it should be: another plan's audit, a message that is
 * none of the plan's tensors and nothing else that programs send, a tensor that was sent more often or less often than
 * the steps of the audit need, or with another size, a message that carries more than its class may. The plan has been
 * verified. */
bool plan_verify_audit(const Plan *plan, const WireAudit *audit, const char *path, Diagnostics *diagnostics);

#endif
