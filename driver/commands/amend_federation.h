/* skycc federate --amend: signs a change to a federation that runs, and makes the folders of sites that join. */
#ifndef DRIVER_COMMANDS_AMEND_FEDERATION_H
#define DRIVER_COMMANDS_AMEND_FEDERATION_H

#include "driver/options/options.h"

bool amend_federation(const Options *options, Diagnostics *diagnostics);

#endif
