/* What codecs left out of a site's updates so far, on its disk next to its checkpoints: it is added to the next ones.
 * It moves on when the coordinator says that the update was in the sum, and only then, so that a site that is killed at
 * any point sends the same as one that is not. */
#ifndef FEDERATION_MEMBER_FEEDBACK_H
#define FEDERATION_MEMBER_FEEDBACK_H

#include "federation/coded_row.h"
#include "federation/global_model.h"

typedef struct Feedback {
    RowRule rule;
    const char *path;
    GlobalModel left; /* left.round: the round after the last update that was in a sum */
    float *next;      /* of the fragment that meets, once the update of `made_for` is in the sum; NULL: none was made */
    int64_t made_for; /* the round of that update */
    int64_t written;  /* the round of which `next` is on disk, at `next_path`; -1: none is */
    char *next_path;
    Buffer bytes; /* of it */
} Feedback;

/* Writes zeros, where a site begins with the model. */
bool feedback_begin(const GlobalModel *start, const char *path, Diagnostics *diagnostics);
/* Errors: a file that is missing, or of another federation. Free it in any case. */
bool feedback_open(Feedback *feedback, const Federation *federation, const char *path, Diagnostics *diagnostics);
void feedback_free(Feedback *feedback);

/* Codes the update that `round` makes of the elements of `part`, with what was left out before: `update` becomes what
 * it is at the coordinator. The norm of both together is cut to `clip`, unless that is 0. False: it is not finite. */
bool feedback_code(Feedback *feedback, float *update, FragmentRange part, int64_t round, double clip);
/* Writes ahead, while the site waits, what feedback_keep will need if the update of the round before `round`, which
 * feedback_code made last, is in the sum: of updates of the whole model. Once is enough. */
bool feedback_prepare(Feedback *feedback, FragmentRange part, int64_t round, Diagnostics *diagnostics);
/* That update was in the sum. */
bool feedback_keep(Feedback *feedback, FragmentRange part, int64_t round, Diagnostics *diagnostics);

#endif
