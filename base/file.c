#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/input_files.h"
#include "base/outputs.h"
#include "base/pending.h"
#include "base/text.h"

char *file_program_directory(void)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash) *slash = '\0';
    char *directory = strdup(slash ? path : ".");
    if (!directory) memory_exhausted();
    return directory;
}

static int interrupt_pipe[2];

static void tell_interrupt(int signal_number)
{
    int saved = errno;
    unsigned char byte = (unsigned char)signal_number;
    if (write(interrupt_pipe[1], &byte, 1) < 0) _exit(128 + signal_number);
    errno = saved;
}

/* ---- Mapped files ---- */

/* The mapped files, for the handler of SIGBUS. A handler may take no lock, so entries never move, and the address is
 * written last and cleared first. */

enum { MOST_MAPPED = 64, LONGEST_NAME = 512 };

static struct Mapping {
    const unsigned char *_Atomic bytes; /* NULL: a free entry */
    size_t size;
    int sparse;         /* a descriptor of it if much of it was never written, else -1 */
    struct stat status; /* when it was mapped */
    char path[LONGEST_NAME];
} mappings[MOST_MAPPED];
static pthread_mutex_t mapping_lock = PTHREAD_MUTEX_INITIALIZER;

static void remember_mapping(const MappedFile *file, int descriptor, const struct stat *status, const char *path)
{
    bool is_sparse = (uint64_t)status->st_blocks * 512 < file->size / 2;
    pthread_mutex_lock(&mapping_lock);
    for (int i = 0; i < MOST_MAPPED; i++) {
        if (mappings[i].bytes) continue;
        snprintf(mappings[i].path, sizeof mappings[i].path, "%s", path);
        mappings[i].size = file->size;
        mappings[i].status = *status;
        mappings[i].sparse = is_sparse ? fcntl(descriptor, F_DUPFD_CLOEXEC, 0) : -1;
        mappings[i].bytes = file->bytes;
        break;
    }
    pthread_mutex_unlock(&mapping_lock);
}

static void forget_mapping(const MappedFile *file)
{
    pthread_mutex_lock(&mapping_lock);
    for (int i = 0; i < MOST_MAPPED; i++)
        if (mappings[i].bytes == file->bytes) {
            mappings[i].bytes = NULL;
            if (mappings[i].sparse >= 0) close(mappings[i].sparse);
        }
    pthread_mutex_unlock(&mapping_lock);
}

const char *file_mapped_at(const void *address)
{
    for (int i = 0; i < MOST_MAPPED; i++) {
        const unsigned char *bytes = mappings[i].bytes;
        if (bytes && (uintptr_t)address - (uintptr_t)bytes < mappings[i].size) return mappings[i].path;
    }
    return NULL;
}

size_t file_zeros_at(const void *address, size_t size)
{
    size_t zeros = 0;
    pthread_mutex_lock(&mapping_lock);
    for (int i = 0; i < MOST_MAPPED; i++) {
        const unsigned char *bytes = mappings[i].bytes;
        size_t offset = (uintptr_t)address - (uintptr_t)bytes;
        if (!bytes || offset >= mappings[i].size || mappings[i].sparse < 0) continue;
        off_t next = lseek(mappings[i].sparse, (off_t)offset, SEEK_DATA);
        if (next < 0 && errno == ENXIO) next = (off_t)mappings[i].size;
        if (next > (off_t)offset) zeros = (size_t)next - offset;
    }
    pthread_mutex_unlock(&mapping_lock);
    return zeros < size ? zeros : size;
}

/* ---- Inputs that are overwritten ---- */

static bool inputs_are_guarded;
static char overwritten[LONGEST_NAME]; /* an input that was, and is not mapped any more; "": none */

void file_guard_inputs(void) { inputs_are_guarded = true; }

static bool is_overwritten(const struct Mapping *mapping)
{
    struct stat now;
    const struct stat *was = &mapping->status;
    /* A new file under the name changes nothing: the former one is still mapped. */
    if (!mapping->bytes || stat(mapping->path, &now) != 0 || now.st_ino != was->st_ino || now.st_dev != was->st_dev)
        return false;
    return now.st_size != was->st_size || now.st_mtim.tv_sec != was->st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != was->st_mtim.tv_nsec;
}

/* Keeps the name of an input that was overwritten; `file` NULL: of any that is mapped. */
static void find_overwritten(const MappedFile *file)
{
    pthread_mutex_lock(&mapping_lock);
    for (int i = 0; i < MOST_MAPPED && inputs_are_guarded && !*overwritten; i++)
        if ((!file || mappings[i].bytes == file->bytes) && is_overwritten(&mappings[i]))
            snprintf(overwritten, sizeof overwritten, "%s", mappings[i].path);
    pthread_mutex_unlock(&mapping_lock);
}

void file_unmap_input(MappedFile *file)
{
    if (file->bytes && !file->in_memory) find_overwritten(file);
    file_unmap(file);
}

bool file_inputs_unchanged(Diagnostics *diagnostics)
{
    find_overwritten(NULL);
    if (!*overwritten) return true;
    input_error(diagnostics, overwritten, "run the command again; write what is new to another file",
                "was overwritten while it was in use");
    *overwritten = '\0';
    return false;
}

/* ---- Interrupts ---- */

static void write_text(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0) _exit(EXIT_BAD_INPUT);
}

/* Runs when a mapped file ends before what is read of it (somebody cut it short), or when its disk failed. The read
 * cannot be made good, so the process ends. */
static void tell_lost_file(int signal_number, siginfo_t *information, void *context)
{
    (void)context;
    const char *name = file_mapped_at(information->si_addr);
    write_text(name ? name : "skycc");
    write_text(": error: " FILE_LOST_TEXT "\n");
    tell_interrupt(signal_number);
    for (;;) pause(); /* the thread that waits for interrupts ends the process */
}

/* A thread of its own, because a signal handler may not remove a tree. It keeps the lock until the process ends, so
 * that no other thread begins or ends an output meanwhile. */
static void *wait_for_interrupt(void *unused)
{
    unsigned char byte;
    while (read(interrupt_pipe[0], &byte, 1) != 1)
        if (errno != EINTR) return unused;
    pending_hold();
    pending_remove_all();
    if (byte == SIGBUS) _exit(EXIT_BAD_INPUT);
    signal(byte, SIG_DFL);
    kill(getpid(), byte);
    return unused;
}

void files_removed_by_interrupts(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    pthread_t thread;
    if (pipe2(interrupt_pipe, O_CLOEXEC) != 0 || pthread_create(&thread, NULL, wait_for_interrupt, NULL) != 0) return;
    pthread_detach(thread);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction action = {.sa_handler = tell_interrupt, .sa_flags = SA_RESTART}, former;
        sigaction(signals[i], NULL, &former);
        if (former.sa_handler != SIG_IGN) sigaction(signals[i], &action, NULL);
    }
    sigaction(SIGBUS, &(struct sigaction){.sa_sigaction = tell_lost_file, .sa_flags = SA_SIGINFO}, NULL);
}

void stream_close(FILE **stream)
{
    int saved = errno;
    if (*stream) fclose(*stream);
    errno = saved;
}

void listing_close(DIR **listing)
{
    int saved = errno;
    if (*listing) closedir(*listing);
    errno = saved;
}

void descriptor_close(int *descriptor)
{
    int saved = errno;
    if (*descriptor >= 0) close(*descriptor);
    errno = saved;
}

bool file_error(Diagnostics *diagnostics, const char *path, const char *what)
{
    int code = errno;
    const char *slash = strrchr(path, '/');
    bool creates = strcmp(what, "cannot create") == 0, nowhere = creates && code == ENOENT && slash && slash > path;
    bool forbidden = creates && (code == EACCES || code == EROFS);
    Arena *arena = &diagnostics->arena;
    const char *hint = nowhere     ? arena_format(arena, "make its directory first: mkdir -p %s",
                                                  text_word(arena, arena_string_n(arena, path, (size_t)(slash - path))))
                       : forbidden ? "this user may not write there: name another place"
                                   : NULL;
    return input_error(diagnostics, path, hint, "%s: %s", what, strerror(code));
}

/* Pipes cannot be mapped: they are read to their end into memory that file_unmap gives back just as a mapping. */
static bool read_stream(MappedFile *file, FILE *stream, const char *path, Diagnostics *diagnostics)
{
    size_t capacity = 1 << 16, size = 0, got;
    FREED char *bytes = memory_allocate(capacity);
    while ((got = fread(bytes + size, 1, capacity - size, stream)) > 0) {
        size += got;
        if (size == capacity) bytes = memory_resize(bytes, capacity *= 2, 1);
    }
    bool ok = !ferror(stream) || file_error(diagnostics, path, "cannot read");
    if (ok && size > 0) {
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) memory_exhausted();
        memcpy(memory, bytes, size);
        *file = (MappedFile){memory, size, true};
    }
    return ok;
}

bool file_map_descriptor(MappedFile *file, int descriptor, const struct stat *status, const char *path)
{
    *file = (MappedFile){0};
    input_files_note(descriptor, path);
    if (status->st_size == 0) return true;
    void *bytes = mmap(NULL, (size_t)status->st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (bytes == MAP_FAILED) return false;
    *file = (MappedFile){bytes, (size_t)status->st_size, false};
    remember_mapping(file, descriptor, status, path);
    return true;
}

bool file_map(MappedFile *file, const char *path, Diagnostics *diagnostics)
{
    *file = (MappedFile){0};
    if (strcmp(path, "-") == 0) {
        input_files_note(STDIN_FILENO, "standard input");
        return read_stream(file, stdin, "standard input", diagnostics);
    }
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
    if (descriptor < 0) return file_error(diagnostics, path, "cannot open");
    struct stat status;
    bool ok = true;
    if (fstat(descriptor, &status) != 0) {
        ok = file_error(diagnostics, path, "cannot examine");
    } else if (!S_ISREG(status.st_mode)) {
        ok = input_error(diagnostics, path, S_ISDIR(status.st_mode) ? "name a file in it" : NULL, "%s",
                         S_ISDIR(status.st_mode) ? "is a directory" : "is not a regular file");
    } else if (!file_map_descriptor(file, descriptor, &status, path)) {
        ok = file_error(diagnostics, path, "cannot map");
    }
    close(descriptor);
    return ok;
}

void file_unmap(MappedFile *file)
{
    if (file->bytes && !file->in_memory) forget_mapping(file);
    if (file->bytes) munmap((void *)file->bytes, file->size);
    *file = (MappedFile){0};
}

void file_forget(const MappedFile *file, size_t offset, size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t begin = (offset + page - 1) / page * page, end = (offset + size) / page * page;
    if (!file->in_memory && begin < end) madvise((void *)(file->bytes + begin), end - begin, MADV_DONTNEED);
}

/* Never opens a file, or follows a link, that somebody else put there. */
static int create_part(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

static int create_file(const char *temporary, const char *path)
{
    (void)path;
    return create_part(temporary);
}

/* ---- Files that are written again and again ---- */

char *file_retired_path(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash + 1 - path) : 0;
    Buffer name = {0};
    buffer_append(&name, path, folder);
    buffer_print(&name, FILE_RETIRED_MARK "%s", path + folder);
    return name.bytes;
}

void file_drop_retired(const char *path)
{
    FREED char *retired = file_retired_path(path);
    unlink(retired);
}

/* Whether the file has no other name, and no process has it open or mapped: only then the system grants a lease. */
static bool is_unused(int descriptor)
{
    struct stat status;
    return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
           status.st_nlink == 1 && fcntl(descriptor, F_SETSIG, SIGURG) == 0 && /* which nobody minds */
           fcntl(descriptor, F_SETLEASE, F_WRLCK) == 0 && fcntl(descriptor, F_SETLEASE, F_UNLCK) == 0;
}

static int reuse_file(const char *temporary, const char *path)
{
    FREED char *retired = file_retired_path(path);
    bool renamed = renameat2(AT_FDCWD, retired, AT_FDCWD, temporary, RENAME_NOREPLACE) == 0;
    if (!renamed) return create_part(temporary);
    int descriptor = open(temporary, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor >= 0 && is_unused(descriptor)) return descriptor;
    if (descriptor >= 0) close(descriptor);
    unlink(temporary);
    return create_part(temporary);
}

/* The file at the path, which is about to be replaced, waits under another name to be overwritten by the next one at
 * `next`. */
static void retire(const char *path, const char *next)
{
    FREED char *retired = file_retired_path(next);
    unlink(retired);
    if (link(path, retired) != 0) errno = 0; /* then the next file is a new one */
}

/* N, if `path` is a name of this process's descriptor N, such as /dev/stdout or /dev/fd/3; else -1. Follows at most so
 * many links. */
static int descriptor_at(const char *path, int most_links)
{
    char next[PATH_MAX];
    const char *slash = strrchr(path, '/');
    ssize_t length = readlink(path, next, sizeof next - 1);
    if (length < 0 || most_links == 0) return -1;
    next[length] = '\0';
    FREED_WITH(buffer_free) Buffer start = {0}, at = {0};
    buffer_append(&start, path, slash ? (size_t)(slash + 1 - path) : 0);
    buffer_print(&start, ".");
    FREED char *folder = realpath(start.bytes, NULL), *own = realpath("/proc/self/fd", NULL);
    bool found = folder && own && strcmp(folder, own) == 0;
    buffer_print(&at, "%s%s%s", *next == '/' || !folder ? "" : folder, *next == '/' ? "" : "/", next);
    return found ? atoi(slash ? slash + 1 : path) : descriptor_at(at.bytes, most_links - 1);
}

bool file_rename_again(const char *from, const char *to, Diagnostics *diagnostics)
{
    retire(to, from);
    if (rename(from, to) != 0) return file_error(diagnostics, to, "cannot rename into place");
    sync_parent(to);
    return true;
}

static bool create(OutputFile *file, const char *path, CreateEntry *entry, Diagnostics *diagnostics)
{
    *file = (OutputFile){.path = path};
    if (strcmp(path, "-") == 0) {
        file->stream = stdout;
        return true;
    }
    struct stat status;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return input_error(diagnostics, path, NULL, "is a directory");
    if (!input_files_spare(path, diagnostics)) return false;
    /* Devices, pipes and files that a shell has opened are written to, never replaced by a file. */
    bool special = stat(path, &status) == 0 && !S_ISREG(status.st_mode);
    int opened = special ? -1 : descriptor_at(path, 8), descriptor;
    bool in_place = special || opened >= 0;
    if (opened >= 0)
        descriptor = fcntl(opened, F_DUPFD_CLOEXEC, 0);
    else if (in_place)
        descriptor = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    else
        file->temporary = pending_create(path, entry, &descriptor);
    if (file->temporary) input_files_release(descriptor);
    if (in_place ? descriptor < 0 : !file->temporary) return file_error(diagnostics, path, "cannot create");
    file->stream = fdopen(descriptor, "wb");
    if (!file->stream) memory_exhausted();
    return true;
}

bool file_create(OutputFile *file, const char *path, Diagnostics *diagnostics)
{
    return create(file, path, create_file, diagnostics);
}

bool file_create_again(OutputFile *file, const char *path, Diagnostics *diagnostics)
{
    bool ok = create(file, path, reuse_file, diagnostics);
    file->again = ok && file->temporary;
    return ok;
}

void file_abandon(OutputFile *file)
{
    if (file->stream && file->stream != stdout) fclose(file->stream);
    if (file->temporary) {
        unlink(file->temporary);
        pending_drop(file->temporary);
    }
    *file = (OutputFile){0};
}

static bool place_file(const char *path, char *temporary, bool keep_others, Diagnostics *diagnostics)
{
    (void)keep_others;
    bool ok = file_inputs_unchanged(diagnostics) &&
              input_files_spare(path, diagnostics) && /* it may have been read since it was created */
              (rename(temporary, path) == 0 || file_error(diagnostics, path, "cannot rename into place"));
    if (ok)
        sync_parent(path);
    else
        unlink(temporary);
    pending_drop(temporary);
    return ok;
}

bool file_commit(OutputFile *file, Diagnostics *diagnostics)
{
    if (file->stream == stdout)
        return ((fflush(file->stream) == 0 && !ferror(file->stream)) ||
                file_error(diagnostics, "standard output", "cannot write")) &&
               file_inputs_unchanged(diagnostics);
    bool ok = fflush(file->stream) == 0 && !ferror(file->stream) &&
              (!file->again || ftruncate(fileno(file->stream), ftello(file->stream)) == 0) &&
              (!file->temporary || fsync(fileno(file->stream)) == 0);
    int saved = errno;
    if (fclose(file->stream) != 0 && ok) saved = errno, ok = false;
    file->stream = NULL;
    errno = saved;
    ok = ok || file_error(diagnostics, file->path, "cannot write");
    if (!file->temporary) return ok && file_inputs_unchanged(diagnostics);
    if (ok && file->again) retire(file->path, file->path);
    if (ok)
        ok = outputs_place(place_file, file->path, file->temporary, false, diagnostics);
    else
        file_abandon(file);
    *file = (OutputFile){0};
    return ok;
}

bool file_write_all(const char *path, const void *bytes, size_t size, Diagnostics *diagnostics)
{
    OutputFile file;
    if (!file_create(&file, path, diagnostics)) return false;
    fwrite(bytes, 1, size, file.stream); /* file_commit sees the stream's error flag */
    return file_commit(&file, diagnostics);
}

bool file_write_part(const char *path, const void *bytes, size_t size, Diagnostics *diagnostics)
{
    int descriptor = create_part(path);
    FILE *stream = descriptor < 0 ? NULL : fdopen(descriptor, "wb");
    if (!stream) return file_error(diagnostics, path, "cannot create");
    input_files_release(descriptor);
    bool written = fwrite(bytes, 1, size, stream) == size;
    int saved = errno;
    if (fclose(stream) != 0 && written) saved = errno, written = false;
    errno = saved;
    return written || file_error(diagnostics, path, "cannot write");
}
