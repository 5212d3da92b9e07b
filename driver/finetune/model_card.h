/* README.md of the trained model, as the Hugging Face hub shows it: data with hashes, settings, metrics. */
#ifndef DRIVER_FINETUNE_MODEL_CARD_H
#define DRIVER_FINETUNE_MODEL_CARD_H

#include "driver/finetune/settings.h"

/* Writes RUN/model/README.md from the settings and RUN/metrics.json (RUN/test.json too, if it is there). */
bool model_card_write(Settings *settings, const char *run, Diagnostics *diagnostics);

#endif
