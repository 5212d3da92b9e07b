#include "base/owned_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/input_files.h"
#include "base/parts.h"

/* Adds names that are not there yet to a path that is. */
static void add_names(Buffer *path, const char *names)
{
    for (size_t length; *names; names += length) {
        names += strspn(names, "/");
        length = strcspn(names, "/");
        if (length == 2 && strncmp(names, "..", 2) == 0)
            path->size = path->size ? (size_t)(strrchr(path->bytes, '/') - path->bytes) : 0;
        else if (length && !(length == 1 && *names == '.'))
            buffer_print(path, "/%.*s", (int)length, names);
        path->bytes[path->size] = '\0';
    }
}

char *path_resolve(const char *path)
{
    char *there = strdup(path), *real, *slash;
    if (!there) memory_exhausted();
    while (!(real = realpath(there, NULL)) && (slash = strrchr(there, '/')) && slash > there) *slash = '\0';
    const char *rest = path + (real ? strlen(there) : 0);
    if (!real) real = realpath(path[0] == '/' ? "/" : ".", NULL);
    Buffer whole = {0};
    buffer_print(&whole, "%s", real && strcmp(real, "/") != 0 ? real : "");
    add_names(&whole, rest);
    if (!whole.size) buffer_print(&whole, "/");
    free(real);
    free(there);
    return whole.bytes;
}

const char *path_inside(const char *path, const char *directory)
{
    size_t length = strlen(directory);
    return strncmp(path, directory, length) == 0 && path[length] == '/' ? path + length + 1 : NULL;
}

/* ---- Runs ---- */

const char *const run_parts[] = {"settings.yaml",  "model.onnx", "model.onnx.data", "cluster.yaml",
                                 "data",           "programs",   "checkpoints",     "model",
                                 "adapter",        "log.csv",    "metrics.json",    "test.json",
                                 "embedding.onnx", "tower.onnx", "model.tokenizer", "embedding.tokenizer",
                                 "report.html",    NULL};

bool is_run(const char *path)
{
    FREED char *settings = NULL;
    if (asprintf(&settings, "%s/settings.yaml", path) < 0) memory_exhausted();
    return access(settings, R_OK) == 0;
}

/* Settings of something else are called like that, too. */
static bool is_begun_run(const char *path)
{
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    MappedFile file;
    const char *settings = arena_format(&arena, "%s/settings.yaml", path);
    bool begun = access(arena_format(&arena, "%s/model.onnx", path), F_OK) == 0;
    if (!begun && file_map(&file, settings, &ignored)) {
        begun = file.size && memmem(file.bytes, file.size, RUN_FORMAT, strlen(RUN_FORMAT));
        file_unmap(&file);
        input_files_release_path(settings);
    }
    return begun;
}

bool names_run_part(const char *rest)
{
    size_t length = strcspn(rest, "/");
    for (const char *const *part = run_parts; *part; part++)
        if (strlen(*part) == length && strncmp(*part, rest, length) == 0) return true;
    return strncmp(rest, "seed-", 5) == 0;
}

static bool is_run_part(const char *folder, const char *rest)
{
    return names_run_part(rest) && is_run(folder) && is_begun_run(folder);
}

/* ---- What is spared ---- */

static bool holds(const char *directory, const char *name)
{
    FREED char *path = directory_join(directory, name);
    return access(path, F_OK) == 0;
}

static bool refuse(const char *output, const char *what, const char *owner, Diagnostics *diagnostics)
{
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(output), "name another file",
                             "would replace a part of the %s %s", what, owner);
}

/* `real` is the output without links and dots, and is cut here. */
static bool spare(const char *output, char *real, bool makes_folder, const char *programs, Diagnostics *diagnostics)
{
    const char *name = strrchr(real, '/');
    bool is_nearest = true, writes_log = name && strcmp(name, "/log.csv") == 0;
    for (char *slash; (slash = strrchr(real, '/')) && slash > real; is_nearest = false) {
        const char *rest = slash + 1;
        *slash = '\0';
        /* What follows the slash ends where the last cut was. */
        bool is_own = writes_log && programs && path_inside(programs, real);
        if (!is_own && is_run_part(real, rest)) return refuse(output, "run", real, diagnostics);
        if (!is_nearest || makes_folder) continue;
        if (holds(real, "MANIFEST.json")) return refuse(output, "checkpoint", real, diagnostics);
        if (directory_lists(real, rest)) return refuse(output, "compiled folder", real, diagnostics);
    }
    return true;
}

/* The output itself, if that is a link. free() it; NULL: its folder is not there. */
static char *link_itself(const char *output)
{
    FREED char *name = strdup(output);
    if (!name) memory_exhausted();
    for (size_t length = strlen(name); length > 1 && name[length - 1] == '/';) name[--length] = '\0';
    char *slash = strrchr(name, '/');
    if (slash) *slash = '\0';
    FREED char *folder = realpath(!slash ? "." : slash == name ? "/" : name, NULL);
    return folder ? directory_join(folder, slash ? slash + 1 : name) : NULL;
}

bool owned_files_spare(const char *output, OutputKind kind, const char *programs, Diagnostics *diagnostics)
{
    if (!output || !*output || strcmp(output, "-") == 0 || access(output, F_OK) != 0) return true;
    FREED char *real = kind == OUTPUT_WRITTEN ? path_resolve(output) : link_itself(output);
    FREED char *own = programs ? path_resolve(programs) : NULL;
    return !real || spare(output, real, kind == OUTPUT_FOLDER, own, diagnostics);
}

/* Devices and pipes may take several outputs. */
static bool is_file(const char *path)
{
    struct stat status;
    return path && strcmp(path, "-") != 0 && (stat(path, &status) != 0 || !S_ISCHR(status.st_mode));
}

bool owned_state_spares(const char *directory, const char *log, Diagnostics *diagnostics)
{
    FREED char *path = path_resolve(log), *place = path_resolve(directory);
    const char *inside = path_inside(path, place);
    bool taken = inside && (!text_ends_with(inside, ".csv") || strcmp(inside, "evaluations.csv") == 0);
    return !taken || diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(log), "name another place, or NAME.csv",
                                       "may be one of the files that are kept in %s", directory);
}

bool outputs_apart(const char *const *outputs, size_t count, Diagnostics *diagnostics)
{
    bool ok = true;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++) {
            if (!is_file(outputs[i]) || !is_file(outputs[j])) continue;
            FREED char *one = path_resolve(outputs[i]), *other = path_resolve(outputs[j]);
            if (strcmp(one, other) == 0)
                ok = diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(outputs[i]), "name another file for each",
                                       "is named for two outputs, of which one would replace the other");
        }
    return ok;
}
