/* What skycc made and needs whole, and the outputs of one command: none may replace a part of the other. */
#ifndef BASE_OWNED_FILES_H
#define BASE_OWNED_FILES_H

#include "base/diagnostics.h"

/* `path` without links and dots; of what is not there yet only the folders that are. free() it. */
char *path_resolve(const char *path);

/* What follows in `path` after the directory and a slash; NULL if it is not in it. Both are resolved. */
const char *path_inside(const char *path, const char *directory);

/* Whether a folder is of a kind that only the caller knows, and the entry that `rest` begins with is a part of it. */
typedef bool IsPart(const char *folder, const char *rest);

/* A file that replaces what has its name, a link too; one that is written to, where a link leads; a folder, for which
 * the command that makes it has rules of its own. */
typedef enum OutputKind { OUTPUT_FILE, OUTPUT_WRITTEN, OUTPUT_FOLDER } OutputKind;

/* Refuses (EXIT_USAGE) to replace a file that the list of a compiled folder names, a part of a checkpoint, or of what
 * `is_part` knows as `kind` (NULL: nothing). What is not there yet replaces nothing. */
bool owned_files_spare(const char *output, OutputKind output_kind, const char *kind, IsPart *is_part,
                       Diagnostics *diagnostics);

/* Refuses (EXIT_USAGE) two of the outputs, of which NULL is none, that are one file. */
bool outputs_apart(const char *const *outputs, size_t count, Diagnostics *diagnostics);

#endif
