/* Names of labels, as the metadata of data sets lists them in the order of their numbers. */
#ifndef RUNTIME_PROGRAM_LABEL_NAMES_H
#define RUNTIME_PROGRAM_LABEL_NAMES_H

#include "base/arena.h"
#include "base/buffer.h"

/* Prints the names as a JSON list. */
void label_names_print(Buffer *list, const char *const *names, size_t count);
/* Reads such a list into the arena. NULL, with *count 0, if `list` is NULL or not such a list. */
const char *const *label_names_read(const char *list, Arena *arena, size_t *count);
/* The first dozen of the names, with commas, in the arena. */
const char *label_names_some(const char *const *names, size_t count, Arena *arena);

#endif
