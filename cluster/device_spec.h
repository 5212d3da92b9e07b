/* --add SPEC: one device more, as a cluster file would describe it: {name: x, memory: 8GiB, gflops: 100}, or shorter
 * name=x,memory=8GiB,gflops=100. */
#ifndef CLUSTER_DEVICE_SPEC_H
#define CLUSTER_DEVICE_SPEC_H

#include "base/yaml.h"

/* Parses either form; on failure (EXIT_USAGE) nothing is left open. */
bool device_spec_read(YamlFile *file, const char *spec, Diagnostics *diagnostics);

#endif
