/* Training as a child process, while this one watches over it. */
#ifndef DRIVER_FINETUNE_TRAINING_H
#define DRIVER_FINETUNE_TRAINING_H

#include "driver/finetune/single_commands.h"

/* Called every few seconds while training runs, and once after it has ended. */
typedef void WatchTraining(void *context, bool ended);

/* Runs the program with what `more` (NULL: nothing) adds, and waits for it. SIGINT and SIGTERM reach it and not this
 * process, so that it saves a checkpoint. Returns its exit status, or 127 after reporting. */
int training_run(const SingleCommand *command, const char *more, WatchTraining *watch, void *context,
                 Diagnostics *diagnostics);

#endif
