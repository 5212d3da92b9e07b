/* What users of the Hugging Face Trainer's scripts write, and what skycc finetune calls it. */
#ifndef DRIVER_OPTIONS_HABITS_H
#define DRIVER_OPTIONS_HABITS_H

#include "base/options.h"

extern const OptionHabit finetune_habits[];

#endif
