/* main() of a fuzz target without libFuzzer: runs it on every file of the folders, and every file, that are named. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

static size_t replayed;

static bool replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat status;
    if (!file || fstat(fileno(file), &status) != 0) return perror(path), false;
    size_t size = (size_t)status.st_size;
    uint8_t *data = memory_allocate(size);
    bool ok = fread(data, 1, size, file) == size;
    fclose(file);
    if (!ok) return perror(path), false;
    fprintf(stderr, "%s\n", path); /* before, so that a crash says where */
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    replayed++;
    return true;
}

static bool replay(const char *path)
{
    struct dirent **entries;
    struct stat status;
    if (stat(path, &status) != 0) return perror(path), false;
    if (!S_ISDIR(status.st_mode)) return replay_file(path);
    int count = scandir(path, &entries, NULL, alphasort);
    bool ok = count >= 0;
    for (int i = 0; i < count; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        ok = (*entries[i]->d_name == '.' || replay(name)) && ok;
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    return ok;
}

int main(int argc, char **argv)
{
    bool ok = argc > 1 && freopen("/dev/null", "w", stdout);
    for (int i = 1; i < argc; i++) ok = replay(argv[i]) && ok;
    fprintf(stderr, "%zu inputs replayed\n", replayed);
    return ok && replayed ? EXIT_SUCCESS : EXIT_FAILURE;
}
