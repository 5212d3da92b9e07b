#include "driver/commands/owned_outputs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/directory.h"
#include "driver/finetune/settings.h"

static bool holds(const char *directory, const char *name)
{
    char *path = directory_join(directory, name);
    bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

/* Whether the first name of `rest` is one of a run's. */
static bool is_run_part(const char *rest)
{
    size_t length = strcspn(rest, "/");
    for (const char *const *part = run_parts; *part; part++)
        if (strlen(*part) == length && strncmp(*part, rest, length) == 0) return true;
    return strncmp(rest, "seed-", 5) == 0;
}

static bool refuse(const char *output, const char *what, const char *owner, Diagnostics *diagnostics)
{
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(output), "name another file",
                             "would replace a part of the %s %s", what, owner);
}

/* `real` is the output without links and dots, and is cut here. */
static bool spare(const char *output, char *real, bool makes_folder, Diagnostics *diagnostics)
{
    bool is_nearest = true;
    for (char *slash; (slash = strrchr(real, '/')) && slash > real; is_nearest = false) {
        const char *rest = slash + 1;
        *slash = '\0';
        /* What follows the slash ends where the last cut was. */
        if (is_run(real) && holds(real, "model.onnx") && is_run_part(rest))
            return refuse(output, "run", real, diagnostics);
        if (!is_nearest || makes_folder) continue;
        if (holds(real, "MANIFEST.json")) return refuse(output, "checkpoint", real, diagnostics);
        if (directory_lists(real, rest)) return refuse(output, "compiled folder", real, diagnostics);
    }
    return true;
}

/* What is not there yet replaces nothing. A link is itself replaced, not what it leads to. */
static bool spare_output(const char *output, bool makes_folder, Diagnostics *diagnostics)
{
    if (!output || !*output || strcmp(output, "-") == 0 || access(output, F_OK) != 0) return true;
    char *name = strdup(output);
    if (!name) memory_exhausted();
    for (size_t length = strlen(name); length > 1 && name[length - 1] == '/';) name[--length] = '\0';
    char *slash = strrchr(name, '/');
    if (slash) *slash = '\0';
    char *folder = realpath(!slash ? "." : slash == name ? "/" : name, NULL);
    char *real = folder ? directory_join(folder, slash ? slash + 1 : name) : NULL;
    bool ok = !real || spare(output, real, makes_folder, diagnostics);
    free(real);
    free(folder);
    free(name);
    return ok;
}

bool owned_outputs_spare(Command command, const Options *options, Diagnostics *diagnostics)
{
    const char *outputs[] = {options->output,  options->report, options->depfile,
                             options->adapter, options->gguf,   command == COMMAND_EXPORT ? options->folder : NULL};
    bool makes_folder = command == COMMAND_COMPILE || command == COMMAND_FEDERATE, ok = true;
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        ok &= spare_output(outputs[i], makes_folder, diagnostics);
    return ok;
}
