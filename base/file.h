/* Files: mapped for reading, and written so that nothing half-done is ever seen under its final name. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <sys/stat.h>

#include "base/diagnostics.h"

/* A regular file mapped read-only. `bytes` is NULL for an empty file. */
typedef struct MappedFile {
    const unsigned char *bytes;
    size_t size;
    bool in_memory; /* not mapped from a file: read from standard input, or made */
} MappedFile;

/* Maps `path`; "-" reads standard input into memory. Errors: missing, unreadable, not a regular file. */
bool file_map(MappedFile *file, const char *path, Diagnostics *diagnostics);
/* Maps an open regular file, of which fstat said `status`; false with errno set. */
bool file_map_descriptor(MappedFile *file, int descriptor, const struct stat *status, const char *path);
void file_unmap(MappedFile *file);
/* How many of the `size` bytes from an address in a mapped file on were never written, and so are 0 without being read;
 * 0 where this is not known. */
size_t file_zeros_at(const void *address, size_t size);
/* Gives back the memory of a part that was read and will not be needed soon, since pages of a mapping count as the
 * process's own until then. What is read again comes from the file again. */
void file_forget(const MappedFile *file, size_t offset, size_t size);

/* The name, cut to 511 bytes, of the mapped file that an address lies in. NULL if it lies in none, or in one that was
 * mapped when 64 others were already. For handlers of SIGBUS, which the system raises when a mapped file was cut
 * short. */
const char *file_mapped_at(const void *address);
#define FILE_LOST_TEXT "was cut short, or could not be read, while it was in use"

/* The directory that this program lies in, without a slash at the end; "." if the system does not tell. free() it. */
char *file_program_directory(void);

/* A file being written next to its final name, under a name that nobody had; file_commit makes it durable and renames
 * it, anything else removes it. Files left open when the process exits are removed too. "-" as path writes to standard
 * output. An output that would replace what this process has read is refused (input_files.h). What is there and is no
 * regular file, such as /dev/null or a pipe, is written to and stays what it is. */
typedef struct OutputFile {
    FILE *stream;
    const char *path;
    char *temporary; /* NULL for standard output, and where what is there is written to */
} OutputFile;

bool file_create(OutputFile *file, const char *path, Diagnostics *diagnostics);
bool file_commit(OutputFile *file, Diagnostics *diagnostics); /* closes in any case */
void file_abandon(OutputFile *file);
/* Removes the temporary files that killed processes left next to `path`. */
void file_remove_unfinished(const char *path);
bool file_write_all(const char *path, const void *bytes, size_t size, Diagnostics *diagnostics);

/* Writes a file of an OutputDirectory, directly under its name: nobody sees it before the directory is committed. */
bool file_write_part(const char *path, const void *bytes, size_t size, Diagnostics *diagnostics);

/* From now on SIGINT, SIGTERM and SIGHUP remove outputs that are neither committed nor abandoned before they end the
 * process, except those that the process was started to ignore. So does a mapped file that somebody else cuts short
 * (SIGBUS), with a message and EXIT_BAD_INPUT. To be called once, by a program that handles none of them itself. */
void files_removed_by_interrupts(void);

/* Reports `what` ("cannot create") followed by errno's text; returns false. */
bool file_error(Diagnostics *diagnostics, const char *path, const char *what);

#endif
