/* Kernels become machine code.
 *
 * Every distinct kernel (by kernel_hash) is compiled once per target, in a module and an object of its own, in
 * parallel; the function is a SkyKernel (runtime/program/program.h) named after the hash. Objects go into this process
 * (jit_load), into an archive that stage programs are linked with, or are printed.
 *
 * Results are bit-identical however the work units are split between calls and threads. */
#ifndef CODEGEN_KERNELS_KERNEL_COMPILER_H
#define CODEGEN_KERNELS_KERNEL_COMPILER_H

#include "base/buffer.h"
#include "codegen/kernels/target.h"
#include "codegen/kernels/work_units.h"
#include "graph/kernel/kernel.h"
#include "runtime/program/program.h"

typedef struct CompiledKernel {
    Hash hash;
    char symbol[40];
    int64_t units;              /* of work; 0: nothing to do */
    UnitAxis first_axis;        /* along which units are numbered first; step 0: none */
    int64_t nanoseconds;        /* of all of it on one thread, roughly */
    size_t scratch_bytes;       /* per thread */
    ProductPrecision precision; /* of a product on units for float32; else PRODUCTS_F32 */
    bool uses_tiles;            /* AMX: the process must have asked for them (runtime/program/tiles.h) */
    Buffer object;
} CompiledKernel;

typedef struct CompiledKernels {
    const Target *target;
    const Kernel **sources; /* of each compiled kernel; the caller's */
    CompiledKernel *kernels;
    size_t count, cached; /* cached: of them, those that were not compiled now */
} CompiledKernels;

typedef struct KernelCacheOptions {
    const char *cache_directory; /* compiled objects are kept here, by kernel and target; NULL: nowhere */
    int64_t cache_limit;         /* bytes it may take; 0: no limit */
    bool cache_limit_invalid;    /* the limit is the default one because what the user set is none: warned of */
} KernelCacheOptions;

/* Objects are kept where user_cache_directory says, and as many as cache_default_limit
 * does. */
KernelCacheOptions kernel_cache_defaults(Arena *arena);

/* Kernels may repeat. `target` and the kernels must outlive the result. NULL after reporting (EXIT_TOOLCHAIN). */
CompiledKernels *kernels_compile(const Kernel *const *kernels, size_t count, const Target *target,
                                 KernelCacheOptions options, Diagnostics *diagnostics);
/* The kernels of calls, as often as they are called; free `kernels`. */
typedef struct KernelList {
    const Kernel **kernels;
    size_t count, capacity;
} KernelList;

/* Adds all kernels that stand in SkyCall.interpreted of the program's calls. */
void kernel_list_add_program(KernelList *list, const SkyProgram *program);
/* Compiles just these. */
CompiledKernels *kernels_compile_program(const SkyProgram *program, const Target *target, KernelCacheOptions options,
                                         Diagnostics *diagnostics);
const CompiledKernel *kernels_find(const CompiledKernels *compiled, const Kernel *kernel); /* NULL if absent */
void kernels_free(CompiledKernels *compiled);

/* Fills units and nanoseconds of every call of the program, thread_scratch_bytes of its stages, uses_tiles and, if
 * `jit` is given, the functions. The calls must lie in memory that may be written. */
typedef struct JitProgram JitProgram;
void kernels_bind(const CompiledKernels *compiled, const JitProgram *jit, SkyProgram *program);

/* ---- In this process ---- */

/* The target must be this machine. NULL after reporting. */
JitProgram *jit_load(const CompiledKernels *compiled, Diagnostics *diagnostics);
SkyKernel *jit_find(const JitProgram *jit, const CompiledKernel *kernel);
void jit_free(JitProgram *jit); /* NULL is allowed */

/* ---- Text ---- */

typedef enum KernelText { KERNEL_TEXT_LLVM, KERNEL_TEXT_ASSEMBLY } KernelText;

/* Appends the optimised IR or the assembly of all kernels as one module, after a comment that lists what they compute.
 */
void kernels_print(const CompiledKernels *compiled, KernelText form, Buffer *text);

#endif
