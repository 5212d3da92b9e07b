/* The options of predict and export for a run of skycc finetune. */
#ifndef DRIVER_COMMANDS_RUN_OPTIONS_H
#define DRIVER_COMMANDS_RUN_OPTIONS_H

#include "driver/options/options.h"

/* Where options->model is a run, `completed` gets its model, checkpoints, label names, columns and tokenizer, as far as
 * the user did not name others. Otherwise it is a copy. The settings own the strings; free their arena in any case.
 * `hint` is for somebody who names a checkpoint too; NULL: none. */
bool run_options_complete(Options *completed, const Options *options, Settings *settings, const char *hint,
                          Diagnostics *diagnostics);
/* Takes the run's own copy of the tokenizer, if there is one: the run may have been moved away from the original. */
void run_find_tokenizer(Settings *settings, const char *run);

#endif
