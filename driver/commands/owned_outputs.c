#include "driver/commands/owned_outputs.h"

#include "base/owned_files.h"

bool owned_outputs_spare(Command command, const Options *options, Diagnostics *diagnostics)
{
    const char *outputs[] = {options->output,  command == COMMAND_COMPILE ? options->report : NULL,
                             options->depfile, options->adapter,
                             options->gguf,    command == COMMAND_EXPORT ? options->folder : NULL};
    enum { COUNT = sizeof outputs / sizeof *outputs };
    OutputKind kind = command == COMMAND_COMPILE || command == COMMAND_FEDERATE ? OUTPUT_FOLDER : OUTPUT_FILE;
    bool ok = outputs_apart(outputs, COUNT, diagnostics);
    for (size_t i = 0; i < COUNT; i++) ok &= owned_files_spare(outputs[i], kind, NULL, diagnostics);
    return ok;
}
