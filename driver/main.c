/* The skycc command: finds the command, reads its options, and runs it. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/owned_files.h"
#include "driver/commands/commands.h"

#define COMMAND_FUNCTION(NAME, name) [COMMAND_##NAME] = name##_command,
static RunCommand *const commands[COMMAND_COUNT] = {SKYCC_COMMANDS(COMMAND_FUNCTION)};

/* Opens /dev/null for standard streams that the caller closed. Otherwise the next file that is opened would get what
 * is printed. Standard output can then only be read, so that printing fails and is reported. */
static void open_standard_streams(void)
{
    for (int descriptor = 0; descriptor < 3; descriptor++)
        if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", descriptor == 2 ? O_WRONLY : O_RDONLY) != descriptor)
            _exit(EXIT_BAD_INPUT);
}

static const char standard_output[] = "standard output"; /* as file_commit calls it */

/* Reports standard output that could not be written, then prints all diagnostics. */
static int finish(int code, Diagnostics *diagnostics)
{
    bool reported = false;
    bool failed = fflush(stdout) != 0, lost = failed || ferror(stdout);
    if (lost && !failed) failed = write(STDOUT_FILENO, "\n", 1) < 0; /* an earlier failure left no errno */
    const char *reason = !failed ? "some of it is lost" : errno == EBADF ? "it is closed" : strerror(errno);
    for (const Diagnostic *d = diagnostics->first; d; d = d->next)
        reported |= d->place.file && strcmp(d->place.file, standard_output) == 0;
    if (lost && !reported) {
        input_error(diagnostics, standard_output, NULL, "cannot write: %s", reason);
        if (!code) code = EXIT_BAD_INPUT;
    }
    diagnostics_print(diagnostics, stderr);
    diagnostics_free(diagnostics);
    return code;
}

static void print_help(FILE *stream)
{
    fputs("usage: skycc COMMAND [arguments]\n\n"
          "Compiles a transformer into native programs, one per device, that train it together as a pipeline.\n\n",
          stream);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(stream, "  %-11s %s\n", command_texts[i].name, command_texts[i].summary);
    fputs("\nskycc COMMAND --help explains a command, skycc COMMAND --help-all lists all its options.\n"
          "skycc --version prints the version.\n"
          "Exit codes: 0 success, 1 bad file, 2 wrong command line, 3 unsupported operator, 4 no plan fits,\n"
          "5 compiling or linking failed, 6 a run failed, 7 training diverged, 130 and 143 ended by Ctrl-C or\n"
          "SIGTERM, 70 a bug in skycc.\n",
          stream);
}

/* Refuses outputs that would replace a file or folder of a run of finetune, a file that the list of a compiled folder
 * names, or a part of a checkpoint. Commands that make such folders have rules of their own for them. */
static bool spare_owned_outputs(Command command, const Options *options, Diagnostics *diagnostics)
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

static int run(Command command, int argument_count, char **arguments, Diagnostics *diagnostics)
{
    Options options;
    files_removed_by_interrupts();
    if (command != COMMAND_COORDINATE) file_guard_inputs();
    bool ok = command_options_read(&options, command, argument_count, arguments, diagnostics);
    if (ok && options.help)
        command_print_help(command, options.help_all, stdout);
    else if (ok)
        ok = spare_owned_outputs(command, &options, diagnostics) && commands[command](&options, diagnostics);
    command_fit_hints(command, diagnostics);
    arena_free(&options.arena);
    return ok ? EXIT_OK : diagnostics->exit_code;
}

/* Stages have arrays over all values of the graph, of which they touch few: pages that come from the system anew need
 * not be zeroed, where memory that is used again does, for every layer. */
static void leave_pages_untouched(void)
{
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

int main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    const char *name = argc > 1 ? argv[1] : NULL;
    open_standard_streams();
    leave_pages_untouched();
    if (!name) return print_help(stderr), EXIT_USAGE;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return print_help(stdout), finish(EXIT_OK, &diagnostics);
    if (strcmp(name, "--version") == 0) return puts("skycc " SKYCC_VERSION), finish(EXIT_OK, &diagnostics);
    for (Command command = 0; command < COMMAND_COUNT; command++)
        if (strcmp(name, command_texts[command].name) == 0)
            return finish(run(command, argc - 1, argv + 1, &diagnostics), &diagnostics);
    usage_error(&diagnostics, "skycc --help lists the commands", "unknown command '%s'", name);
    return finish(EXIT_USAGE, &diagnostics);
}
