#include "base/zip.h"

#include <string.h>
#include <zlib.h>

enum {
    END_BYTES = 22,     /* end of central directory, without its comment */
    LOCATOR_BYTES = 20, /* where ZIP64's own end record is */
    END64_BYTES = 56,
    DIRECTORY_BYTES = 46, /* a central directory entry, without name, extra field and comment */
    LOCAL_BYTES = 30,     /* a local header, without name and extra field */
    MOST_COMMENT_BYTES = 65535,
    DEFLATE_RATIO = 1032, /* deflate cannot shrink further: a larger claim is a lie */
    ENCRYPTED = 1
};

static const uint32_t end_signature = 0x06054b50, end64_signature = 0x06064b50, locator_signature = 0x07064b50,
                      directory_signature = 0x02014b50, local_signature = 0x04034b50;

/* Little-endian, of 1 to 8 bytes. */
static uint64_t get(const unsigned char *bytes, int count)
{
    uint64_t value = 0;
    while (count-- > 0) value = value << 8 | bytes[count];
    return value;
}

static bool refuse(const ZipFile *zip, const ZipEntry *entry, Diagnostics *diagnostics, const char *problem)
{
    Place place = {.file = zip->path, .object = entry ? entry->name : NULL};
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL, "%s", problem);
}

/* The end record stands at the end of the file, before a comment of unknown length. */
static const unsigned char *find_end(const ZipFile *zip)
{
    const unsigned char *bytes = zip->file.bytes;
    size_t size = zip->file.size;
    if (size < END_BYTES) return NULL;
    for (size_t comment = 0; comment <= MOST_COMMENT_BYTES && comment <= size - END_BYTES; comment++) {
        const unsigned char *end = bytes + size - END_BYTES - comment;
        if (get(end, 4) == end_signature && get(end + 20, 2) == comment) return end;
    }
    return NULL;
}

/* Where the central directory is and how many entries it has. */
static bool find_directory(const ZipFile *zip, size_t *offset, size_t *count)
{
    const unsigned char *bytes = zip->file.bytes, *end = find_end(zip);
    if (!end) return false;
    uint64_t entries = get(end + 10, 2), start = get(end + 16, 4);
    if ((entries == 0xffff || start == 0xffffffff) && end - bytes >= LOCATOR_BYTES &&
        get(end - LOCATOR_BYTES, 4) == locator_signature) {
        uint64_t end64 = get(end - LOCATOR_BYTES + 8, 8);
        if (zip->file.size < END64_BYTES || end64 > zip->file.size - END64_BYTES ||
            get(bytes + end64, 4) != end64_signature)
            return false;
        entries = get(bytes + end64 + 32, 8);
        start = get(bytes + end64 + 48, 8);
    }
    if (start > zip->file.size || entries > (zip->file.size - start) / DIRECTORY_BYTES) return false;
    *offset = (size_t)start;
    *count = (size_t)entries;
    return true;
}

/* Values of 0xffffffff stand in the ZIP64 extra field, in this order. */
static bool read_zip64(const unsigned char *extra, size_t size, uint64_t *values[3])
{
    bool needed = false;
    for (int i = 0; i < 3; i++) needed |= *values[i] == 0xffffffff;
    if (!needed) return true;
    for (size_t at = 0; size - at >= 4;) {
        size_t id = (size_t)get(extra + at, 2), length = (size_t)get(extra + at + 2, 2);
        at += 4;
        if (length > size - at) return false;
        if (id == 1) {
            for (int i = 0; i < 3; i++) {
                if (*values[i] != 0xffffffff) continue;
                if (length < 8) return false;
                *values[i] = get(extra + at, 8);
                at += 8, length -= 8;
            }
            return true;
        }
        at += length;
    }
    return false;
}

static bool read_entry(ZipFile *zip, const unsigned char *record, size_t rest, size_t *used)
{
    if (rest < DIRECTORY_BYTES || get(record, 4) != directory_signature) return false;
    size_t name = (size_t)get(record + 28, 2), extra = (size_t)get(record + 30, 2),
           comment = (size_t)get(record + 32, 2);
    if (name + extra + comment > rest - DIRECTORY_BYTES) return false;
    uint64_t size = get(record + 24, 4), packed = get(record + 20, 4), header = get(record + 42, 4);
    uint64_t *values[3] = {&size, &packed, &header};
    if (!read_zip64(record + DIRECTORY_BYTES + name, extra, values)) return false;
    if (packed > zip->file.size || header > zip->file.size || size / DEFLATE_RATIO > packed) return false;
    ZipEntry *entry = &zip->entries[zip->count++];
    entry->name = arena_string_n(&zip->arena, (const char *)record + DIRECTORY_BYTES, name);
    entry->size = (size_t)size;
    entry->packed = (size_t)packed;
    entry->header = (size_t)header;
    entry->flags = (uint16_t)get(record + 8, 2);
    entry->method = (uint16_t)get(record + 10, 2);
    entry->crc = (uint32_t)get(record + 16, 4);
    *used = DIRECTORY_BYTES + name + extra + comment;
    return true;
}

bool zip_open(ZipFile *zip, const char *path, Diagnostics *diagnostics)
{
    *zip = (ZipFile){.path = path};
    if (!file_map(&zip->file, path, diagnostics)) return false;
    size_t at = 0, count = 0;
    bool ok = find_directory(zip, &at, &count);
    if (!ok) refuse(zip, NULL, diagnostics, "is no ZIP archive, or was cut off");
    zip->entries = arena_new_array(&zip->arena, ZipEntry, count);
    for (size_t i = 0, used; i < count && ok; i++, at += used) {
        ok = read_entry(zip, zip->file.bytes + at, zip->file.size - at, &used);
        if (!ok) refuse(zip, NULL, diagnostics, "has a damaged directory");
    }
    if (!ok) zip_close(zip);
    return ok;
}

/* Inflates exactly entry->size bytes. */
static bool inflate_entry(const ZipEntry *entry, const unsigned char *packed, unsigned char *bytes)
{
    enum { CHUNK = 1 << 30 }; /* zlib counts in 32 bits */
    z_stream stream = {0};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) memory_exhausted();
    size_t packed_left = entry->packed, left = entry->size;
    int status = Z_OK;
    stream.next_in = (unsigned char *)packed;
    stream.next_out = bytes;
    while (status == Z_OK) {
        uInt in = packed_left < CHUNK ? (uInt)packed_left : CHUNK, out = left < CHUNK ? (uInt)left : CHUNK;
        stream.avail_in = in;
        stream.avail_out = out;
        status = inflate(&stream, Z_NO_FLUSH);
        packed_left -= in - stream.avail_in;
        left -= out - stream.avail_out;
    }
    inflateEnd(&stream);
    return status == Z_STREAM_END && left == 0;
}

const unsigned char *zip_read(const ZipFile *zip, const ZipEntry *entry, Arena *arena, Diagnostics *diagnostics)
{
    enum { STORED = 0, DEFLATED = 8 };
    const unsigned char *header = zip->file.bytes + entry->header;
    size_t rest = zip->file.size - entry->header;
    if (entry->flags & ENCRYPTED) return refuse(zip, entry, diagnostics, "is encrypted"), NULL;
    if (entry->method != STORED && entry->method != DEFLATED)
        return refuse(zip, entry, diagnostics, "is compressed in a way that is not supported"), NULL;
    if (rest < LOCAL_BYTES || get(header, 4) != local_signature)
        return refuse(zip, entry, diagnostics, "has no local header"), NULL;
    size_t skip = LOCAL_BYTES + (size_t)get(header + 26, 2) + (size_t)get(header + 28, 2);
    if (skip > rest || entry->packed > rest - skip || (entry->method == STORED && entry->size != entry->packed))
        return refuse(zip, entry, diagnostics, "has data outside the archive"), NULL;
    unsigned char *bytes = arena_allocate(arena, entry->size);
    if (entry->method == STORED)
        memcpy(bytes, header + skip, entry->size);
    else if (!inflate_entry(entry, header + skip, bytes))
        return refuse(zip, entry, diagnostics, "is damaged: it does not decompress"), NULL;
    if (crc32_z(0, bytes, entry->size) != entry->crc)
        return refuse(zip, entry, diagnostics, "is damaged: its checksum is wrong"), NULL;
    return bytes;
}

void zip_close(ZipFile *zip)
{
    file_unmap(&zip->file);
    arena_free(&zip->arena);
    *zip = (ZipFile){0};
}
