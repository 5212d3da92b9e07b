/* skycc import: a Hugging Face folder becomes an ONNX graph. */
#include "driver/commands/commands.h"
#include "frontend/huggingface/import_folder.h"

bool import_command(const Options *options, Diagnostics *diagnostics)
{
    FILE *summary = options->quiet ? NULL : stderr;
    return folder_import(options->folder, options->output, &options->head, options->seed, summary, diagnostics);
}
