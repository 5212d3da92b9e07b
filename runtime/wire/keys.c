#include "runtime/wire/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "base/file.h"
#include "base/input_files.h"

enum { KEY_BYTES = 32 };

bool wire_key_is_valid(const char *text)
{
    uint8_t bytes[KEY_BYTES];
    return strlen(text) == WIRE_KEY_TEXT && zmq_z85_decode(bytes, text) != NULL;
}

void wire_keys_forget(WireKeys *keys) { explicit_bzero(keys, sizeof *keys); }

/* A file that did not exist, with one line. What could be written of it is removed if not all could. */
static bool write_line(const char *path, const char *text, mode_t mode, Diagnostics *diagnostics)
{
    char line[WIRE_KEY_TEXT + 2];
    size_t size = (size_t)snprintf(line, sizeof line, "%s\n", text);
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (descriptor < 0 && errno == EEXIST)
        return input_error(diagnostics, path, "give the new key another name, or move the old one away",
                           "exists already, and a key is never overwritten");
    if (descriptor < 0) return file_error(diagnostics, path, "cannot create");
    bool written = write(descriptor, line, size) == (ssize_t)size && fsync(descriptor) == 0;
    explicit_bzero(line, sizeof line);
    written = close(descriptor) == 0 && written;
    if (written) return true;
    file_error(diagnostics, path, "cannot write");
    unlink(path);
    return false;
}

bool wire_keys_write(WireKeys *keys, const char *name, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const char *secret_path = arena_format(&arena, "%s.key", name), *public_path = arena_format(&arena, "%s.pub", name);
    if (zmq_curve_keypair(keys->public_key, keys->secret_key) != 0) bug("libzmq without CURVE");
    bool ok = write_line(secret_path, keys->secret_key, S_IRUSR | S_IWUSR, diagnostics);
    if (ok && !write_line(public_path, keys->public_key, 0644, diagnostics)) {
        unlink(secret_path);
        ok = false;
    }
    return ok;
}

static bool read_secret(WireKeys *keys, int descriptor, const char *path, Diagnostics *diagnostics)
{
    struct stat status;
    if (fstat(descriptor, &status) != 0) return file_error(diagnostics, path, "cannot read");
    if (!S_ISREG(status.st_mode)) return input_error(diagnostics, path, NULL, "is not a file");
    if (status.st_mode & (S_IRWXG | S_IRWXO))
        return input_error(diagnostics, path, "run chmod 600 on it",
                           "is a secret key that others besides its owner can read or change");
    char text[WIRE_KEY_TEXT + 3] = "";
    ssize_t size = read(descriptor, text, sizeof text - 1);
    if (size < 0) return file_error(diagnostics, path, "cannot read");
    text[size] = '\0';
    size_t length = strcspn(text, "\n");
    bool ends = length == WIRE_KEY_TEXT && (!text[length] || !text[length + 1]);
    text[length] = '\0';
    bool valid = ends && wire_key_is_valid(text);
    if (valid) memcpy(keys->secret_key, text, sizeof keys->secret_key);
    explicit_bzero(text, sizeof text);
    if (valid && zmq_curve_public(keys->public_key, keys->secret_key) == 0) return true;
    return input_error(diagnostics, path, "skycc key NAME makes NAME.key",
                       "is not a secret key: one line of %d characters", WIRE_KEY_TEXT);
}

bool wire_keys_read(WireKeys *keys, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(descriptor_close) int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    *keys = (WireKeys){.public_key = ""};
    if (descriptor < 0) return file_error(diagnostics, path, "cannot read");
    input_files_note(descriptor, path);
    if (read_secret(keys, descriptor, path, diagnostics)) return true;
    wire_keys_forget(keys);
    return false;
}
