/* SCAFFOLD's control variates at a site (Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated
 * learning", ICML 2020, option II). The site's own variate is its mean step of a round divided by the learning rate;
 * the federation's is the mean over the sites. Every local step also goes back by the learning rate times (the
 * federation's - the site's), so that a site does not drift to what its rows alone want. For SGD that is what the paper
 * adds to the gradient. Other optimisers divide gradients by their size, and a variate is made of steps: so the
 * correction is added to the step.
 *
 * The federation's variate comes with the model (global_model.h); the site's lies among its checkpoints. Its change
 * follows the update of the model, in the same sum. A site that begins, goes back to an earlier round, or sees a site
 * leave, takes the federation's variate for its own, in every round until its update is in a sum again: its steps are
 * not corrected, no trace of what has gone is left, and when it begins makes no difference. One that misses rounds
 * keeps its own. */
#ifndef FEDERATION_MEMBER_CONTROL_VARIATES_H
#define FEDERATION_MEMBER_CONTROL_VARIATES_H

#include "federation/federation.h"
#include "federation/global_model.h"

typedef struct ControlVariates {
    const char *path;
    GlobalModel own; /* round: after which it is this; step: 0, the federation's; else 1 and how many sites had left */
} ControlVariates;

/* The site's own becomes the federation's, on disk too. */
bool control_variates_begin(ControlVariates *control, const GlobalModel *start, const Federation *federation,
                            const char *path, Diagnostics *diagnostics);
/* Reads the file; begins where there is none. Errors: one of another federation. Free it in any case. */
bool control_variates_open(ControlVariates *control, const GlobalModel *start, const Federation *federation,
                           const char *path, Diagnostics *diagnostics);
void control_variates_free(ControlVariates *control);

/* After the elements of `update`, start minus end of a round, writes how the site's own variate changes by it. `rates`
 * is the sum of the learning rates of the steps between; 0: none was made, and nothing changes. */
void control_variates_change(float *update, const GlobalModel *start, double rates);
/* That change was in the sum of the round before `round`. */
bool control_variates_keep(ControlVariates *control, const float *update, const Federation *federation, int64_t round,
                           Diagnostics *diagnostics);
/* `start` is the model of the next round: begins anew if a site has left since, or it has not been in a sum yet. */
bool control_variates_follow(ControlVariates *control, const GlobalModel *start, const Federation *federation,
                             Diagnostics *diagnostics);

#endif
