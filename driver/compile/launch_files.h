/* The files that start the programs of an output directory: scripts, and gateways for several sites. */
#ifndef DRIVER_COMPILE_LAUNCH_FILES_H
#define DRIVER_COMPILE_LAUNCH_FILES_H

#include "driver/compile/stage_programs.h"

/* Writes the files of codegen/link/launch.h into `directory`, or into each site's folder with the site's ranks. With
 * several sites each folder also gets `gateway` and site.json ("skycc.site/1", runtime/wire/site_file.h): the sites,
 * their ranks, which messages are which tensors of the plan, and `run`, a hash that all sites of this compilation
 * share. deploy.json lists what each host needs (driver/deploy/deploy_list.h). Errors: EXIT_TOOLCHAIN if there is no
 * gateway for a target. */
bool launch_files_make(const StagePrograms *pipeline, const Plan *plan, const Cluster *cluster, const char *directory,
                       Diagnostics *diagnostics);

#endif
