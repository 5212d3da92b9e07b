#include "frontend/onnx/external_data.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Why a location is refused without looking at the file system; NULL if it is not. */
static const char *location_problem(const char *location)
{
    if (!*location) return "is empty";
    if (*location == '/') return "is an absolute path";
    if (strchr(location, '\\')) return "has a backslash";
    for (const char *component = location;; component++) {
        size_t length = strcspn(component, "/");
        if (length == 2 && strncmp(component, "..", 2) == 0) return "leaves the model's folder ('..')";
        component += length;
        if (!*component) return NULL;
    }
}

static const char *open_problem(int error)
{
    switch (error) {
    case ENOENT: return "does not exist";
    case EXDEV: return "leaves the model's folder";
    case ELOOP: return "goes through a symbolic link";
    default: return strerror(error);
    }
}

/* Opens `location` below the model's folder; a descriptor, or -1 with errno. */
static int open_beneath(const char *model_path, const char *location)
{
    const char *slash = strrchr(model_path, '/');
    FREED char *folder = slash ? strndup(model_path, (size_t)(slash - model_path) + 1) : strdup(".");
    if (!folder) memory_exhausted();
    int directory = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return -1;
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, /* a FIFO must not block */
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    int descriptor = (int)syscall(SYS_openat2, directory, location, &how, sizeof how);
    int saved = errno;
    close(directory);
    errno = saved;
    return descriptor;
}

static const char *map_descriptor(int descriptor, const char *path, MappedFile *file)
{
    struct stat status;
    if (fstat(descriptor, &status) != 0) return strerror(errno);
    if (!S_ISREG(status.st_mode)) return "is not a regular file";
    if (status.st_nlink == 0) return "was replaced while skycc opened it";
    if (status.st_nlink != 1) return "has several hard links";
    return file_map_descriptor(file, descriptor, &status, path) ? NULL : strerror(errno);
}

const ExternalFile *external_data_open(ExternalData *data, const char *location, Place place, Diagnostics *diagnostics)
{
    for (size_t i = 0; i < data->count; i++)
        if (strcmp(data->files[i]->location, location) == 0) return data->files[i]->refused ? NULL : data->files[i];

    const char *problem = location_problem(location);
    if (!problem && strcmp(data->model_path, "-") == 0) problem = "is relative to a model read from standard input";
    ExternalFile file = {.location = arena_string(&data->arena, location)};
    if (!problem) {
        const char *slash = strrchr(data->model_path, '/');
        file.path = arena_format(&data->arena, "%.*s%s", slash ? (int)(slash - data->model_path) + 1 : 0,
                                 data->model_path, location);
        int descriptor = open_beneath(data->model_path, location);
        if (descriptor < 0 && errno == ENOENT && data->tolerate_missing)
            file.missing = true;
        else
            problem = descriptor < 0 ? open_problem(errno) : map_descriptor(descriptor, file.path, &file.file);
        if (descriptor >= 0) close(descriptor);
    }
    if (problem) {
        bool missing = strcmp(problem, "does not exist") == 0;
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, place,
                          missing ? "put the file with the weights next to the model; check --no-weights and "
                                    "compile --init work without it"
                                  : NULL,
                          "the external data '%s' %s", location, problem);
        file.refused = true;
    }
    ExternalFile *kept = arena_copy(&data->arena, &file, sizeof file);
    array_push(data->files, data->count, data->capacity, kept);
    return file.refused ? NULL : kept;
}

void external_data_close(ExternalData *data)
{
    for (size_t i = 0; i < data->count; i++) file_unmap_input(&data->files[i]->file);
    free(data->files);
    arena_free(&data->arena);
    *data = (ExternalData){0};
}
