/* Adapters as the PEFT library keeps them: a directory of adapter_model.safetensors and adapter_config.json. */
#ifndef DRIVER_EXPORT_PEFT_ADAPTER_H
#define DRIVER_EXPORT_PEFT_ADAPTER_H

#include "driver/export/merged_weights.h"

/* Makes or replaces `directory` with the branches and other trained weights ("modules to save"). Warns of names that
 * modules cannot have. */
bool peft_adapter_write(MergedWeights *merged, const char *directory, Diagnostics *diagnostics);

#endif
