/* Which of ONNX's operator test cases are skycc's business: those that use only the operators and element types that
 * skycc promises, found in the case's model and tensors themselves. */
#ifndef TESTS_CONFORMANCE_SCOPE_H
#define TESTS_CONFORMANCE_SCOPE_H

#include "frontend/model.h"

/* Why a model is none of it: an operator, or an element type, that is not promised. NULL if it is all promised. */
const char *scope_of_model(const Onnx__ModelProto *model, char reason[static 256]);
/* The same of a test's tensor. */
const char *scope_of_type(int32_t data_type, char reason[static 256]);

#endif
