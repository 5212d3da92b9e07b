/* What skycc made and needs whole, and the outputs of one command: none may replace a part of the other. */
#ifndef BASE_OWNED_FILES_H
#define BASE_OWNED_FILES_H

#include "base/diagnostics.h"

/* `path` without links and dots; of what is not there yet only the folders that are. free() it. */
char *path_resolve(const char *path);

/* What follows in `path` after the directory and a slash; NULL if it is not in it. Both are resolved. */
const char *path_inside(const char *path, const char *directory);

/* The format in settings.yaml of a run of skycc finetune. */
#define RUN_FORMAT "skycc.run/1"
/* The names of files and folders that runs consist of, in addition to a folder seed-N of every seed; NULL ends them. */
extern const char *const run_parts[];
/* Whether `path` is a directory with settings.yaml. */
bool is_run(const char *path);
/* Whether the first name of `rest`, a path in the directory, is one of those, or of a seed's folder. */
bool names_run_part(const char *rest);

/* A file that replaces what has its name, a link too; one that is written to, where a link leads; a folder, for which
 * the command that makes it has rules of its own. */
typedef enum OutputKind { OUTPUT_FILE, OUTPUT_WRITTEN, OUTPUT_FOLDER } OutputKind;

/* Refuses (EXIT_USAGE) to replace a file that the list of a compiled folder names, or a part of a checkpoint or a run.
 * The programs in the folder `programs` (NULL: none) may write the log.csv of their own run. What is not there yet
 * replaces nothing. */
bool owned_files_spare(const char *output, OutputKind kind, const char *programs, Diagnostics *diagnostics);

/* Refuses (EXIT_USAGE) a log in the directory where a coordinator or a site of a federation keeps its state, unless its
 * name ends with .csv: of the files there, only evaluations.csv does. */
bool owned_state_spares(const char *directory, const char *log, Diagnostics *diagnostics);

/* Refuses (EXIT_USAGE) two of the outputs, of which NULL is none, that are one file. */
bool outputs_apart(const char *const *outputs, size_t count, Diagnostics *diagnostics);

#endif
