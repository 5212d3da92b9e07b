/* Checkpoints of a run over hosts without a shared file system: every rank wrote its part where it runs. */
#ifndef DRIVER_DEPLOY_COLLECT_H
#define DRIVER_DEPLOY_COLLECT_H

#include "driver/deploy/remote.h"

/* Copies from the host what the folder of this absolute path has there and not here. EXIT_RUN_FAILED. */
bool collect_from_host(const Remote *remote, const char *host, const char *folder, Diagnostics *diagnostics);

#endif
