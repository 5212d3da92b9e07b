#include "frontend/text/charsmap.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/arena.h"
#include "frontend/text/unicode.h"

enum { CLUSTER_BYTES = 6 };

struct Charsmap {
    uint32_t *units;
    size_t count;
    char *replacements; /* a zero byte follows the last */
    size_t replacement_bytes;
    bool plain[128]; /* characters that stay as they are */
};

static int digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

static bool decode(const char *base64, Buffer *bytes)
{
    size_t length = strlen(base64);
    if (length % 4) return false;
    for (size_t i = 0; i < length; i += 4) {
        uint32_t bits = 0;
        int used = 0;
        for (; used < 4 && base64[i + (size_t)used] != '='; used++) {
            int value = digit(base64[i + (size_t)used]);
            if (value < 0) return false;
            bits = bits << 6 | (uint32_t)value;
        }
        if (used < 2 || (used < 4 && i + 4 < length)) return false;
        bits <<= 6 * (4 - used);
        const unsigned char out[] = {(unsigned char)(bits >> 16), (unsigned char)(bits >> 8), (unsigned char)bits};
        buffer_append(bytes, out, (size_t)used - 1);
    }
    return true;
}

static uint32_t read_unit(const char *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* The replacement of the shortest entry that the text begins with; NULL if there is none. Never reads beyond the
 * units. */
static const char *find(const Charsmap *map, const char *text, size_t length)
{
    if (map->count == 0) return NULL;
    size_t at = 0;
    uint32_t unit = map->units[0];
    at ^= (size_t)(unit >> 10) << ((unit & 512) >> 6);
    for (size_t i = 0; i < length && text[i]; i++) {
        at ^= (unsigned char)text[i];
        if (at >= map->count) return NULL;
        unit = map->units[at];
        if ((unit & 0x800000ffu) != (unsigned char)text[i]) return NULL;
        at ^= (size_t)(unit >> 10) << ((unit & 512) >> 6);
        if (!(unit & 256)) continue;
        if (at >= map->count) return NULL;
        size_t value = map->units[at] & 0x7fffffff;
        return value < map->replacement_bytes ? map->replacements + value : NULL;
    }
    return NULL;
}

Charsmap *charsmap_read(const char *base64)
{
    FREED_WITH(buffer_free) Buffer bytes = {0};
    Charsmap *map = NULL;
    if (decode(base64, &bytes) && bytes.size >= 4) {
        size_t size = read_unit(bytes.bytes);
        if (size % 4 == 0 && size <= bytes.size - 4) {
            map = memory_allocate(sizeof *map);
            map->count = size / 4;
            map->units = memory_allocate(size + 1);
            for (size_t i = 0; i < map->count; i++) map->units[i] = read_unit(bytes.bytes + 4 + 4 * i);
            map->replacement_bytes = bytes.size - 4 - size;
            map->replacements = memory_allocate(map->replacement_bytes + 1);
            if (map->replacement_bytes) memcpy(map->replacements, bytes.bytes + 4 + size, map->replacement_bytes);
            if (!unicode_is_valid(map->replacements, map->replacement_bytes)) {
                charsmap_free(map);
                map = NULL;
            }
        }
    }
    for (int c = 0; map && c < 128; c++) map->plain[c] = c != '\r' && !find(map, &(char){(char)c}, 1);
    return map;
}

/* The bytes of the cluster that begins at `text`. */
static size_t cluster_bytes(const char *text, size_t length)
{
    size_t used, size;
    utf8proc_int32_t state = 0;
    int32_t former = unicode_read(text, length, &size);
    while (size < length) {
        int32_t c = unicode_read(text + size, length - size, &used);
        if (utf8proc_grapheme_break_stateful(former, c, &state)) break;
        size += used;
        former = c;
    }
    return size;
}

void charsmap_apply(const Charsmap *map, const char *text, size_t length, Buffer *buffer)
{
    for (size_t at = 0, cluster; at < length; at += cluster) {
        const char *here = text + at;
        unsigned char c = (unsigned char)*here;
        cluster = 1;
        if (c < 128 && map->plain[c] && (at + 1 == length || (unsigned char)here[1] < 128)) {
            buffer_append(buffer, here, 1);
            continue;
        }
        cluster = cluster_bytes(here, length - at);
        const char *whole = cluster < CLUSTER_BYTES ? find(map, here, cluster) : NULL;
        if (whole) {
            buffer_append(buffer, whole, strlen(whole));
            continue;
        }
        for (size_t i = 0, used; i < cluster; i += used) {
            unicode_read(here + i, cluster - i, &used);
            const char *part = find(map, here + i, used);
            buffer_append(buffer, part ? part : here + i, part ? strlen(part) : used);
        }
    }
}

void charsmap_free(Charsmap *map)
{
    if (!map) return;
    free(map->units);
    free(map->replacements);
    free(map);
}
