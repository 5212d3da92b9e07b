#include "base/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/input_files.h"
#include "base/order.h"
#include "base/outputs.h"
#include "base/pending.h"

static const char list_head[] = "skycc output/1\n";

/* ---- What lies in a directory ---- */

typedef struct Entry {
    char *name;
    bool own;    /* a regular file that the list names, or the list; or a directory that it names */
    bool nested; /* a directory that the list names: what is in it has a list of its own */
} Entry;

typedef struct Entries {
    Entry *items;
    size_t count, capacity;
} Entries;

static void entries_free(Entries *entries)
{
    for (size_t i = 0; i < entries->count; i++) free(entries->items[i].name);
    free(entries->items);
}

char *directory_join(const char *directory, const char *name)
{
    Buffer path = {0};
    buffer_print(&path, "%s/%s", directory, name);
    return path.bytes;
}

/* The list as text, ended by a zero byte; NULL if there is none that skycc wrote. */
static char *read_list(const char *directory)
{
    char *path = directory_join(directory, DIRECTORY_LIST), *text = NULL;
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    MappedFile file;
    if (file_map(&file, path, &ignored)) {
        if (file.size >= strlen(list_head) && memcmp(file.bytes, list_head, strlen(list_head)) == 0)
            text = strndup((const char *)file.bytes, file.size);
        file_unmap(&file);
        input_files_release_path(path);
    }
    free(path);
    return text;
}

/* Whether a line of the list is the name, followed by `mark`. */
static bool is_listed(const char *list, const char *name, const char *mark)
{
    size_t length = strlen(name), marks = strlen(mark);
    for (const char *line = list; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && strncmp(line + length, mark, marks) == 0 &&
            line[length + marks] == '\n')
            return true;
    }
    return false;
}

bool directory_lists(const char *directory, const char *name)
{
    FREED char *list = read_list(directory);
    return is_listed(list, name, "");
}

static bool is_directory(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* In the order of names. False, with errno set, if `path` is no directory that can be read. */
static bool list_entries(const char *path, Entries *entries)
{
    *entries = (Entries){0};
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = descriptor < 0 ? NULL : fdopendir(descriptor);
    if (!stream) return false;
    FREED char *list = read_list(path);
    for (struct dirent *item; (item = readdir(stream));) {
        struct stat status;
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0) continue;
        bool file = list && (is_listed(list, item->d_name, "") || strcmp(item->d_name, DIRECTORY_LIST) == 0);
        bool folder = list && is_listed(list, item->d_name, "/");
        bool known = (file || folder) && fstatat(descriptor, item->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0;
        bool nested = known && folder && S_ISDIR(status.st_mode);
        Entry entry = {strdup(item->d_name), nested || (known && file && S_ISREG(status.st_mode)), nested};
        if (!entry.name) memory_exhausted();
        array_push(entries->items, entries->count, entries->capacity, entry);
    }
    closedir(stream);
    if (entries->count) qsort(entries->items, entries->count, sizeof *entries->items, order_texts);
    return true;
}

void directory_spare_own(const char *directory)
{
    FREED char *inside = directory_join(directory, "."); /* `directory` may be a link */
    FREED_WITH(entries_free) Entries entries = {0};
    if (list_entries(inside, &entries))
        for (size_t i = 0; i < entries.count; i++) {
            FREED char *path = directory_join(directory, entries.items[i].name);
            if (entries.items[i].own) input_files_note_path(path);
        }
}

/* The path of the first file that is not skycc's, here or in a directory that a list names; free() it. NULL: none. */
static char *first_stranger(const Entries *entries, const char *directory)
{
    char *stranger = NULL;
    for (size_t i = 0; i < entries->count && !stranger; i++) {
        const Entry *entry = &entries->items[i];
        if (!entry->own) stranger = strdup(entry->name);
        if (!entry->own && !stranger) memory_exhausted();
        if (!entry->nested) continue;
        FREED char *path = directory_join(directory, entry->name);
        FREED_WITH(entries_free) Entries inner = {0};
        FREED char *found = list_entries(path, &inner) ? first_stranger(&inner, path) : strdup("?");
        if (found) stranger = directory_join(entry->name, found);
    }
    return stranger;
}

/* ---- Building ---- */

static char *without_trailing_slashes(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    char *copy = memory_allocate(length + 1);
    memcpy(copy, path, length);
    return copy;
}

/* Whether a new output removes no file that this process has read. */
static bool spare_inputs(const Entries *entries, const char *directory, const char *called, Diagnostics *diagnostics)
{
    bool ok = true;
    for (size_t i = 0; i < entries->count && ok; i++) {
        const Entry *entry = &entries->items[i];
        FREED char *path = directory_join(directory, entry->name);
        const char *input = entry->own ? input_file_at(path) : NULL;
        if (input)
            ok = diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(called), "name another directory",
                                   "would replace '%s', which this command reads", input);
        FREED_WITH(entries_free) Entries inner = {0};
        if (entry->nested && list_entries(path, &inner)) ok = spare_inputs(&inner, path, called, diagnostics);
    }
    return ok;
}

/* Reports why `name` may not be replaced, if so. */
static bool check_replaceable(const OutputDirectory *directory, const char *name, Diagnostics *diagnostics)
{
    struct stat status;
    FREED_WITH(entries_free) Entries entries = {0};
    if (lstat(name, &status) != 0 && errno == ENOENT) return true;
    if (!input_files_spare(name, diagnostics)) return false;
    if (!list_entries(name, &entries)) return file_error(diagnostics, directory->path, "cannot be replaced");
    FREED char *stranger = first_stranger(&entries, name);
    bool ok = !stranger || directory->keep_others ||
              input_error(diagnostics, directory->path,
                          "name another directory, or give --force, which keeps these files next to the output",
                          "exists and holds something that skycc did not write: '%s'", stranger);
    return ok && spare_inputs(&entries, name, directory->path, diagnostics);
}

/* Whether a directory can take the place of `name`: not of the working directory, nor where a file system is
 * mounted. */
static bool check_place(const char *path, const char *name, Diagnostics *diagnostics)
{
    static const char hint[] = "name a directory in it";
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    struct stat here, status, parent;
    if (stat(name, &status) != 0) return true;
    bool is_dot = !*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0;
    if (is_dot || (stat(".", &here) == 0 && here.st_dev == status.st_dev && here.st_ino == status.st_ino))
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(path), hint,
                                 "is the root or the working directory, or ends in a dot, and cannot be replaced");
    FREED char *above = directory_join(name, "..");
    bool mounted = S_ISDIR(status.st_mode) && stat(above, &parent) == 0 && parent.st_dev != status.st_dev;
    return !mounted || diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(path), hint,
                                         "is a mounted file system, which cannot be replaced");
}

static int create_directory(const char *temporary, const char *path)
{
    (void)path;
    return mkdir(temporary, 0777);
}

bool directory_create(OutputDirectory *directory, const char *path, bool keep_others, Diagnostics *diagnostics)
{
    *directory = (OutputDirectory){.path = path, .keep_others = keep_others};
    FREED char *name = without_trailing_slashes(path);
    int made;
    bool ok = check_place(path, name, diagnostics) && check_replaceable(directory, name, diagnostics);
    if (ok) {
        directory->temporary = pending_create(name, create_directory, &made);
        ok = directory->temporary || file_error(diagnostics, path, "cannot create");
    }
    return ok;
}

static bool write_list(const char *directory, Diagnostics *diagnostics)
{
    FREED_WITH(entries_free) Entries entries = {0};
    FREED_WITH(buffer_free) Buffer text = {0};
    if (!list_entries(directory, &entries)) return file_error(diagnostics, directory, "cannot list");
    buffer_print(&text, "%s", list_head);
    bool ok = true;
    for (size_t i = 0; i < entries.count && ok; i++) {
        FREED char *inner = directory_join(directory, entries.items[i].name);
        bool nested = is_directory(inner);
        if (nested) ok = write_list(inner, diagnostics);
        buffer_print(&text, "%s%s\n", entries.items[i].name, nested ? "/" : "");
    }
    FREED char *path = directory_join(directory, DIRECTORY_LIST);
    return ok && file_write_part(path, text.bytes, text.size, diagnostics);
}

/* ---- Replacing ---- */

/* Moves files that are not skycc's from `from` to `to`, which is made if needed. False, with errno set, at the first
 * file that cannot be moved; free() its name, *stuck. */
static bool move_others(const char *from, const char *to, char **stuck)
{
    FREED_WITH(entries_free) Entries entries = {0};
    bool ok = list_entries(from, &entries);
    for (size_t i = 0; i < entries.count && ok; i++) {
        const Entry *entry = &entries.items[i];
        FREED char *old_path = directory_join(from, entry->name), *new_path = directory_join(to, entry->name);
        if (entry->nested)
            ok = move_others(old_path, new_path, stuck);
        else if (!entry->own)
            ok = (mkdir(to, 0777) == 0 || errno == EEXIST) && rename(old_path, new_path) == 0;
        if (!ok && !*stuck) *stuck = strdup(entry->name);
    }
    return ok;
}

/* Removes what is skycc's, and the directory if nothing else is in it. */
static void remove_own(const char *directory)
{
    FREED_WITH(entries_free) Entries entries = {0};
    if (!list_entries(directory, &entries)) return;
    for (size_t i = 0; i < entries.count; i++) {
        FREED char *path = directory_join(directory, entries.items[i].name);
        if (entries.items[i].nested)
            remove_own(path);
        else if (entries.items[i].own)
            unlink(path);
    }
    rmdir(directory);
}

/* Whether an entry of the new directory has the name of one that is not skycc's. */
static bool check_names(const char *former, const char *temporary, const char *called, Diagnostics *diagnostics)
{
    FREED_WITH(entries_free) Entries entries = {0};
    bool ok = list_entries(former, &entries) || file_error(diagnostics, called, "cannot list");
    for (size_t i = 0; i < entries.count && ok; i++) {
        const Entry *entry = &entries.items[i];
        FREED char *path = directory_join(temporary, entry->name), *inner = directory_join(former, entry->name);
        FREED char *inner_called = directory_join(called, entry->name);
        bool there = access(path, F_OK) == 0;
        if (entry->nested && there && is_directory(path))
            ok = check_names(inner, path, inner_called, diagnostics);
        else if (!entry->own && there)
            ok = diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = called, .object = entry->name},
                                   "name another output directory, or move this file",
                                   "is in the place of an output file");
    }
    return ok;
}

/* Exchanges two names in one step, so that the final name always exists. If the file system cannot, it takes two steps
 * and undoes the first if the second fails. */
static bool exchange(const char *temporary, const char *name)
{
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, name, RENAME_EXCHANGE) == 0) return true;
    if (errno != EINVAL && errno != ENOSYS) return false;
    FREED_WITH(buffer_free) Buffer aside = {0};
    buffer_print(&aside, "%s.aside", temporary);
    bool ok = rename(name, aside.bytes) == 0;
    if (ok && rename(temporary, name) != 0) {
        int saved = errno;
        rename(aside.bytes, name);
        errno = saved;
        ok = false;
    } else if (ok) {
        rename(aside.bytes, temporary);
    }
    return ok;
}

/* Moves files that are not skycc's from the former directory into the new one. Files that cannot be moved stay where
 * the error says. */
static bool empty_former(const char *former, const char *name, Diagnostics *diagnostics)
{
    FREED char *stuck = NULL;
    bool moved = move_others(former, name, &stuck);
    if (!moved)
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = former, .object = stuck}, NULL,
                          "cannot be moved to %s: %s", name, strerror(errno));
    else
        remove_own(former);
    return moved;
}

/* The former directory takes a name under which nobody takes it, with what others have in it, for unfinished, even if
 * this process is killed here. */
static bool replace_former(OutputDirectory *directory, const char *name, Diagnostics *diagnostics)
{
    if (!check_names(name, directory->temporary, directory->path, diagnostics)) return false;
    FREED_WITH(arena_free) Arena arena = {0};
    const char *former = arena_format(&arena, "%s.former", directory->temporary);
    bool ok = rename(directory->temporary, former) == 0;
    if (ok && !exchange(former, name)) {
        int saved = errno;
        rename(former, directory->temporary);
        errno = saved;
        ok = false;
    }
    if (!ok) {
        file_error(diagnostics, directory->path, "cannot rename into place");
    } else {
        ok = empty_former(former, name, diagnostics);
        pending_drop(directory->temporary);
        directory->temporary = NULL;
    }
    return ok;
}

static bool move_into_place(OutputDirectory *directory, const char *name, Diagnostics *diagnostics)
{
    if (rename(directory->temporary, name) == 0) { /* nothing there, or an empty directory */
        pending_drop(directory->temporary);
        directory->temporary = NULL;
        return true;
    }
    if (errno != ENOTEMPTY && errno != EEXIST)
        return file_error(diagnostics, directory->path, "cannot rename into place");
    if (!check_replaceable(directory, name, diagnostics)) return false; /* what came since it was created */
    return replace_former(directory, name, diagnostics);
}

static bool place_directory(const char *path, char *temporary, bool keep_others, Diagnostics *diagnostics)
{
    OutputDirectory directory = {path, keep_others, temporary};
    FREED char *name = without_trailing_slashes(path);
    pending_hold(); /* an interrupt must not take what is being moved for something unfinished */
    bool ok = file_inputs_unchanged(diagnostics) && move_into_place(&directory, name, diagnostics);
    if (ok) sync_parent(name);
    directory_abandon(&directory);
    pending_release();
    return ok;
}

bool directory_commit(OutputDirectory *directory, Diagnostics *diagnostics)
{
    OutputDirectory done = *directory;
    if (!write_list(done.temporary, diagnostics)) {
        directory_abandon(directory);
        return false;
    }
    *directory = (OutputDirectory){0};
    return outputs_place(place_directory, done.path, done.temporary, done.keep_others, diagnostics);
}

char *directory_place(const OutputDirectory *directory, const char *path)
{
    FREED char *name = without_trailing_slashes(directory->path);
    size_t length = strlen(name);
    bool inside = strncmp(path, name, length) == 0 && path[length] == '/' && !strchr(path + length + 1, '/');
    char *place = inside ? directory_join(directory->temporary, path + length + 1) : strdup(path);
    if (!place) memory_exhausted();
    return place;
}

void directory_abandon(OutputDirectory *directory)
{
    if (!directory->temporary) return;
    remove_tree(directory->temporary);
    pending_drop(directory->temporary);
    *directory = (OutputDirectory){0};
}
