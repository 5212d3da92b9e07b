#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"

enum { MOST_FILES = 4 };

static struct {
    const char *path;
    FuzzPart part;
} files[MOST_FILES];

bool __wrap_file_map(MappedFile *file, const char *path, Diagnostics *diagnostics);
void __wrap_file_unmap(MappedFile *file);

void fuzz_file(const char *path, const uint8_t *data, size_t size)
{
    size_t i = 0;
    while (i < MOST_FILES && files[i].path && strcmp(files[i].path, path) != 0) i++;
    if (i == MOST_FILES) abort();
    files[i].path = path;
    files[i].part = (FuzzPart){data, size};
}

bool __wrap_file_map(MappedFile *file, const char *path, Diagnostics *diagnostics)
{
    *file = (MappedFile){0};
    for (size_t i = 0; i < MOST_FILES && files[i].path; i++) {
        if (strcmp(files[i].path, path) != 0) continue;
        const FuzzPart *part = &files[i].part;
        if (!part->size) return true;
        unsigned char *copy = malloc(part->size);
        if (!copy) memory_exhausted();
        memcpy(copy, part->data, part->size);
        *file = (MappedFile){copy, part->size, true};
        return true;
    }
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), NULL, "cannot open: there is no such file");
}

void __wrap_file_unmap(MappedFile *file)
{
    free((void *)file->bytes);
    *file = (MappedFile){0};
}

FuzzPart fuzz_part(const uint8_t **data, size_t *size)
{
    const uint8_t *zero = *size ? memchr(*data, 0, *size) : NULL;
    FuzzPart part = {*data, zero ? (size_t)(zero - *data) : *size};
    size_t used = part.size + (zero != NULL);
    *data += used;
    *size -= used;
    return part;
}

static double started;

void fuzz_begin(void) { started = thread_seconds(); }

void fuzz_end(bool ok, Diagnostics *diagnostics)
{
    if (ok != (diagnostics->errors == 0)) bug("%s, but %d errors", ok ? "success" : "failure", diagnostics->errors);
    Buffer text = {0};
    JsonWriter json = {.buffer = &text};
    json_add_diagnostics(&json, NULL, diagnostics, true);
    json_add_diagnostics(&json, NULL, diagnostics, false);
    buffer_free(&text);
    diagnostics_free(diagnostics);
    double seconds = thread_seconds() - started;
    if (seconds > 4) bug("took %.1f seconds", seconds);
}
