/* Reading members of config.json: problems are collected, and members that nobody asked for can be refused. Internal to
 * the folder. */
#ifndef FRONTEND_HUGGINGFACE_CONFIG_READING_H
#define FRONTEND_HUGGINGFACE_CONFIG_READING_H

#include "frontend/huggingface/config_types.h"

enum { MOST_SIZE = 1 << 24, MOST_LAYERS = 10000, MOST_POSITIONS = 1 << 20, MOST_LABELS = 1 << 20 };

typedef struct AskedMember {
    const json_t *object;
    const char *key;
} AskedMember;

typedef struct Reading {
    JsonReader reader;
    const json_t *root;
    Arena *arena;
    Family family;
    bool ok;
    AskedMember *asked; /* members that were read */
    size_t asked_count, asked_capacity;
} Reading;

void reading_refuse(Reading *reading, const char *key, int exit_code, const char *hint, const char *problem);

/* As in the library, a member that is null counts as absent: NULL. */
const json_t *reading_member(Reading *reading, const json_t *object, const char *key);

/* Of the root: `fallback` where the member is absent; below 0: it is required. */
int64_t reading_size(Reading *reading, const char *key, int64_t least, int64_t most, int64_t fallback);
bool reading_flag(Reading *reading, const char *key, bool fallback);
const char *reading_text(Reading *reading, const char *key, const char *fallback);
Activation reading_activation(Reading *reading, const char *key, const char *fallback);
/* The activation of this name; what is wrong with it is said of the member. */
Activation reading_activation_named(Reading *reading, const char *key, const char *name);
/* Of any object: from 0 to 1e30. */
double reading_number(Reading *reading, const json_t *object, const char *key, double fallback);

/* Refuses members of the object that were not read and may change results; `place` is what their names begin with. */
void reading_refuse_unknown(Reading *reading, const json_t *object, const char *place);

/* Whether a member of a model's configuration changes no result (config_members.c). */
bool config_member_is_harmless(Family family, const char *key);

/* Decoders: sizes, kinds of layers, rotary positions (decoder_config.c). */
void decoder_config_read(Reading *reading, HuggingFaceConfig *config);
/* rope_parameters, or rope_scaling of earlier versions, of layers of one kind (rotary_config.c). */
void rotary_config_read(Reading *reading, const json_t *rotary, const char *place, RotaryConfig *config);

#endif
