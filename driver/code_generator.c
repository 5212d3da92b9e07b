/* Loads the code generator, lib/skycc/code_generator.so, when it is first called: LLVM, which it needs, takes ten times
 * as long to load as everything else, and many commands generate no code. These are all functions of codegen/kernels
 * and codegen/link that skycc calls and that need LLVM; tests are linked with them. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "codegen/kernels/target_flags.h"
#include "codegen/link/program_object.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;
static char *load_error; /* why there is none */
extern const char code_generator_sources[];

static void load(void)
{
    FREED_WITH(arena_free) Arena arena = {0};
    FREED char *directory = file_program_directory();
    const char *path = arena_format(&arena, "%s/../lib/skycc/code_generator.so", directory), *error = NULL;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *sources = library ? dlsym(library, "code_generator_sources") : NULL;
    if (!library)
        error = dlerror();
    else if (!sources || strcmp(sources, code_generator_sources) != 0)
        error = arena_format(&arena, "%s is of another build than this skycc", path);
    if (error) library = NULL;
    if (error && !(load_error = strdup(error))) memory_exhausted();
}

static void *find(const char *name)
{
    pthread_once(&once, load);
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) bug("the code generator lacks %s", name);
    return function;
}

bool target_init(Target *target, TargetOptions options, Diagnostics *diagnostics)
{
    pthread_once(&once, load);
    if (library) return ((__typeof__(target_init) *)find("target_init"))(target, options, diagnostics);
    *target = (Target){0};
    diagnostics_error(diagnostics, EXIT_TOOLCHAIN, PLACE_NONE,
                      "install bin/skycc and lib/skycc/code_generator.so of one build, and LLVM's library with them",
                      "the code generator cannot be loaded: %s", load_error);
    return false;
}

#define CALL(type, name, parameters, arguments)                                                                        \
    type name parameters { return ((__typeof__(name) *)find(#name))arguments; }

/* What a failed start leaves is freed, too. */
#define CALL_FREE(name, type, object)                                                                                  \
    void name(type *object)                                                                                            \
    {                                                                                                                  \
        if (library) ((__typeof__(name) *)find(#name))(object);                                                        \
    }

CALL_FREE(target_free, Target, target)
CALL(const char *, target_flags, (const Target *target, Arena *arena), (target, arena))
CALL(const char *, target_architecture, (const Target *target, Arena *arena), (target, arena))
CALL(KernelCacheOptions, kernel_cache_defaults, (Arena * arena), (arena))
CALL(CompiledKernels *, kernels_compile,
     (const Kernel *const *kernels, size_t count, const Target *target, KernelCacheOptions options,
      Diagnostics *diagnostics),
     (kernels, count, target, options, diagnostics))
CALL(void, kernel_list_add_program, (KernelList * list, const SkyProgram *program), (list, program))
CALL(CompiledKernels *, kernels_compile_program,
     (const SkyProgram *program, const Target *target, KernelCacheOptions options, Diagnostics *diagnostics),
     (program, target, options, diagnostics))
CALL_FREE(kernels_free, CompiledKernels, compiled)
CALL(void, kernels_bind, (const CompiledKernels *compiled, const JitProgram *jit, SkyProgram *program),
     (compiled, jit, program))
CALL(void, kernels_print, (const CompiledKernels *compiled, KernelText form, Buffer *text), (compiled, form, text))
CALL(JitProgram *, jit_load, (const CompiledKernels *compiled, Diagnostics *diagnostics), (compiled, diagnostics))
CALL(SkyKernel *, jit_find, (const JitProgram *jit, const CompiledKernel *kernel), (jit, kernel))
CALL_FREE(jit_free, JitProgram, jit)
CALL(void, program_object, (const SkyProgram *program, const CompiledKernels *compiled, Buffer *object),
     (program, compiled, object))
