/* The kernels of a whole program as one OpenCL source, and its calls bound to them. */
#ifndef CODEGEN_OPENCL_OPENCL_PROGRAM_H
#define CODEGEN_OPENCL_OPENCL_PROGRAM_H

#include "base/arena.h"
#include "runtime/program/program.h"

/* Sets what a program for OpenCL has in addition to its tables: source and kernels, in memory of the arena, and of
 * every call its kernel and units. The calls must lie in memory that may be written. */
void opencl_bind(SkyProgram *program, Arena *arena);

#endif
