/* skycc import: a Hugging Face folder becomes an ONNX graph. */
#include "driver/commands/commands.h"
#include "frontend/huggingface/import_folder.h"

int import_command(const Options *options, Diagnostics *diagnostics)
{
    FILE *summary = options->quiet ? NULL : stderr;
    bool ok = folder_import(options->folder, options->output, &options->head, options->seed, summary, diagnostics);
    return ok ? EXIT_OK : diagnostics->exit_code;
}
