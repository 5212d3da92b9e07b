/* What a processor must have to run code of a target, in the words of Linux: for who compares it with a host's
 * /proc/cpuinfo. */
#ifndef CODEGEN_KERNELS_TARGET_FLAGS_H
#define CODEGEN_KERNELS_TARGET_FLAGS_H

#include "codegen/kernels/target.h"

/* The flags that code for the target may use, with blanks between them, in the arena. Of this machine's own CPU these
 * are exact. LLVM does not tell those of a CPU by name: of x86-64-v2, -v3 and -v4 they are the x86-64 psABI's, of
 * others the psABI's level that the width of their vectors belongs to. Of other architectures' CPUs by name: "". */
const char *target_flags(const Target *target, Arena *arena);
/* "x86_64", as uname -m has it. In the arena. */
const char *target_architecture(const Target *target, Arena *arena);

#endif
