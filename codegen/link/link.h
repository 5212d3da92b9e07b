/* Linking of stage programs, through the target's own linker command. */
#ifndef CODEGEN_LINK_LINK_H
#define CODEGEN_LINK_LINK_H

#include "codegen/kernels/target.h"

typedef struct LinkOptions {
    const char *linker;  /* command, words separated by spaces; "": this machine's C compiler */
    const char *sysroot; /* "": none */
    const char *runtime; /* libskyrt.a; "": the one that belongs to this skycc */
    bool foreign;        /* Target.foreign */
    bool sites;          /* ranks of other sites are reached by the wire, which is linked in for that */
} LinkOptions;

/* Links the objects and the runtime into the executable `output`. On failure (EXIT_TOOLCHAIN) the diagnostic holds what
 * the linker said. */
bool link_program(const char *output, const char *const *objects, size_t object_count, const LinkOptions *options,
                  Diagnostics *diagnostics);

/* Copies a program that belongs to the runtime, from the folder of the runtime library, to `output`: "gateway", or
 * "member" of a federation. Errors: EXIT_TOOLCHAIN. */
bool link_beside(const char *name, const char *output, const LinkOptions *options, Diagnostics *diagnostics);

/* Joins objects into one that programs can be linked from. False, without a word, if
 * this linker does not do that. */
bool link_objects(const char *output, const char *const *objects, size_t object_count, const LinkOptions *options);

#endif
