/* Whether hosts are ready for a run: what was found, against what is needed. */
#ifndef DRIVER_DEPLOY_READINESS_H
#define DRIVER_DEPLOY_READINESS_H

#include "driver/deploy/survey.h"

/* Clocks may differ by as many seconds. */
#define READINESS_CLOCK_S 5.0

/* Reports all that `survey`'s host lacks, an error each (EXIT_RUN_FAILED) with a hint, and prints its row of the table
 * whose head readiness_print_head prints. `mpi` is the version that the others have; NULL: none is known. */
bool readiness_judge(const Survey *survey, const Deployment *deployment, const char *mpi, Buffer *table,
                     Diagnostics *diagnostics);
void readiness_print_head(const Deployment *deployment, Buffer *table);

#endif
