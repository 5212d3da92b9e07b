/* What starts the programs of an output directory: scripts, and for several sites their gateways. */
#ifndef DRIVER_COMPILE_LAUNCH_FILES_H
#define DRIVER_COMPILE_LAUNCH_FILES_H

#include "driver/compile/stage_programs.h"

/* Writes the files of codegen/link/launch.h into `directory`; where sites have folders, those of its ranks into each.
 * Where several have ranks, each also gets `gateway` and site.json ("skycc.site/1", see runtime/wire/site_file.h):
 * who the sites are, which ranks are whose, which messages are which tensors of the plan, and `run`, which all have in
 * common and no other compilation has. deploy.json says what each host must have (driver/deploy/deploy_list.h).
 * Errors: EXIT_TOOLCHAIN where there is no gateway for a target. */
bool launch_files_make(const StagePrograms *pipeline, const Plan *plan, const Cluster *cluster, const char *directory,
                       Diagnostics *diagnostics);

#endif
