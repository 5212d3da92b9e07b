/* skycc export: trained weights back into ONNX. */
#include <getopt.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/safetensors.h"
#include "driver/commands.h"
#include "driver/options.h"
#include "frontend/export.h"
#include "runtime/checkpoint_files.h"

static const char usage[] =
    "usage: skycc export MODEL.onnx CHECKPOINT -o TRAINED.onnx\n"
    "\n"
    "Writes the model with the weights of a checkpoint.\n"
    "\n"
    "  CHECKPOINT            a directory of checkpoints (its newest step), one step of it, or a safetensors file with\n"
    "                        tensors by parameter name, such as skycc run writes after training\n"
    "  -o, --output FILE     the model to write; large weights go into FILE.data\n"
    "  -h, --help            this text\n";

static const struct option long_options[] = {
    {"output", required_argument, NULL, 'o'}, {"help", no_argument, NULL, 'h'}, {0}};

typedef struct Weights {
    Arena arena;
    SafeTensors *files;
    size_t count, capacity;
} Weights;

static bool find_trained(void *context, const char *name, TrainedTensor *trained)
{
    Weights *weights = context;
    for (size_t i = 0; i < weights->count; i++) {
        const SafeTensor *tensor = safetensors_find(&weights->files[i], name);
        if (!tensor) tensor = safetensors_find(&weights->files[i], arena_format(&weights->arena, "param/%s", name));
        if (!tensor) continue;
        *trained = (TrainedTensor){tensor->dtype, tensor->shape, tensor->data};
        return true;
    }
    return false;
}

static bool open_file(Weights *weights, const char *path, Diagnostics *diagnostics)
{
    SafeTensors file;
    if (!safetensors_open(&file, path, diagnostics)) return false;
    array_push(weights->files, weights->count, weights->capacity, file);
    return true;
}

static bool open_step(Weights *weights, const char *directory, int64_t step, Diagnostics *diagnostics)
{
    CheckpointManifest manifest;
    if (!checkpoint_read_manifest(&manifest, directory, step, diagnostics)) return false;
    char *path = checkpoint_path(directory, step);
    bool ok = true;
    for (int i = 0; ok && i < manifest.file_count; i++)
        ok = open_file(weights, arena_format(&weights->arena, "%s/%s", path, manifest.files[i].name), diagnostics);
    free(path);
    free(manifest.files);
    return ok;
}

static bool open_checkpoint(Weights *weights, const char *path, Diagnostics *diagnostics)
{
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) return open_file(weights, path, diagnostics);
    if (access(arena_format(&weights->arena, "%s/MANIFEST.json", path), R_OK) == 0) {
        char *resolved = realpath(path, NULL); /* so that the step can be taken from the name, and "." has one */
        if (!resolved) memory_exhausted();
        const char *name = strrchr(resolved, '/') + 1;
        char *parent = arena_string(&weights->arena, resolved);
        long long step = strncmp(name, "step-", 5) == 0 ? strtoll(name + 5, NULL, 10) : -1;
        free(resolved);
        if (step >= 0) return open_step(weights, dirname(parent), step, diagnostics);
    }
    int64_t newest = checkpoint_newest(path);
    if (newest < 0)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), NULL, "holds no complete checkpoint");
    return open_step(weights, path, newest, diagnostics);
}

typedef struct ExportOptions {
    const char *model, *checkpoint, *output;
} ExportOptions;

/* Returns the exit code of a command that ends here, or -1. */
static int parse(ExportOptions *options, int argc, char **argv, Diagnostics *diagnostics)
{
    *options = (ExportOptions){0};
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "o:h", long_options, NULL)) != -1;) {
        if (option == 'h') return fputs(usage, stdout), EXIT_OK;
        if (option == '?') return option_refused("export");
        options->output = optarg;
    }
    if (argc - optind == 2 && options->output) {
        options->model = argv[optind];
        options->checkpoint = argv[optind + 1];
        return -1;
    }
    diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "skycc export --help lists the options",
                      options->output ? "takes a model and a checkpoint" : "no output file is named (-o TRAINED.onnx)");
    return EXIT_USAGE;
}

int export_main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    ExportOptions options;
    int code = parse(&options, argc, argv, &diagnostics);
    if (code < 0) {
        Weights weights = {0};
        bool ok = open_checkpoint(&weights, options.checkpoint, &diagnostics) &&
                  export_onnx(options.model, options.output, find_trained, &weights, &diagnostics);
        code = ok ? EXIT_OK : diagnostics.exit_code;
        for (size_t i = 0; i < weights.count; i++) safetensors_close(&weights.files[i]);
        free(weights.files);
        arena_free(&weights.arena);
    }
    diagnostics_print(&diagnostics, stderr);
    diagnostics_free(&diagnostics);
    return code;
}
