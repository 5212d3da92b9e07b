#include "base/string_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"

/* The entry of the key, or the free one where it belongs. The table is never full. */
static StringMapEntry *probe(const StringMap *map, const char *key, uint64_t hash)
{
    for (size_t i = (size_t)hash;; i++) {
        StringMapEntry *entry = &map->entries[i & (map->capacity - 1)];
        if (!entry->key || (entry->hash == hash && strcmp(entry->key, key) == 0)) return entry;
    }
}

uint32_t *string_map_find(const StringMap *map, const char *key)
{
    if (!map->capacity) return NULL;
    StringMapEntry *entry = probe(map, key, hash_bytes(key, strlen(key)).low);
    return entry->key ? &entry->value : NULL;
}

static void grow(StringMap *map)
{
    StringMap larger = {.capacity = map->capacity ? 2 * map->capacity : 16, .count = map->count};
    if (larger.capacity > SIZE_MAX / sizeof *larger.entries) memory_exhausted();
    larger.entries = memory_allocate(larger.capacity * sizeof *larger.entries);
    for (size_t i = 0; i < map->capacity; i++) {
        const StringMapEntry *entry = &map->entries[i];
        if (entry->key) *probe(&larger, entry->key, entry->hash) = *entry;
    }
    free(map->entries);
    *map = larger;
}

bool string_map_add(StringMap *map, const char *key, uint32_t value)
{
    if (2 * map->count >= map->capacity) grow(map);
    uint64_t hash = hash_bytes(key, strlen(key)).low;
    StringMapEntry *entry = probe(map, key, hash);
    if (entry->key) return false;
    *entry = (StringMapEntry){key, hash, value};
    map->count++;
    return true;
}

void string_map_free(StringMap *map)
{
    free(map->entries);
    *map = (StringMap){0};
}
