/* Sends to hosts what they lack. */
#ifndef DRIVER_DEPLOY_COPY_H
#define DRIVER_DEPLOY_COPY_H

#include "driver/deploy/survey.h"

typedef struct CopyResult {
    int sent;
    uint64_t bytes; /* that went out for these; what a former transfer left is not counted */
} CopyResult;

/* Whether every file that other hosts need is here as compile left it (EXIT_BAD_INPUT otherwise). */
bool copy_check_here(const Deployment *deployment, Diagnostics *diagnostics);

/* Sends a host its missing files one by one. Each is written under its part's name, hashed there and renamed; a
 * transfer that was interrupted continues. Errors (EXIT_RUN_FAILED) name the host: no answer, no sha256sum, no
 * space, not writable, transfer interrupted. */
bool copy_to_host(const Survey *survey, const Deployment *deployment, CopyResult *result, Diagnostics *diagnostics);

#endif
