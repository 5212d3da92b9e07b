/* Finds heads by the names of modules: those that the PEFT library trains in addition to adapters. */
#ifndef FRONTEND_ONNX_HEAD_NAMES_H
#define FRONTEND_ONNX_HEAD_NAMES_H

#include <stddef.h>

/* The length of the name up to the end of its first component that names a head (it ends in "classifier", "score" or
 * "qa_outputs"); 0 if it has none. */
size_t head_name_length(const char *name);

#endif
