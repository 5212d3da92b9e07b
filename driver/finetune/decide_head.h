/* Which head a model is trained with: a new one for the task, or its own, if that fits the table's labels. */
#ifndef DRIVER_FINETUNE_DECIDE_HEAD_H
#define DRIVER_FINETUNE_DECIDE_HEAD_H

#include "driver/finetune/settings.h"
#include "driver/finetune/source_model.h"
#include "driver/finetune/task.h"

/* What it is decided from. The task is among the settings. */
typedef struct HeadDecision {
    Settings *settings;
    const SourceModel *model;
    const TableSurvey *survey;
    const TaskColumns *columns;
} HeadDecision;

bool head_decide(const HeadDecision *decision, Diagnostics *diagnostics);

#endif
