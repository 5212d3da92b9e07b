#include "base/outputs.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/pending.h"

typedef struct Held {
    PlaceOutput *place;
    char *path, *temporary;
    bool keep_others;
} Held;

static bool is_holding;
static Held *held;
static size_t held_count, held_capacity;

void outputs_hold(void) { is_holding = true; }

bool outputs_place(PlaceOutput *place, const char *path, char *temporary, bool keep_others, Diagnostics *diagnostics)
{
    if (!is_holding || pending_holds(path)) return place(path, temporary, keep_others, diagnostics);
    Held output = {place, strdup(path), temporary, keep_others};
    if (!output.path) memory_exhausted();
    array_push(held, held_count, held_capacity, output);
    return true;
}

bool outputs_release(bool ok, Diagnostics *diagnostics)
{
    is_holding = false;
    pending_hold(); /* an interrupt comes before all are in place, or after */
    for (size_t i = 0; i < held_count; i++) {
        Held *output = &held[i];
        if (ok) {
            ok = output->place(output->path, output->temporary, output->keep_others, diagnostics);
        } else {
            remove_tree(output->temporary);
            pending_drop(output->temporary);
        }
        free(output->path);
    }
    pending_release();
    free(held);
    held = NULL;
    held_count = held_capacity = 0;
    return ok;
}
