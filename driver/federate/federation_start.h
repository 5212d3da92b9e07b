/* What the sites of a federation start from and share: the trained parameters with their initial values. */
#ifndef DRIVER_FEDERATE_FEDERATION_START_H
#define DRIVER_FEDERATE_FEDERATION_START_H

#include "driver/compile/plan_model.h"
#include "driver/compile/weights.h"
#include "federation/federation.h"
#include "federation/global_model.h"

typedef struct FederationStart {
    GlobalModel model; /* of round 0, without momentum */
    int64_t microbatch_rows;
} FederationStart;

/* Fills the start, and federation->compiled except site and identity. `load` is what the sites are compiled with.
 * Errors: parameters without a value, and frozen parameters with drawn values, which no checkpoint would hold. Free
 * the start with global_model_free in any case; the federation's arena keeps new texts. */
bool federation_start_make(FederationStart *start, Federation *federation, const char *path,
                           const PlanModelOptions *plan, const ModelOptions *load, WeightInit init,
                           Diagnostics *diagnostics);
/* Continues with the model in another coordinator's directory: values, momentum and round. Errors: it is another
 * model, or its rounds are all done. */
bool federation_start_follow(FederationStart *start, Federation *federation, const char *directory,
                             Diagnostics *diagnostics);
/* Sets the identity of the federation and its start, once the rows of all sites are known. */
void federation_start_identify(FederationStart *start, Federation *federation);

#endif
