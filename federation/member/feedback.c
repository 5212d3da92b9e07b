#include "federation/member/feedback.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "federation/member/own_model.h"
#include "federation/privacy.h"

static const char next_mark[] = ".next";

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
    *feedback = (Feedback){.rule = row_rule_up(federation), .path = path, .written = -1};
    feedback->next_path = memory_allocate(strlen(path) + sizeof next_mark);
    sprintf(feedback->next_path, "%s%s", path, next_mark);
    unlink(feedback->next_path); /* of a process that was killed */
    return own_model_open(&feedback->left, &federation->compiled, path, diagnostics);
}

void feedback_free(Feedback *feedback)
{
    global_model_free(&feedback->left);
    buffer_free(&feedback->bytes);
    free(feedback->next);
    if (feedback->next_path) unlink(feedback->next_path);
    free(feedback->next_path);
    *feedback = (Feedback){0};
}

bool feedback_code(Feedback *feedback, float *update, FragmentRange part, int64_t round, double clip)
{
    size_t count = part.end - part.first;
    const float *left = feedback->left.values + part.first;
    feedback->made_for = round;
    feedback->written = -1;
    feedback->bytes.size = 0;
    if (!feedback->next) feedback->next = memory_allocate(feedback->left.elements * sizeof *feedback->next);
    for (size_t i = 0; i < count && clip > 0; i++) update[i] += left[i];
    if (clip > 0 && !isfinite(update_clip(update, count, clip))) return false;
    return coded_row_make(feedback->rule, update, clip > 0 ? NULL : left, feedback->next, count, &feedback->bytes);
}

static bool is_whole(const Feedback *feedback, FragmentRange part)
{
    return part.end - part.first == feedback->left.elements;
}

bool feedback_prepare(Feedback *feedback, FragmentRange part, int64_t round, Diagnostics *diagnostics)
{
    GlobalModel next = feedback->left;
    if (!is_whole(feedback, part) || feedback->written == round) return true;
    next.values = feedback->next;
    next.round = round;
    if (!global_model_write(&next, feedback->next_path, diagnostics)) return false;
    feedback->written = round;
    return true;
}

bool feedback_keep(Feedback *feedback, FragmentRange part, int64_t round, Diagnostics *diagnostics)
{
    GlobalModel *left = &feedback->left;
    float *before = left->values;
    bool written = feedback->written == round;
    if (is_whole(feedback, part))
        left->values = feedback->next, feedback->next = before;
    else
        memcpy(left->values + part.first, feedback->next, (part.end - part.first) * sizeof *before);
    feedback->left.round = round;
    feedback->written = -1;
    return written ? file_rename_again(feedback->next_path, feedback->path, diagnostics)
                   : global_model_write(left, feedback->path, diagnostics);
}
