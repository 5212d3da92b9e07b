/* Which modules are heads, by their names: those that the PEFT library trains beside adapters. */
#ifndef FRONTEND_ONNX_HEAD_NAMES_H
#define FRONTEND_ONNX_HEAD_NAMES_H

#include <stddef.h>

/* The length of the name up to the end of its first component that is a head's, which ends in "classifier", "score" or
 * "qa_outputs"; 0 if it has none. */
size_t head_name_length(const char *name);

#endif
