/* The files that this process has read: it may not replace or remove any of them, under any name. */
#ifndef BASE_INPUT_FILES_H
#define BASE_INPUT_FILES_H

#include "base/diagnostics.h"

/* Remembers the regular file that `descriptor` reads; file_map does. What this process made itself is no input. */
void input_files_note(int descriptor, const char *path);
void input_files_note_path(const char *path); /* not read yet, or by another process */

/* Declares the file of `descriptor`, or at `path`, to be this process's own. It may be replaced although it was read:
 * state or a log that a program continues. */
void input_files_release(int descriptor);
void input_files_release_path(const char *path);

/* The name under which the file at `path` was read, even if `path` is another link to it; NULL if it was not read. */
const char *input_file_at(const char *path);

/* Reports an output that would replace an input, and returns false. Writers of files call it before they write. */
bool input_files_spare(const char *path, Diagnostics *diagnostics);
/* The same for every file in `directory`, before it is emptied. */
bool input_files_spare_in(const char *directory, Diagnostics *diagnostics);

#endif
