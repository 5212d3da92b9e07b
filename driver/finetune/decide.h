/* The decisions of skycc finetune: from what the user said, the table and the model to settings. */
#ifndef DRIVER_FINETUNE_DECIDE_H
#define DRIVER_FINETUNE_DECIDE_H

#include "base/options.h"
#include "driver/finetune/settings.h"

/* What the user said. A text is NULL if it was not given. */
typedef struct FinetuneOptions {
    const char *source; /* folder or ONNX file */
    TextList tables;
    const char *resume, *run;
    const char *given[SETTING_COUNT]; /* options that are settings, as they were written */
    int serve;                        /* port of the report, 0: a free one; -1: not given */
    bool dry_run, no_texts;
    /* Fields of other commands' options too, filled in by the command. */
    const char *cluster;
    TextList without;
    TextList freeze, trained; /* patterns of parameters */
    uint64_t seed;
} FinetuneOptions;

/* Free the settings' arena in any case. */
bool finetune_decide(Settings *settings, const FinetuneOptions *options, Diagnostics *diagnostics);
/* Whether what the user said is what the settings of a run that goes on have: it keeps them. */
bool finetune_decide_resume(Settings *settings, const FinetuneOptions *options, Diagnostics *diagnostics);
/* Sets the devices: a cluster file (NULL: this machine) and those of it that are left out. */
bool finetune_decide_devices(Settings *settings, const char *cluster, const TextList *without,
                             Diagnostics *diagnostics);
/* The cluster file of a run on this machine alone, in the settings' arena. */
const char *finetune_this_machine(Settings *settings);

#endif
