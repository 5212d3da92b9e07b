#include "tests/common/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>

#include "base/file.h"
#include "base/input_files.h"

static Scratch folder;

/* What mkstemp makes a name of. */
static Scratch pattern(void)
{
    const char *parent = getenv("TMPDIR");
    Scratch scratch;
    int length = snprintf(scratch.path, sizeof scratch.path, "%s/skycc-test-XXXXXX", parent ? parent : "/tmp");
    assert_in_range(length, 0, sizeof scratch.path - sizeof "/absent");
    return scratch;
}

Scratch scratch_file(const void *bytes, size_t size)
{
    Scratch scratch = pattern();
    int descriptor = mkstemp(scratch.path);
    assert_true(descriptor >= 0);
    close(descriptor);
    write_bytes(scratch.path, bytes, size);
    return scratch;
}

Scratch scratch_text(const char *text) { return scratch_file(text, strlen(text)); }

Scratch scratch_absent(void)
{
    Scratch scratch = scratch_text("");
    unlink(scratch.path);
    strcat(scratch.path, "/absent");
    return scratch;
}

int scratch_folder_enter(void **state)
{
    (void)state;
    folder = pattern();
    return mkdtemp(folder.path) && chdir(folder.path) == 0 ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
    (void)status, (void)type, (void)ftw;
    return remove(path);
}

int scratch_folder_leave(void **state)
{
    (void)state;
    return chdir("/") == 0 ? nftw(folder.path, remove_entry, 8, FTW_DEPTH | FTW_PHYS) : -1;
}

void write_bytes(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) fail_msg("%s cannot be written", path);
    input_files_release_path(path); /* tests write over what the code under test has read */
}

void write_text(const char *path, const char *text) { write_bytes(path, text, strlen(text)); }

static void map(MappedFile *file, const char *path)
{
    Diagnostics diagnostics = {0};
    if (!file_map(file, path, &diagnostics)) fail_msg("%s", diagnostics_text(&diagnostics));
}

void copy_file(const char *from, const char *to)
{
    MappedFile file;
    map(&file, from);
    write_bytes(to, file.bytes, file.size);
    file_unmap(&file);
}

char *read_text(const char *path)
{
    MappedFile file;
    map(&file, path);
    char *text = file.size ? strndup((const char *)file.bytes, file.size) : strdup("");
    file_unmap(&file);
    input_files_release_path(path);
    assert_non_null(text);
    return text;
}

void assert_holds(const char *path, const char *expected)
{
    FREED char *text = read_text(path);
    assert_string_equal(text, expected);
}

char *diagnostics_text(const Diagnostics *diagnostics)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    diagnostics_print(diagnostics, stream);
    fclose(stream);
    return text;
}

void expect_complaint(Diagnostics *diagnostics, int exit_code, const char *expected)
{
    FREED char *message = diagnostics_text(diagnostics);
    if (!strstr(message, expected)) fail_msg("'%s' is not in: %s", expected, message);
    assert_int_equal(diagnostics->exit_code, exit_code);
    diagnostics_free(diagnostics);
}
