/* --add SPEC: one device more, as a cluster file would describe it: {name: x, memory: 8GiB, gflops: 100}, or shorter
 * name=x,memory=8GiB,gflops=100. `like: DEVICE` takes everything that is not given from another device. */
#ifndef PROFILER_COSTS_DEVICE_SPEC_H
#define PROFILER_COSTS_DEVICE_SPEC_H

#include "base/yaml.h"
#include "profiler/costs/costs.h"

/* Parses either form; on failure (EXIT_USAGE) nothing is left open. */
bool device_spec_read(YamlFile *file, const char *spec, Diagnostics *diagnostics);

/* Adds the devices to costs. They can have name, like, slowdown (against the reference, or against the device that they
 * are like), memory, region and count. Reports (EXIT_USAGE) what is wrong with a spec. */
bool device_specs_add(Costs *costs, const char *const *specs, int count, Diagnostics *diagnostics);

#endif
