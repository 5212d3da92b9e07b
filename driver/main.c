/* The skycc command: finds the command, reads its options, runs it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* Standard streams that the caller closed: else the next file that is opened would be taken for one of them, and get what is
 * printed. Standard output can then be read only, so that printing fails and is reported. */
static void open_standard_streams(void)
{
    for (int descriptor = 0; descriptor < 3; descriptor++)
        if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", descriptor == 2 ? O_WRONLY : O_RDONLY) != descriptor)
            _exit(EXIT_BAD_INPUT);
}

static const char standard_output[] = "standard output"; /* as file_commit calls it */

/* Standard output that cannot be written is an error, whatever was printed there; what went wrong is printed after it. */
static int finish(int code, Diagnostics *diagnostics)
{
    bool reported = false;
    bool failed = fflush(stdout) != 0, lost = failed || ferror(stdout);
    if (lost && !failed) failed = write(STDOUT_FILENO, "\n", 1) < 0; /* what failed before has left no reason */
    const char *reason = !failed ? "some of it is lost" : errno == EBADF ? "it is closed" : strerror(errno);
    for (const Diagnostic *d = diagnostics->first; d; d = d->next)
        reported |= d->place.file && strcmp(d->place.file, standard_output) == 0;
    if (lost && !reported) {
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(standard_output), NULL, "cannot write: %s", reason);
        if (!code) code = EXIT_BAD_INPUT;
    }
    diagnostics_print(diagnostics, stderr);
    diagnostics_free(diagnostics);
    return code;
}

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

static int run(Command command, int argument_count, char **arguments, Diagnostics *diagnostics)
{
    Options options;
    int code = EXIT_OK;
    files_removed_by_interrupts();
    if (!command_options_read(&options, command, argument_count, arguments, diagnostics))
        code = diagnostics->exit_code;
    else if (options.help)
        command_print_help(command, options.help_all, stdout);
    else
        code = commands[command](&options, diagnostics);
    command_fit_hints(command, diagnostics);
    arena_free(&options.arena);
    return code;
}

int main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    const char *name = argc > 1 ? argv[1] : NULL;
    open_standard_streams();
    if (!name) return print_help(stderr), EXIT_USAGE;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return print_help(stdout), finish(EXIT_OK, &diagnostics);
    if (strcmp(name, "--version") == 0) return puts("skycc " SKYCC_VERSION), finish(EXIT_OK, &diagnostics);
    for (Command command = 0; command < COMMAND_COUNT; command++)
        if (strcmp(name, command_texts[command].name) == 0)
            return finish(run(command, argc - 1, argv + 1, &diagnostics), &diagnostics);
    diagnostics_error(&diagnostics, EXIT_USAGE, PLACE_NONE, "skycc --help lists the commands", "unknown command '%s'",
                      name);
    return finish(EXIT_USAGE, &diagnostics);
}
