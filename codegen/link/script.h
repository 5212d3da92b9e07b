/* The shell scripts of an output directory, from the templates train.sh, run_sbatch.sh, network.sh and
 * environment.sh.
 *
 * @NAME@ in a template stands for a word. A line "#@ if NAME" begins lines for some runs only, up to "#@ else" or "#@
 * end"; "#@ include NAME" stands for another template. */
#ifndef CODEGEN_LINK_SCRIPT_H
#define CODEGEN_LINK_SCRIPT_H

#include <stdbool.h>

#include "base/buffer.h"

typedef struct ScriptWord {
    const char *name, *text;
} ScriptWord;

typedef struct ScriptCondition {
    const char *name;
    bool holds;
} ScriptCondition;

/* What templates may name; lists end with a name that is NULL. */
typedef struct ScriptTerms {
    const ScriptWord *words;
    const ScriptCondition *conditions;
} ScriptTerms;

/* Appends the template of this name; a name or term that is unknown is a bug. */
void script_print(Buffer *text, const char *name, const ScriptTerms *terms);

#endif
