#include "federation/member/feedback.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "federation/coded_update.h"
#include "federation/member/own_model.h"
#include "federation/privacy.h"

bool feedback_begin(const GlobalModel *start, const char *path, Diagnostics *diagnostics)
{
    GlobalModel zeros = *start;
    zeros.values = memory_allocate(start->elements * sizeof *zeros.values);
    bool ok = global_model_write(&zeros, path, diagnostics);
    free(zeros.values);
    return ok;
}

bool feedback_open(Feedback *feedback, const Federation *federation, const char *path, Diagnostics *diagnostics)
{
    *feedback = (Feedback){.rule = row_rule_up(federation), .path = path};
    return own_model_open(&feedback->left, &federation->compiled, path, diagnostics);
}

void feedback_free(Feedback *feedback)
{
    global_model_free(&feedback->left);
    buffer_free(&feedback->bytes);
    free(feedback->next);
    *feedback = (Feedback){0};
}

bool feedback_code(Feedback *feedback, float *update, FragmentRange part, int64_t round, double clip)
{
    size_t count = part.end - part.first;
    feedback->made_for = round;
    free(feedback->next);
    buffer_free(&feedback->bytes);
    feedback->next = memory_allocate(count * sizeof *feedback->next);
    for (size_t i = 0; i < count; i++) update[i] += feedback->left.values[part.first + i];
    if (clip > 0 && !isfinite(update_clip(update, count, clip))) return false;
    return coded_update_make(feedback->rule, update, feedback->next, count, &feedback->bytes);
}

bool feedback_keep(Feedback *feedback, FragmentRange part, int64_t round, Diagnostics *diagnostics)
{
    size_t count = part.end - part.first;
    memcpy(feedback->left.values + part.first, feedback->next, count * sizeof *feedback->next);
    feedback->left.round = round;
    return global_model_write(&feedback->left, feedback->path, diagnostics);
}
