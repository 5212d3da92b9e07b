/* The CPU: kernels are functions of this process, which threads share wave by wave (runtime/program/waves.h). */
#ifndef RUNTIME_DEVICE_CPU_H
#define RUNTIME_DEVICE_CPU_H

#include "runtime/device/device.h"

extern const DeviceKind device_cpu;

/* Cuts the stage's lists into waves anew. `apart`: every call or group is a wave. */
void cpu_make_waves(const Execution *execution, StageSpaces *spaces, bool apart);

#endif
