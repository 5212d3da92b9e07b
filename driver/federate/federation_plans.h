/* The ways in which a federation can train, each with plans: what `skycc plan --federation` compares. */
#ifndef DRIVER_FEDERATE_FEDERATION_PLANS_H
#define DRIVER_FEDERATE_FEDERATION_PLANS_H

#include "driver/compile/plan_model.h"
#include "federation/planning/proposal.h"

typedef struct FederationPlans {
    Federation federation;
    Proposal proposal;
    /* Of the making. */
    PlannedModel planned; /* the model */
    Cluster *clusters;    /* [site] */
    GroupPlan **known;    /* plans of groups, each made once */
    size_t known_count, known_capacity;
    double *seconds; /* between sites, for a cut in the middle of the model */
} FederationPlans;

/* Plans every group of sites of every way, with the planner's request of `options`. Groups that do not fit say why;
 * that no way fits is no error here (proposal.proposed). Free it in any case. */
bool federation_plans_make(FederationPlans *plans, const char *file, const FederationWishes *wishes, const char *model,
                           const PlanModelOptions *options, const ModelOptions *load, Diagnostics *diagnostics);
void federation_plans_free(FederationPlans *plans);

#endif
