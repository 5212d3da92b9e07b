#include "base/live_file.h"

#include <fcntl.h>
#include <string.h>

#include "base/file.h"
#include "base/input_files.h"
#include "base/pending.h"

static int create(const char *temporary, const char *path)
{
    (void)path;
    return open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

bool live_file_write(const char *path, const void *bytes, size_t size, Diagnostics *diagnostics)
{
    struct stat status;
    int descriptor;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return input_error(diagnostics, path, NULL, "is a directory");
    if (!input_files_spare(path, diagnostics)) return false;
    OutputFile file = {.path = path, .temporary = pending_create(path, create, &descriptor)};
    if (!file.temporary) return file_error(diagnostics, path, "cannot create");
    input_files_release(descriptor);
    file.stream = fdopen(descriptor, "wb");
    if (!file.stream) memory_exhausted();
    fwrite(bytes, 1, size, file.stream); /* file_commit sees the stream's error flag */
    return file_commit(&file, diagnostics);
}
