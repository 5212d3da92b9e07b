/* What hosts do not have yet is sent to them. */
#ifndef DRIVER_DEPLOY_COPY_H
#define DRIVER_DEPLOY_COPY_H

#include "driver/deploy/survey.h"

typedef struct CopyResult {
    int sent;
    uint64_t bytes; /* that went out for these; what a former transfer left is not counted */
} CopyResult;

/* Whether every file that other hosts need is here as compile left it (EXIT_BAD_INPUT otherwise). */
bool copy_check_here(const Deployment *deployment, Diagnostics *diagnostics);

/* Sends a host the files that it has not, one after the other. Each is written under the name of its part, hashed there
 * and renamed; a part that a cut transfer left is gone on with. Errors (EXIT_RUN_FAILED), each with the host's name: a
 * host that did not answer, cannot hash, has no room or cannot write; a transfer that was cut. */
bool copy_to_host(const Survey *survey, const Deployment *deployment, CopyResult *result, Diagnostics *diagnostics);

#endif
