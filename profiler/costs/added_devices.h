/* Devices that --add adds to costs that were read from a file. */
#ifndef PROFILER_COSTS_ADDED_DEVICES_H
#define PROFILER_COSTS_ADDED_DEVICES_H

#include "profiler/costs/costs.h"

/* A spec (cluster/device_spec.h) may give name, like, slowdown, memory, region and count. `like: DEVICE` takes what
 * is not given from that device; slowdown is relative to that device, or to the reference. An invalid spec is
 * EXIT_USAGE. */
bool costs_add_devices(Costs *costs, const char *const *specs, int count, Diagnostics *diagnostics);

#endif
