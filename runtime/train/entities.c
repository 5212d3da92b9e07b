#include "runtime/train/entities.h"

#include <string.h>

/* ---- What labels say ---- */

static char prefix_of(const char *name)
{
    static const char letters[] = "BIESLU", meanings[] = "BIESES"; /* of BILOU: last and unit */
    if (strcmp(name, "O") == 0) return 'O';
    const char *found = name[0] && name[1] == '-' && name[2] ? strchr(letters, name[0]) : NULL;
    return found ? meanings[found - letters] : '\0';
}

EntityTags entity_tags(const char *const *names, size_t count, Arena *arena)
{
    char *prefixes = arena_allocate(arena, count + 1);
    int64_t *types = arena_new_array(arena, int64_t, count ? count : 1);
    const char **type_names = arena_new_array(arena, const char *, count ? count : 1);
    EntityTags tags = {prefixes, types, type_names, (int64_t)count, 0};
    for (size_t i = 0; i < count; i++) {
        if (!(prefixes[i] = prefix_of(names[i]))) return (EntityTags){0};
        types[i] = -1;
        if (prefixes[i] == 'O') continue;
        int64_t type = 0;
        while (type < tags.type_count && strcmp(type_names[type], names[i] + 2) != 0) type++;
        if (type == tags.type_count) type_names[tags.type_count++] = names[i] + 2;
        types[i] = type;
    }
    return tags.type_count ? tags : (EntityTags){0};
}

/* ---- Where entities begin and end ---- */

static char prefix(const EntityTags *tags, int64_t label) { return label < 0 ? 'O' : tags->prefixes[label]; }
static int64_t type(const EntityTags *tags, int64_t label) { return label < 0 ? -1 : tags->types[label]; }

/* Whether an entity ends with the label `before`, which the label `now` follows. */
static bool ends(const EntityTags *tags, int64_t before, int64_t now)
{
    char last = prefix(tags, before), next = prefix(tags, now);
    if (last == 'O') return false;
    return last == 'E' || last == 'S' || next == 'B' || next == 'S' || next == 'O' ||
           type(tags, before) != type(tags, now);
}

static bool begins(const EntityTags *tags, int64_t before, int64_t now)
{
    char last = prefix(tags, before), next = prefix(tags, now);
    if (next == 'O') return false;
    return next == 'B' || next == 'S' || last == 'E' || last == 'S' || last == 'O' ||
           type(tags, before) != type(tags, now);
}

/* ---- Counting ---- */

void entity_counter_open(EntityCounter *counter, const EntityTags *tags)
{
    *counter = (EntityCounter){.tags = tags, .label = -1, .prediction = -1};
    class_counts_open(&counter->each, tags->type_count);
}

void entity_counter_close(EntityCounter *counter) { class_counts_close(&counter->each); }

void entity_counter_add(EntityCounter *counter, int64_t label, int64_t prediction)
{
    const EntityTags *tags = counter->tags;
    ClassCounts *each = &counter->each;
    bool label_ends = ends(tags, counter->label, label), found_ends = ends(tags, counter->prediction, prediction);
    bool label_begins = begins(tags, counter->label, label),
         found_begins = begins(tags, counter->prediction, prediction);
    int64_t wanted = type(tags, label), found = type(tags, prediction);
    if (counter->agrees && label_ends && found_ends) each->correct[type(tags, counter->label)]++;
    if (label_ends || found_ends) counter->agrees = false;
    if (label_begins && found_begins && wanted == found) counter->agrees = true;
    if (label_begins) each->labelled[wanted]++;
    if (found_begins) each->predicted[found]++;
    counter->label = label, counter->prediction = prediction;
}

void entity_counter_end_row(EntityCounter *counter) { entity_counter_add(counter, -1, -1); }

double entity_counter_f1(const EntityCounter *counter, F1Kind kind)
{
    const ClassCounts *each = &counter->each;
    double sum = 0;
    if (kind != F1_MACRO) return class_counts_f1(each, F1_MICRO);
    for (int64_t t = 0; t < each->classes; t++) {
        double either = (double)(each->predicted[t] + each->labelled[t]);
        sum += either > 0 ? 2 * (double)each->correct[t] / either : 0;
    }
    return sum / (double)each->classes;
}
