/* What the sites of a federation start from, and what all of them must have in common: the trained parameters of the model
 * with their initial values. */
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

/* Fills the start and federation->compiled but for site and identity. `load` is what
 * the sites are compiled with. Errors: parameters without a value, or drawn ones that are not trained, whose values no
 * checkpoint would hold. Free the start with global_model_free in any case; federation->arena keeps what is new there. */
bool federation_start_make(FederationStart *start, Federation *federation, const char *path,
                           const PlanModelOptions *plan, const ModelOptions *load, WeightInit init,
                           Diagnostics *diagnostics);
/* Goes on with the model of another federation's coordinator, in whose directory it lies: values, momentum and round.
 * Errors: it trains another model, or has made all rounds of this federation. */
bool federation_start_follow(FederationStart *start, Federation *federation, const char *directory,
                             Diagnostics *diagnostics);
/* Once the rows of all sites are known: what the federation, and its start, are called. */
void federation_start_identify(FederationStart *start, Federation *federation);

#endif
