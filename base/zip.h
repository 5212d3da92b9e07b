/* ZIP archives, read only: stored and deflated entries, ZIP64; no encryption, no spanning. */
#ifndef BASE_ZIP_H
#define BASE_ZIP_H

#include "base/file.h"

typedef struct ZipEntry {
    const char *name;    /* as the archive has it: never to be used as a path */
    size_t size, packed; /* bytes, as they are and in the archive */
    size_t header;       /* offset of its local header */
    uint32_t crc;
    uint16_t method, flags;
} ZipEntry;

typedef struct ZipFile {
    MappedFile file;
    Arena arena;
    const char *path; /* must outlive the ZipFile */
    ZipEntry *entries;
    size_t count;
} ZipFile;

/* Maps the archive and checks its directory. Nothing is left open on failure. */
bool zip_open(ZipFile *zip, const char *path, Diagnostics *diagnostics);
/* The bytes of an entry, in the arena; checked against its size and CRC. NULL after reporting. */
const unsigned char *zip_read(const ZipFile *zip, const ZipEntry *entry, Arena *arena, Diagnostics *diagnostics);
void zip_close(ZipFile *zip);

#endif
