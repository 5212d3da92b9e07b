/* A directory that appears whole or not at all, and that knows which of its files are its own. */
#ifndef BASE_DIRECTORY_H
#define BASE_DIRECTORY_H

#include "base/diagnostics.h"

/* Lists the files that were written with the directory: what is replaced, when the directory is written again. */
#define DIRECTORY_LIST ".skycc-files"

/* A directory of files, built under a temporary name next to `path`; directory_commit lists its files in DIRECTORY_LIST
 * and renames it. A former output is replaced: of it, only regular files that its lists name are removed. What else
 * lies there stays, and is a reason to refuse unless `keep_others`. It may hold directories, which have lists of their
 * own. */
typedef struct OutputDirectory {
    const char *path;
    bool keep_others;
    char *temporary; /* write into this one */
} OutputDirectory;

/* DIRECTORY/NAME; free() it. */
char *directory_join(const char *directory, const char *name);

bool directory_create(OutputDirectory *directory, const char *path, bool keep_others, Diagnostics *diagnostics);
/* Where to write, before the commit, the file that is called `path` after it; `path` may lie outside the directory.
 * free() it. */
char *directory_place(const OutputDirectory *directory, const char *path);
/* On failure `path` is as it was. */
bool directory_commit(OutputDirectory *directory, Diagnostics *diagnostics);
void directory_abandon(OutputDirectory *directory); /* removes it with what it holds */

#endif
