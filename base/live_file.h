/* Files that a program writes again and again while it works. */
#ifndef BASE_LIVE_FILE_H
#define BASE_LIVE_FILE_H

#include "base/diagnostics.h"

/* As file_write_all, but replaces a pipe too, which would wait for a reader. */
bool live_file_write(const char *path, const void *bytes, size_t size, Diagnostics *diagnostics);

#endif
