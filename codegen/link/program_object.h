/* The constant tables of a program (runtime/program/program.h) as an object file that refers to its kernels by symbol.
 */
#ifndef CODEGEN_LINK_PROGRAM_OBJECT_H
#define CODEGEN_LINK_PROGRAM_OBJECT_H

#include "codegen/kernels/kernel_compiler.h"

/* Appends the object that defines `sky_program`. Calls must have been bound (kernels_bind); their kernels are among
 * those compiled. */
void program_object(const SkyProgram *program, const CompiledKernels *compiled, Buffer *object);

#endif
