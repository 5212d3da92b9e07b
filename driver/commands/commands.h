#ifndef DRIVER_COMMANDS_COMMANDS_H
#define DRIVER_COMMANDS_COMMANDS_H

#include "driver/options/options.h"

/* False after reporting, and where diagnostics->exit_code says how skycc ends. */
typedef bool RunCommand(const Options *options, Diagnostics *diagnostics);

#define DECLARE_COMMAND(NAME, name) RunCommand name##_command;
SKYCC_COMMANDS(DECLARE_COMMAND)

RunCommand probe_sites_command;   /* of probe --site */
RunCommand probe_devices_command; /* of probe --devices */

#endif
