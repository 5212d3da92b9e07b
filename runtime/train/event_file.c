#include "runtime/train/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

/* ---- Messages (protocol buffers' wire format) ---- */

enum { VARINT = 0, FIXED_64 = 1, BYTES = 2, FIXED_32 = 5 }; /* types of fields */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_NAME = 1, VALUE_NUMBER = 2, SESSION_STATUS = 1, SESSION_STARTS = 1 };

static void add_varint(Buffer *message, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) buffer_append(message, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
    buffer_append(message, &(uint8_t){(uint8_t)value}, 1);
}

static void add_key(Buffer *message, int field, int type) { add_varint(message, (uint64_t)(field << 3 | type)); }

/* Little-endian, whatever this machine is. */
static void add_fixed(Buffer *message, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) buffer_append(message, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

static void add_bytes(Buffer *message, int field, const void *bytes, size_t size)
{
    add_key(message, field, BYTES);
    add_varint(message, size);
    buffer_append(message, bytes, size);
}

static void begin_event(Buffer *message, int64_t step)
{
    struct timespec now;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    memcpy(&bits, &seconds, sizeof bits);
    message->size = 0;
    add_key(message, EVENT_TIME, FIXED_64);
    add_fixed(message, bits, 8);
    add_key(message, EVENT_STEP, VARINT);
    add_varint(message, (uint64_t)step);
}

/* ---- Records ---- */

/* CRC-32C (Castagnoli), bit by bit: events are short. Masked as TensorFlow does, so that checksums of what holds
 * checksums stay good ones. */
static uint32_t masked_checksum(const char *bytes, size_t size)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= (uint8_t)bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void give_up(EventFile *file)
{
    text_print(stderr, "skycc: warning: %s: cannot be written: %s; training goes on without it\n", file->path,
               strerror(errno));
    close(file->descriptor);
    file->descriptor = -1;
}

static bool write_event(EventFile *file)
{
    Buffer *record = &file->record;
    record->size = 0;
    add_fixed(record, file->message.size, 8);
    add_fixed(record, masked_checksum(record->bytes, 8), 4);
    buffer_append(record, file->message.bytes, file->message.size);
    add_fixed(record, masked_checksum(file->message.bytes, file->message.size), 4);
    for (size_t done = 0; done < record->size;) {
        ssize_t count = write(file->descriptor, record->bytes + done, record->size - done);
        if (count < 0 && errno != EINTR) return false;
        if (count > 0) done += (size_t)count;
    }
    return true;
}

/* ---- The file ---- */

/* With the directories above it. */
static bool make_directory(const char *path)
{
    FREED char *part = strdup(path);
    if (!part) memory_exhausted();
    bool ok = true;
    for (char *slash = part; ok && slash; *slash = '/') {
        slash = strchr(slash + 1, '/');
        if (slash) *slash = '\0';
        ok = mkdir(part, 0777) == 0 || errno == EEXIST;
        if (!slash) break;
    }
    return ok;
}

bool event_file_open(EventFile *file, const char *directory, int64_t first_step, Diagnostics *diagnostics)
{
    static const char version[] = "brain.Event:2";
    char host[65] = "";
    *file = (EventFile){.descriptor = -1};
    if (!directory) return true;
    if (!make_directory(directory)) return file_error(diagnostics, directory, "cannot create");
    gethostname(host, sizeof host - 1);
    if (asprintf(&file->path, "%s/events.out.tfevents.%lld.%s.%lld", directory, (long long)time(NULL), host,
                 (long long)getpid()) < 0)
        memory_exhausted();
    file->descriptor = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->descriptor < 0) return file_error(diagnostics, file->path, "cannot create");
    begin_event(&file->message, 0);
    add_bytes(&file->message, EVENT_VERSION, version, strlen(version));
    bool ok = write_event(file);
    if (ok && first_step > 1) {
        static const uint8_t starts[] = {SESSION_STATUS << 3 | VARINT, SESSION_STARTS};
        begin_event(&file->message, first_step);
        add_bytes(&file->message, EVENT_SESSION, starts, sizeof starts);
        ok = write_event(file);
    }
    return ok || file_error(diagnostics, file->path, "cannot be written");
}

/* `name` has fewer than 100 bytes, so that every length is one byte. */
void event_file_number(EventFile *file, int64_t step, const char *name, double value)
{
    Buffer *message = &file->message;
    const float number = (float)value;
    uint32_t bits;
    if (file->descriptor < 0 || isnan(value)) return;
    memcpy(&bits, &number, sizeof bits);
    size_t size = 2 + strlen(name) + 5;
    begin_event(message, step);
    add_key(message, EVENT_SUMMARY, BYTES);
    add_varint(message, 2 + size);
    add_key(message, SUMMARY_VALUE, BYTES);
    add_varint(message, size);
    add_bytes(message, VALUE_NAME, name, strlen(name));
    add_key(message, VALUE_NUMBER, FIXED_32);
    add_fixed(message, bits, 4);
    if (!write_event(file)) give_up(file);
}

void event_file_close(EventFile *file)
{
    if (file->descriptor >= 0 && close(file->descriptor) != 0) {
        file->descriptor = -1;
        text_print(stderr, "skycc: warning: %s: %s\n", file->path, strerror(errno));
    }
    buffer_free(&file->message);
    buffer_free(&file->record);
    free(file->path);
}
