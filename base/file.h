/* Files: mapped for reading, and written so that nothing half-done is ever seen under its final name. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <dirent.h>
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
/* The same for a file that outputs are made from, for file_guard_inputs. */
void file_unmap_input(MappedFile *file);

/* From now on no output is committed after somebody wrote to a file that it may be made from: one that is mapped, or
 * was given back by file_unmap_input. A command that ends calls this; not a program that outlives its inputs. */
void file_guard_inputs(void);
/* Reports such a file, once; false then. Commits call it. */
bool file_inputs_unchanged(Diagnostics *diagnostics);

/* How many of the `size` bytes from an address in a mapped file on were never written, and so are 0 without being read;
 * 0 where this is not known. */
size_t file_zeros_at(const void *address, size_t size);
/* Frees the memory of a part that will not be needed soon: pages of a mapping count as the process's own. A later
 * access reads the file again. */
void file_forget(const MappedFile *file, size_t offset, size_t size);

/* The name, cut to 511 bytes, of the mapped file that an address lies in. NULL if it lies in none, or in one that was
 * mapped when 64 others were already. For handlers of SIGBUS, which the system raises when a mapped file was cut
 * short. */
const char *file_mapped_at(const void *address);
#define FILE_LOST_TEXT "was cut short, or could not be read, while it was in use"

/* The directory that this program lies in, without a slash at the end; "." if the system does not tell. free() it. */
char *file_program_directory(void);

/* A file that is written next to its final name, under a new name. file_commit makes it durable and renames it;
 * otherwise it is removed. Files left open when the process exits are removed too; what a killed process left goes
 * when the same file is written again. "-" as path writes to standard output. An output must not replace a file that
 * this process has read (input_files.h). An existing /dev/null, pipe or other special file is written to, not
 * replaced; so is a regular file by the name of a descriptor, such as /dev/stdout or /dev/fd/3, from where that
 * stands. */
typedef struct OutputFile {
    FILE *stream;
    const char *path;
    char *temporary; /* NULL for standard output and special files */
    bool again;      /* of file_create_again */
} OutputFile;

bool file_create(OutputFile *file, const char *path, Diagnostics *diagnostics);
/* The same for a file that is written again and again: what it replaces waits next to it under a hidden name, and is
 * overwritten by the next one, unless it has another name, or somebody has it open. That takes half the time of new
 * blocks. file_drop_retired after the last one. */
bool file_create_again(OutputFile *file, const char *path, Diagnostics *diagnostics);
#define FILE_RETIRED_MARK ".retired-"
char *file_retired_path(const char *path); /* that hidden name; free() it */
void file_drop_retired(const char *path);
/* Renames a file that is written again and again to another one, which it replaces, and which waits in its place. */
bool file_rename_again(const char *from, const char *to, Diagnostics *diagnostics);
bool file_commit(OutputFile *file, Diagnostics *diagnostics); /* closes in any case */
void file_abandon(OutputFile *file);
bool file_write_all(const char *path, const void *bytes, size_t size, Diagnostics *diagnostics);

/* Writes a file of an OutputDirectory, directly under its name: nobody sees it before the directory is committed. */
bool file_write_part(const char *path, const void *bytes, size_t size, Diagnostics *diagnostics);

/* From now on SIGINT, SIGTERM and SIGHUP, unless ignored at the start, remove unfinished outputs before they end the
 * process. SIGBUS, after somebody cut a mapped file short, does so too, with a message and EXIT_BAD_INPUT. A program
 * calls this once and handles none of these signals itself. */
void files_removed_by_interrupts(void);

/* For FREED_WITH (arena.h): NULL and -1 are nothing to close; errno stays. */
void stream_close(FILE **stream);
void listing_close(DIR **listing);
void descriptor_close(int *descriptor);

/* Reports `what` ("cannot create") followed by errno's text; returns false. */
bool file_error(Diagnostics *diagnostics, const char *path, const char *what);

#endif
