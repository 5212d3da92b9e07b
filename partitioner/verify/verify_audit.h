/* Compares what crossed between sites, as a gateway counted it, with what the plan lists. */
#ifndef PARTITIONER_VERIFY_VERIFY_AUDIT_H
#define PARTITIONER_VERIFY_VERIFY_AUDIT_H

#include "partitioner/plan.h"
#include "profiler/costs/costs.h"
#include "runtime/wire/audit.h"

/* How many steps' worth of messages counts may be off for each start of the gateway that was broken off or cut short:
 * ranks are no further apart, and none tells how much of its last step was done. In an evaluation, where nothing comes
 * back, the first stage may be at its end while the last one begins: of activations as many more. */
enum { AUDIT_LOOSE_STEPS = 2 };

/* False after reporting everything wrong (EXIT_BAD_INPUT): another plan's audit, a site that the costs do not know, a
 * message that programs of this plan do not send, a tensor sent more or less often than the steps need or with another
 * size, a message that carries more than its class may. The plan has been verified. */
bool plan_verify_audit(const Plan *plan, const Costs *costs, const WireAudit *audit, const char *path,
                       Diagnostics *diagnostics);

#endif
