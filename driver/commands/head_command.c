/* skycc head: a head on an encoder that is an ONNX model. */
#include "driver/commands/commands.h"
#include "frontend/huggingface/add_head.h"

bool head_command(const Options *options, Diagnostics *diagnostics)
{
    FILE *summary = options->quiet ? NULL : stderr;
    return head_add(options->model, options->output, &options->head, options->seed, summary, diagnostics);
}
