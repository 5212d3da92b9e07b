/* RUN/report.html: what a run of skycc finetune does and did, for a browser. One file without anything from elsewhere,
 * that loads itself again while training runs. */
#ifndef DRIVER_FINETUNE_RUN_REPORT_H
#define DRIVER_FINETUNE_RUN_REPORT_H

#include "driver/finetune/settings.h"

/* The hash of the script of a live page, as a Content-Security-Policy has it. */
#define RUN_REPORT_SCRIPT "sha256-PxxEd0l120y7Pn6qho7PvWHAp8eEEi1aE1s1hTLmUN0="

typedef enum RunState { RUN_PREPARES, RUN_TRAINS, RUN_ENDED, RUN_DIVERGED, RUN_BROKE_OFF } RunState;

/* Reads what RUN has by now: log, plan, checkpoints and metrics, each of which may not be there yet. `part` is where
 * they are: RUN, or the directory of a seed. Reports only that the page cannot be written. */
bool run_report_write(Settings *settings, const char *run, const char *part, RunState state, Diagnostics *diagnostics);

#endif
