/* Adapters as the PEFT library keeps them: a directory of adapter_model.safetensors and adapter_config.json. */
#ifndef DRIVER_EXPORT_PEFT_ADAPTER_H
#define DRIVER_EXPORT_PEFT_ADAPTER_H

#include "driver/export/merged_weights.h"

/* Makes `directory`, or replaces a former one, with the branches and whatever else was trained, which that library calls
 * modules to save. Warns of names that modules of its models cannot have. */
bool peft_adapter_write(MergedWeights *merged, const char *directory, Diagnostics *diagnostics);

#endif
