/* Devices that are reached by OpenCL: GPUs, and CPUs by PoCL. Calls go into one queue in the order of their list, and
 * the host waits at its end. */
#ifndef RUNTIME_DEVICE_OPENCL_H
#define RUNTIME_DEVICE_OPENCL_H

#include "runtime/device/device.h"

extern const DeviceKind device_opencl;

#endif
