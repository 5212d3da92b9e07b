/* The skycc command: a table of contents. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diagnostics.h"
#include "base/file.h"
#include "driver/commands.h"

/* These load LLVM and MPI, which takes longer than some commands take in all. They are not linked into bin/skycc, which
 * becomes the executable that has everything for them. */
#pragma weak compile_main
#pragma weak probe_main
#pragma weak run_main

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"check", check_main, "import a model and say what is in it"},
    {"bert", bert_main, "write a BERT graph of any size"},
    {"compile", compile_main, "model and cluster in, a directory of ready-to-run programs out"},
    {"probe", probe_main, "time a model's kernels on this machine"},
    {"plan", plan_main, "assign layers to devices and prove how good that is"},
    {"explain", explain_main, "a plan in words, beside the trace of a run"},
    {"diff", diff_main, "what changed between two plans"},
    {"verify", verify_main, "check a plan and its proof, independently of the solver"},
    {"plot", plot_main, "the losses of a run, drawn"},
    {"run", run_main, "run a model here: outputs, loss, gradients, some training steps"},
    {"export", export_main, "write trained weights back into ONNX"},
    {"tokenize", tokenize_main, "turn rows of text into a data set of token ids"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void print_help(FILE *stream)
{
    fputs("usage: skycc COMMAND [arguments]\n"
          "\n"
          "Compiles a BERT-family ONNX graph into native programs, one per device, that together train it as a "
          "pipeline.\n"
          "\n",
          stream);
    for (int i = 0; i < COMMAND_COUNT; i++) fprintf(stream, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fputs("\n"
          "skycc COMMAND --help says more about one; skycc --version prints the version.\n"
          "Exit codes: 0 success, 1 bad input file, 2 usage, 3 unsupported operator, 4 no plan fits, 5 toolchain or "
          "link\n"
          "failure, 6 a run failed, 70 a bug in skycc.\n",
          stream);
}

/* Becomes lib/skycc/skycc, which lies in the build tree as where it is installed. Returns only if it cannot. */
static int become_complete(char **argv)
{
    Diagnostics diagnostics = {0};
    char *directory = file_program_directory(), path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s/../lib/skycc/skycc", (int)sizeof path / 2, directory);
    execv(path, argv);
    diagnostics_error(&diagnostics, EXIT_TOOLCHAIN, PLACE_FILE(path),
                      "it belongs to this skycc and is installed with it", "cannot be started for skycc %s: %s",
                      argv[1], strerror(errno));
    free(directory);
    diagnostics_print(&diagnostics, stderr);
    int code = diagnostics.exit_code;
    diagnostics_free(&diagnostics);
    return code;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) return print_help(stderr), EXIT_USAGE;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return print_help(stdout), EXIT_OK;
    if (strcmp(name, "--version") == 0) return puts("skycc " SKYCC_VERSION), EXIT_OK;
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, commands[i].name) != 0) continue;
        if (!commands[i].main) return become_complete(argv);
        files_removed_by_interrupts();
        argv[1] = "skycc: error"; /* the name under which getopt_long complains */
        return commands[i].main(argc - 1, argv + 1);
    }
    fprintf(stderr, "skycc: error: unknown command '%s'\n    hint: skycc --help lists the commands\n", name);
    return EXIT_USAGE;
}
