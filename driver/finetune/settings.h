/* What a run of skycc finetune decided, one line each: printed, kept in RUN/settings.yaml, and read back by --resume,
 * predict, evaluate and export. */
#ifndef DRIVER_FINETUNE_SETTINGS_H
#define DRIVER_FINETUNE_SETTINGS_H

#include "base/arena.h"
#include "base/diagnostics.h"
#include "base/owned_files.h"

/* In the order in which they are printed, from the model on. The first list has texts, the second lists of texts. */
#define SETTING_WORDS(X, LIST)                                                                                         \
    X(FORMAT, "format")                                                                                                \
    X(MODEL_HASH, "model-hash")                                                                                        \
    X(MODEL, "model")                                                                                                  \
    LIST(TABLES, "tables")                                                                                             \
    X(ENCODING, "encoding")                                                                                            \
    X(TASK, "task")                                                                                                    \
    LIST(TEXT, "text")                                                                                                 \
    LIST(LABEL, "label")                                                                                               \
    X(HEAD, "head")                                                                                                    \
    X(AS_IS, "as-is")                                                                                                  \
    X(RESULT, "result")                                                                                                \
    X(TOKENIZER, "tokenizer")                                                                                          \
    X(CASED, "cased")                                                                                                  \
    X(LENGTH, "length")                                                                                                \
    X(STRIDE, "stride")                                                                                                \
    X(CHAT_TEMPLATE, "chat-template")                                                                                  \
    X(TRAIN_ON, "train-on")                                                                                            \
    X(END_OF_TEXT, "end-of-text")                                                                                      \
    X(EVAL, "eval")                                                                                                    \
    X(HOLDOUT, "holdout")                                                                                              \
    X(TEST, "test")                                                                                                    \
    X(CLUSTER, "cluster")                                                                                              \
    LIST(HOSTS, "hosts")                                                                                               \
    LIST(WITHOUT, "without")                                                                                           \
    X(REPLICAS, "replicas")                                                                                            \
    X(BATCH, "batch")                                                                                                  \
    X(DIMENSIONS, "dimensions")                                                                                        \
    X(LOSS, "loss")                                                                                                    \
    LIST(FREEZE, "freeze")                                                                                             \
    LIST(TRAINED, "train")                                                                                             \
    X(LORA, "lora")                                                                                                    \
    X(FROZEN, "frozen-weights")                                                                                        \
    X(DROPOUT, "dropout")                                                                                              \
    X(PRECISION, "precision")                                                                                          \
    X(LOGITS, "logits")                                                                                                \
    X(EPOCHS, "epochs")                                                                                                \
    X(OPTIMIZER, "optimizer")                                                                                          \
    X(LR, "lr")                                                                                                        \
    X(WARMUP, "warmup")                                                                                                \
    X(SCHEDULE, "schedule-lr")                                                                                         \
    X(WEIGHT_DECAY, "weight-decay")                                                                                    \
    X(NO_DECAY, "no-decay")                                                                                            \
    X(CLIP, "clip")                                                                                                    \
    X(EVAL_EVERY, "eval-every")                                                                                        \
    X(METRIC, "keep-best")                                                                                             \
    X(PATIENCE, "patience")                                                                                            \
    X(SEED, "seed")                                                                                                    \
    X(SEEDS, "seeds")                                                                                                  \
    X(TENSORBOARD, "tensorboard")                                                                                      \
    X(NO_TEXTS, "no-texts")

#define SETTING_ENUMERATOR(NAME, word) SETTING_##NAME,
#define SETTING_THIS_MACHINE "this machine" /* of SETTING_CLUSTER: no cluster file is given */

typedef enum SettingKey { SETTING_WORDS(SETTING_ENUMERATOR, SETTING_ENUMERATOR) SETTING_COUNT } SettingKey;

#define KEPT_NAMES "own labels" /* of SETTING_AS_IS: the head keeps its names of labels; else it gets the table's */

typedef struct Setting {
    const char *value;  /* NULL: not set. The items of a list have a newline between */
    const char *reason; /* NULL: none */
} Setting;

typedef struct Settings {
    Arena arena;
    Setting of[SETTING_COUNT];
} Settings;

static inline void settings_free(Settings *settings) { arena_free(&settings->arena); }

const char *setting_word(SettingKey key);
const char *setting_base_name(const char *path); /* what is after the last slash */
/* Sets a value, copied; `reason` (NULL: none) and what follows as printf has them. An empty value unsets it. */
void settings_set(Settings *settings, SettingKey key, const char *value, const char *reason, ...)
    __attribute__((format(printf, 4, 5)));
/* The whole path of a file, or `path` where there is none; in the settings' arena. */
const char *settings_path(Settings *settings, const char *path);
/* Between the items of a list: names of files and columns may hold anything that people type, newlines too. */
#define LIST_SEPARATOR "\x1f"
/* The value of a list. */
const char *settings_list(Settings *settings, const char *const *items, size_t count);
/* The value as it is written in settings.yaml, and in an option: items with commas between. */
const char *settings_joined(Settings *settings, SettingKey key, char separator);

/* Whether the labels of the task have names, in the training data. */
bool settings_name_labels(const Settings *settings);

/* A line each, with `prefix` in front. */
void settings_print(const Settings *settings, const char *prefix, FILE *stream);
bool settings_write(const Settings *settings, const char *run, Diagnostics *diagnostics);
/* Reads RUN/settings.yaml. Free the arena in any case. */
bool settings_read(Settings *settings, const char *run, Diagnostics *diagnostics);

#endif
