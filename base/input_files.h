/* The files that this process has read: nothing that it writes may replace or remove one of them, under whichever name.
 * */
#ifndef BASE_INPUT_FILES_H
#define BASE_INPUT_FILES_H

#include "base/diagnostics.h"

/* Remembers the regular file that `descriptor` reads; file_map does. What this process made itself is no input. */
void input_files_note(int descriptor, const char *path);

/* The file that `descriptor` writes, or that is found at `path`, is this process's own: it may be replaced though it
 * was read, as state and logs are that a program goes on with. */
void input_files_release(int descriptor);
void input_files_release_path(const char *path);

/* The name by which the file at `path` was read, also where `path` is another link to it; NULL if it was not. */
const char *input_file_at(const char *path);

/* Reports an output that would take an input's place, and returns false. For writers of files: before they write. */
bool input_files_spare(const char *path, Diagnostics *diagnostics);
/* The same of every file in `directory`, for who empties it. */
bool input_files_spare_in(const char *directory, Diagnostics *diagnostics);

#endif
