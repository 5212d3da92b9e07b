/* Random changes of ONNX models that keep them well-formed messages: other operators, extreme numbers, rewired or
 * missing inputs, constants for inputs. Bytes changed at random rarely get past the wire scan; these do. */
#ifndef TESTS_FRONTEND_ONNX_MODEL_CHANGES_H
#define TESTS_FRONTEND_ONNX_MODEL_CHANGES_H

#include "base/random.h"
#include "frontend/onnx/model.h"

enum { MODEL_CHANGE_DRAWS = 16 }; /* random words that one change may draw */

/* Makes one change, or none where the model has not what the drawn change needs. `model` was unpacked into the arena
 * (onnx_allocator), where new parts are allocated; nothing of it may be freed singly. */
void model_change(Onnx__ModelProto *model, Arena *arena, RandomStream stream, uint64_t draw);

#endif
