#include "profiler/costs/batch_choice.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ROWS = 1 << 30, MOST_TRIED = 64 };

bool batch_choice_equal(const BatchChoice *a, const BatchChoice *b)
{
    if (a->rows != b->rows || a->microbatches != b->microbatches || a->tried_count != b->tried_count) return false;
    for (int i = 0; i < a->tried_count; i++)
        if (a->tried[i].microbatches != b->tried[i].microbatches || a->tried[i].step_ns != b->tried[i].step_ns)
            return false;
    return true;
}

BatchChoice batch_choice_copy(const BatchChoice *choice, Arena *arena)
{
    BatchChoice copy = *choice;
    size_t count = (size_t)choice->tried_count;
    if (count) copy.tried = arena_copy(arena, choice->tried, count * sizeof *choice->tried);
    return copy;
}

static __attribute__((format(printf, 2, 3))) void add(char text[static BATCH_CHOICE_LINE], const char *format, ...)
{
    size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, BATCH_CHOICE_LINE - length, format, arguments);
    va_end(arguments);
}

/* The trials that fit, or those that do not. Sizes are rows, or where rows are packed numbers of micro-batches. */
static int add_trials(char text[static BATCH_CHOICE_LINE], const BatchChoice *choice, bool packed, bool fit,
                      const char *before)
{
    int count = 0;
    for (int i = 0; i < choice->tried_count; i++) {
        const BatchTrial *trial = &choice->tried[packed ? choice->tried_count - 1 - i : i];
        if ((trial->step_ns > 0) != fit) continue;
        add(text, "%s%lld", count++ ? ", " : before,
            packed ? (long long)trial->microbatches : (long long)choice->rows / trial->microbatches);
    }
    return count;
}

const char *batch_choice_line(const BatchChoice *choice, double mean, char text[static BATCH_CHOICE_LINE])
{
    bool packed = mean > 0;
    text[0] = '\0';
    if (!choice->rows) return text;
    if (packed)
        add(text, "Micro-batches: %.1f on average for %lld rows", mean, (long long)choice->rows);
    else
        add(text, "Micro-batches: %d of %lld row%s", choice->microbatches,
            (long long)choice->rows / choice->microbatches, choice->rows == choice->microbatches ? "" : "s");
    if (!choice->tried_count) return text;
    int fitting = add_trials(text, choice, packed, true, packed ? " (tried at least " : " (tried ");
    add_trials(text, choice, packed, false,
               fitting ? "; found nothing that fits with " : " (found nothing that fits with ");
    add(text, ")");
    return text;
}

void batch_choice_add(const BatchChoice *choice, JsonWriter *json)
{
    if (!choice->rows) return;
    json_break(json, "\n ");
    json_open(json, "batch", '{');
    json_add_integer(json, "rows", choice->rows);
    json_add_integer(json, "microbatches", choice->microbatches);
    json_open(json, "tried", '[');
    for (int i = 0; i < choice->tried_count; i++) {
        json_open(json, NULL, '{');
        json_add_integer(json, "microbatches", choice->tried[i].microbatches);
        if (choice->tried[i].step_ns) json_add_number(json, "step_s", (double)choice->tried[i].step_ns / 1e9);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_close(json, '}');
}

static bool read_trial(BatchTrial *trial, JsonReader reader, const json_t *object)
{
    int64_t microbatches;
    double seconds = 0;
    if (!json_is_object(object)) return json_refuse(reader, "batch.tried", "holds what is no object");
    if (!json_get_integer(reader, object, "batch.tried", "microbatches", &microbatches) ||
        !json_optional_number(reader, object, "batch.tried", "step_s", &seconds))
        return false;
    if (microbatches < 1 || microbatches > MOST_ROWS || !(seconds >= 0 && seconds < 1e9))
        return json_refuse(reader, "batch.tried", "is out of range");
    *trial = (BatchTrial){(int)microbatches, llround(seconds * 1e9)};
    return true;
}

/* NULL, or what is impossible about it. */
static const char *find_fault(const BatchChoice *choice, bool packed)
{
    const BatchTrial *chosen = NULL;
    if (!packed && choice->rows % choice->microbatches) return "has micro-batches of unequal size";
    for (int i = 0; i < choice->tried_count; i++) {
        const BatchTrial *trial = &choice->tried[i];
        if (trial->microbatches > choice->rows || (i && trial->microbatches >= trial[-1].microbatches))
            return "must list tried micro-batches descending";
        if (!packed && choice->rows % trial->microbatches) return "tried micro-batches of unequal size";
        if (trial->microbatches == choice->microbatches) chosen = trial;
    }
    return choice->tried_count && !chosen ? "was not tried" : NULL;
}

bool batch_choice_read(BatchChoice *choice, JsonReader reader, const json_t *root, bool packed, Arena *arena)
{
    json_t *batch, *tried;
    int64_t microbatches;
    if (!json_object_get(root, "batch")) return true;
    if (!json_get_object(reader, root, "", "batch", &batch) ||
        !json_get_integer(reader, batch, "batch", "rows", &choice->rows) ||
        !json_get_integer(reader, batch, "batch", "microbatches", &microbatches) ||
        !json_get_array(reader, batch, "batch", "tried", &tried))
        return false;
    if (choice->rows < 1 || choice->rows > MOST_ROWS || microbatches < 1 || microbatches > choice->rows ||
        json_array_size(tried) > MOST_TRIED)
        return json_refuse(reader, "batch", "is out of range");
    choice->microbatches = (int)microbatches;
    choice->tried_count = (int)json_array_size(tried);
    choice->tried = arena_new_array(arena, BatchTrial, (size_t)choice->tried_count + 1);
    for (int i = 0; i < choice->tried_count; i++)
        if (!read_trial(&choice->tried[i], reader, json_array_get(tried, (size_t)i))) return false;
    const char *fault = find_fault(choice, packed);
    return !fault || json_refuse(reader, "batch", fault);
}
