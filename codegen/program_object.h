/* The constant tables of a program (runtime/program.h) as an object file that refers to its kernels by symbol. */
#ifndef CODEGEN_PROGRAM_OBJECT_H
#define CODEGEN_PROGRAM_OBJECT_H

#include "codegen/codegen.h"

/* Appends the object that defines `sky_program`. Calls must have been bound (codegen_bind); their kernels are among
 * those compiled. */
void program_object(const SkyProgram *program, const CompiledKernels *compiled, Buffer *object);

#endif
