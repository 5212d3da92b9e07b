/* Named entities in tags of words: whole ones count, as CoNLL-2003 (Tjong Kim Sang and De Meulder) has it, and with its
 * reading of tags that do not fit each other, which seqeval shares. */
#ifndef RUNTIME_TRAIN_ENTITIES_H
#define RUNTIME_TRAIN_ENTITIES_H

#include "base/arena.h"
#include "runtime/train/metrics.h"

/* How labels are read: O, or one of B- I- E- S- (also L- and U-) and a type. */
typedef struct EntityTags {
    const char *prefixes;      /* of each label: B, I, E, S or O */
    const int64_t *types;      /* of each label; -1: none */
    const char *const *names;  /* of types, in the order of labels */
    int64_t count, type_count; /* labels and types; 0: these are no tags of entities */
} EntityTags;

/* In the arena. `names`: of the labels. */
EntityTags entity_tags(const char *const *names, size_t count, Arena *arena);

typedef struct EntityCounter {
    const EntityTags *tags;
    ClassCounts each;          /* of types: entities that were found, are there, and both */
    int64_t label, prediction; /* of the word before; -1: none in this row */
    bool agrees;               /* an entity has been the same in both since its first word */
} EntityCounter;

void entity_counter_open(EntityCounter *counter, const EntityTags *tags);
void entity_counter_close(EntityCounter *counter);
/* The next word of a row. */
void entity_counter_add(EntityCounter *counter, int64_t label, int64_t prediction);
void entity_counter_end_row(EntityCounter *counter);
/* F1 of all entities together; F1_MACRO: the mean over types. */
double entity_counter_f1(const EntityCounter *counter, F1Kind kind);

#endif
