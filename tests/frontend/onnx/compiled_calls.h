/* Runs lowered calls as code for this machine. */
#ifndef TESTS_FRONTEND_ONNX_COMPILED_CALLS_H
#define TESTS_FRONTEND_ONNX_COMPILED_CALLS_H

#include "tests/common/graph_evaluator.h"

/* Like evaluator_run. A kernel is compiled when this process first meets its hash, and kept until it ends: thousands of
 * graphs share most of theirs. False after printing why. */
bool compiled_calls_run(Evaluator *evaluator);

#endif
