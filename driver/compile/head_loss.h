/* What a model that skycc import made is trained for, if --loss says nothing: its head decides. */
#ifndef DRIVER_COMPILE_HEAD_LOSS_H
#define DRIVER_COMPILE_HEAD_LOSS_H

#include "frontend/onnx/model.h"

/* As --loss says it. *loss NULL: the outputs decide. Reports a head that has none. */
bool head_loss(const OnnxModel *model, const char **loss, Diagnostics *diagnostics);
/* Warns if `loss` compares the scores of a decoder, which are those of the next token, with labels of the same one. */
void head_loss_check(const OnnxModel *model, const char *loss, Diagnostics *diagnostics);

#endif
