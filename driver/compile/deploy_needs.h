/* deploy.json: what each host of a plan needs, for skycc deploy. */
#ifndef DRIVER_COMPILE_DEPLOY_NEEDS_H
#define DRIVER_COMPILE_DEPLOY_NEEDS_H

#include "driver/compile/stage_programs.h"

/* Writes it into `folder`, next to the programs and launch files of the ranks in `members`. */
bool deploy_needs_write(const StagePrograms *pipeline, const Cluster *cluster, const size_t *members, size_t count,
                        const char *folder, Diagnostics *diagnostics);

#endif
