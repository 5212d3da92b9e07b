/* The skycc command: finds the command, reads its options, runs it. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "driver/commands/commands.h"

static RunCommand *const commands[COMMAND_COUNT] = {
    [COMMAND_CHECK] = check_command,   [COMMAND_BERT] = bert_command,         [COMMAND_COMPILE] = compile_command,
    [COMMAND_PROBE] = probe_command,   [COMMAND_PLAN] = plan_command,         [COMMAND_EXPLAIN] = explain_command,
    [COMMAND_DIFF] = diff_command,     [COMMAND_VERIFY] = verify_command,     [COMMAND_PLOT] = plot_command,
    [COMMAND_RUN] = run_command,       [COMMAND_EXPORT] = export_command,     [COMMAND_TOKENIZE] = tokenize_command,
    [COMMAND_IMPORT] = import_command, [COMMAND_HEAD] = head_command,         [COMMAND_PREDICT] = predict_command,
    [COMMAND_KEY] = key_command,       [COMMAND_FEDERATE] = federate_command, [COMMAND_COORDINATE] = coordinate_command,
    [COMMAND_DEPLOY] = deploy_command,
};

static void print_help(FILE *stream)
{
    fputs("usage: skycc COMMAND [arguments]\n"
          "\n"
          "Compiles a BERT-family ONNX graph into native programs, one per device, that together train it as a "
          "pipeline.\n"
          "\n",
          stream);
    for (int i = 0; i < COMMAND_COUNT; i++)
        text_print(stream, "  %-11s %s\n", command_texts[i].name, command_texts[i].summary);
    fputs("\n"
          "skycc COMMAND --help says more about one; skycc --version prints the version.\n"
          "Exit codes: 0 success, 1 bad input file, 2 usage, 3 unsupported operator, 4 no plan fits, 5 toolchain or "
          "link\n"
          "failure, 6 a run failed, 70 a bug in skycc.\n",
          stream);
}

static int run(Command command, int argument_count, char **arguments)
{
    Diagnostics diagnostics = {0};
    Options options;
    int code = EXIT_OK;
    if (!command_options_read(&options, command, argument_count, arguments, &diagnostics))
        code = diagnostics.exit_code;
    else if (options.help)
        command_print_help(command, stdout);
    else
        code = commands[command](&options, &diagnostics);
    fflush(stdout); /* before what went wrong */
    diagnostics_print(&diagnostics, stderr);
    diagnostics_free(&diagnostics);
    arena_free(&options.arena);
    return code;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) return print_help(stderr), EXIT_USAGE;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return print_help(stdout), EXIT_OK;
    if (strcmp(name, "--version") == 0) return puts("skycc " SKYCC_VERSION), EXIT_OK;
    for (Command command = 0; command < COMMAND_COUNT; command++) {
        if (strcmp(name, command_texts[command].name) != 0) continue;
        files_removed_by_interrupts();
        return run(command, argc - 1, argv + 1);
    }
    text_print(stderr, "skycc: error: unknown command '%s'\n    hint: skycc --help lists the commands\n", name);
    return EXIT_USAGE;
}
