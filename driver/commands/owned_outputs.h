/* Whether outputs that the user named would replace a part of something that skycc made and needs whole. */
#ifndef DRIVER_COMMANDS_OWNED_OUTPUTS_H
#define DRIVER_COMMANDS_OWNED_OUTPUTS_H

#include "driver/options/options.h"

/* Refuses (EXIT_USAGE) to replace a file or folder of a run of finetune, a file that the list of a compiled folder
 * names, and a part of a checkpoint. Commands that make such folders have rules of their own for them. */
bool owned_outputs_spare(Command command, const Options *options, Diagnostics *diagnostics);

#endif
