/* Files: mapped for reading, and written so that nothing half-done is ever seen under its final name. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/diagnostics.h"

/* A regular file mapped read-only. `bytes` is NULL for an empty file. */
typedef struct MappedFile {
    const unsigned char *bytes;
    size_t size;
    bool in_memory; /* not mapped from a file: read from standard input, or made */
} MappedFile;

/* Maps `path`; "-" reads standard input into memory. Errors: missing, unreadable, not a regular file. */
bool file_map(MappedFile *file, const char *path, Diagnostics *diagnostics);
void file_unmap(MappedFile *file);
/* Gives back the memory of a part that was read, and will not be soon: it counts as ours while it is mapped. */
void file_forget(const MappedFile *file, size_t offset, size_t size);

/* The name of the mapped file that an address lies in, for handlers of SIGBUS, which reading it raises where it was cut
 * short since; cut to 511 bytes. NULL: in none, or one of too many. */
const char *file_mapped_at(const void *address);
#define FILE_LOST_TEXT "was cut short, or could not be read, while it was in use"

/* The directory this program lies in, without a slash at the end; "." if the system does not tell. The caller frees it.
 */
char *file_program_directory(void);

/* A file being written beside its final name; file_commit makes it durable and renames it, anything else removes it.
 * Files left open when the process exits are removed too. "-" as path writes to standard output. */
typedef struct OutputFile {
    FILE *stream;
    const char *path;
    char *temporary; /* NULL for standard output */
} OutputFile;

bool file_create(OutputFile *file, const char *path, Diagnostics *diagnostics);
bool file_commit(OutputFile *file, Diagnostics *diagnostics); /* closes in any case */
void file_abandon(OutputFile *file);
bool file_write_all(const char *path, const void *bytes, size_t size, Diagnostics *diagnostics);

/* Of a directory that is being built: plainly, for its commit decides whether anybody sees the file. */
bool file_write_part(const char *path, const void *bytes, size_t size, Diagnostics *diagnostics);

/* A directory built under a temporary name beside `path`; directory_commit renames it, replacing a directory of that
 * name that holds nothing but a former output of skycc (it contains `marker`, or is empty). */
typedef struct OutputDirectory {
    const char *path;
    char *temporary; /* write into this one */
} OutputDirectory;

bool directory_create(OutputDirectory *directory, const char *path, const char *marker, Diagnostics *diagnostics);
bool directory_commit(OutputDirectory *directory, Diagnostics *diagnostics);
void directory_abandon(OutputDirectory *directory); /* removes it with what it holds */

/* From now on SIGINT, SIGTERM and SIGHUP remove outputs that are neither committed nor abandoned before they end the
 * process, except those that the process was started to ignore. So does a mapped file that somebody else cuts short
 * (SIGBUS), with a message and EXIT_BAD_INPUT. To be called once, by a program that handles none of them itself. */
void files_removed_by_interrupts(void);

#endif
