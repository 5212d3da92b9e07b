/* The folder that a run's relative paths are seen from. */
#ifndef RUNTIME_TRAIN_WORKING_FOLDER_H
#define RUNTIME_TRAIN_WORKING_FOLDER_H

#include "base/diagnostics.h"

/* Goes to where SKYCC_FOLDER says that `train` was started, if it does: mpiexec ends without a word where a host has no
 * such folder, so it starts ranks elsewhere. An error: this host has none. */
bool working_folder_enter(Diagnostics *diagnostics);

#endif
