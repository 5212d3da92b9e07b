/* A directory that appears whole or not at all, and that knows which of its files are its own. */
#ifndef BASE_DIRECTORY_H
#define BASE_DIRECTORY_H

#include "base/diagnostics.h"

/* Lists the files that skycc wrote into the directory: only these are replaced when it is written again. */
#define DIRECTORY_LIST ".skycc-files"

/* A directory of files, built under a temporary name next to `path`; directory_commit lists its files in DIRECTORY_LIST
 * and renames it. A former output is replaced, but only regular files that its lists name are removed. Other files
 * stay; without `keep_others` they are an error. Directories inside have lists of their own. */
typedef struct OutputDirectory {
    const char *path;
    bool keep_others;
    char *temporary; /* write into this one */
} OutputDirectory;

/* DIRECTORY/NAME; free() it. */
char *directory_join(const char *directory, const char *name);

/* Whether the list in `directory` names this file. */
bool directory_lists(const char *directory, const char *name);
/* From now on no output may replace a file that the list names, under any name (input_files.h). */
void directory_spare_own(const char *directory);

bool directory_create(OutputDirectory *directory, const char *path, bool keep_others, Diagnostics *diagnostics);
/* Where to write, before the commit, the file that is called `path` after it; `path` may lie outside the directory.
 * free() it. */
char *directory_place(const OutputDirectory *directory, const char *path);
/* On failure `path` is as it was. */
bool directory_commit(OutputDirectory *directory, Diagnostics *diagnostics);
void directory_abandon(OutputDirectory *directory); /* removes it with what it holds */

#endif
