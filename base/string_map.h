/* A hash table from strings to 32-bit numbers. Keys are not copied. */
#ifndef BASE_STRING_MAP_H
#define BASE_STRING_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct StringMapEntry {
    const char *key; /* NULL: free */
    uint64_t hash;
    uint32_t value;
} StringMapEntry;

typedef struct StringMap {
    StringMapEntry *entries;
    size_t count, capacity; /* capacity is 0 or a power of two */
} StringMap;

/* The value of `key`, or NULL if it is not there; valid until the next insertion. */
uint32_t *string_map_find(const StringMap *map, const char *key);
/* Adds a key; false, without a change, if the map has it already. */
bool string_map_add(StringMap *map, const char *key, uint32_t value);
void string_map_free(StringMap *map);

#endif
