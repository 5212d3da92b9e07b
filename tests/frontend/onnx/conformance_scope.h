/* Which of ONNX's operator test cases are skycc's business: those that use only the operators and element types that
 * skycc promises, found in the case's model and tensors themselves. */
#ifndef TESTS_FRONTEND_ONNX_CONFORMANCE_SCOPE_H
#define TESTS_FRONTEND_ONNX_CONFORMANCE_SCOPE_H

#include "frontend/onnx/model.h"

/* Whether a model is all promised; if not, the operator or the element type that is not goes to reason. */
bool scope_has_model(const Onnx__ModelProto *model, char reason[static 256]);
/* The same of a test's tensor. */
bool scope_has_type(int32_t data_type, char reason[static 256]);

#endif
