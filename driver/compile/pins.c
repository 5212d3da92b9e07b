#include "driver/compile/pins.h"

#include <stdlib.h>
#include <string.h>

/* A layer by name or number; -1 if there is none. */
static int find_layer(const Costs *costs, const char *text)
{
    for (int l = 0; l < costs->layer_count; l++)
        if (strcmp(costs->layers[l].name, text) == 0) return l;
    char *end;
    long number = strtol(text, &end, 10);
    return end != text && !*end && number >= 0 && number < costs->layer_count ? (int)number : -1;
}

static bool begins_with(const char *name, const char *beginning)
{
    size_t length = strlen(beginning);
    return strncmp(name, beginning, length) == 0 && (name[length] == '.' || name[length] == '/' || !name[length]);
}

/* The layers whose names are `text` or begin with it; first -1 if there are none. */
static void find_beginning(const Costs *costs, const char *text, int *first, int *last)
{
    *first = *last = -1;
    for (int l = 0; l < costs->layer_count; l++) {
        if (!begins_with(costs->layers[l].name, text)) continue;
        if (*first < 0) *first = l;
        *last = l;
    }
}

/* NAME, NUMBER, BEGINNING, or FIRST-LAST of these; in "encoder.0-3" only the last component counts up. */
static void find_range(Arena *arena, const Costs *costs, const char *text, int *first, int *last)
{
    int unused;
    find_beginning(costs, text, first, last);
    if (*first < 0) *first = *last = find_layer(costs, text);
    for (const char *dash = strchr(text, '-'); dash && *first < 0; dash = strchr(dash + 1, '-')) {
        char *left = arena_string_n(arena, text, (size_t)(dash - text)), *dot = strrchr(left, '.');
        const char *right = dash + 1;
        find_beginning(costs, left, first, &unused);
        if (*first < 0) *first = find_layer(costs, left);
        find_beginning(costs, right, &unused, last);
        if (*last < 0) *last = find_layer(costs, right);
        if (*first >= 0 && dot) {
            int counted_on;
            find_beginning(costs, arena_format(arena, "%.*s%s", (int)(dot + 1 - left), left, right), &unused,
                           &counted_on);
            if (counted_on >= 0) *last = counted_on;
        }
        if (*last < *first || *last < 0) *first = -1;
    }
}

static bool read_pin(PlanPin *pin, const char *text, const Costs *costs, Arena *arena, Diagnostics *diagnostics)
{
    const char *equals = strrchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return usage_error(diagnostics, "write, for example, --pin encoder.0-3=edge-1",
                           "--pin takes LAYERS=DEVICE, not '%s'", text);
    char *layers = arena_string_n(arena, text, (size_t)(equals - text));
    pin->device = equals + 1;
    find_range(arena, costs, layers, &pin->first_layer, &pin->last_layer);
    if (pin->first_layer >= 0) return true;
    return usage_error(diagnostics,
                       arena_format(arena, "there are %d layers, from '%s' to '%s'; skycc check lists a model's layers",
                                    costs->layer_count, costs->layers[0].name,
                                    costs->layers[costs->layer_count - 1].name),
                       "--pin: no layers match '%s'", layers);
}

const PlanPin *pins_read(const char *const *texts, int count, const Costs *costs, Arena *arena,
                         Diagnostics *diagnostics)
{
    PlanPin *pins = arena_new_array(arena, PlanPin, (size_t)count);
    bool ok = true;
    for (int i = 0; i < count; i++) ok &= read_pin(&pins[i], texts[i], costs, arena, diagnostics);
    return ok ? pins : NULL;
}
