#include "federation/member/control_variates.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "federation/member/own_model.h"

/* Of own.step: how many sites the round went without. */
static int64_t mark_of(const Federation *federation, int64_t round)
{
    int64_t mark = 1;
    for (int s = 0; s < federation->site_count; s++)
        mark += federation->sites[s].left && federation->sites[s].left <= round;
    return mark;
}

bool control_variates_begin(ControlVariates *control, const GlobalModel *start, const Federation *federation,
                            const char *path, Diagnostics *diagnostics)
{
    GlobalModel own = *start;
    own.values = start->control;
    own.control = NULL;
    own.step = 0;
    control_variates_free(control);
    return global_model_write(&own, path, diagnostics) &&
           control_variates_open(control, start, federation, path, diagnostics);
}

bool control_variates_open(ControlVariates *control, const GlobalModel *start, const Federation *federation,
                           const char *path, Diagnostics *diagnostics)
{
    if (access(path, F_OK) != 0) return control_variates_begin(control, start, federation, path, diagnostics);
    *control = (ControlVariates){.path = path};
    return own_model_open(&control->own, &federation->compiled, path, diagnostics);
}

void control_variates_free(ControlVariates *control)
{
    global_model_free(&control->own);
    *control = (ControlVariates){0};
}

void control_variates_change(float *update, const GlobalModel *start, double rates)
{
    float *change = update + start->elements;
    for (size_t i = 0; i < start->elements; i++)
        change[i] = rates > 0 ? (float)((double)update[i] / rates - (double)start->control[i]) : 0;
}

bool control_variates_keep(ControlVariates *control, const float *update, const Federation *federation, int64_t round,
                           Diagnostics *diagnostics)
{
    GlobalModel *own = &control->own;
    for (size_t i = 0; i < own->elements; i++) own->values[i] += update[own->elements + i];
    own->round = round;
    own->step = mark_of(federation, round);
    return global_model_write(own, control->path, diagnostics);
}

bool control_variates_follow(ControlVariates *control, const GlobalModel *start, const Federation *federation,
                             Diagnostics *diagnostics)
{
    return control->own.step == mark_of(federation, start->round + 1) ||
           control_variates_begin(control, start, federation, control->path, diagnostics);
}
