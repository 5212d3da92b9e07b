/* main() of every stage program. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "runtime/launch/launch.h"
#include "runtime/launch/peers.h"
#include "runtime/train/handshake.h"
#include "runtime/train/interface.h"
#include "runtime/train/supervise.h"
#include "runtime/train/training.h"

static int run(TrainingOptions *options, Diagnostics *diagnostics, RunState *state)
{
    World world;
    int exit_code = EXIT_OK;
    world_open(&world, &sky_program, options->timeout, &state->step);
    state->joined = true;
    bool ok = world_agree(&world, diagnostics, &exit_code); /* about the options */
    double help = options->help;                            /* of any rank: the others do not wait for it */
    if (ok) world_sum(&world, &help, 1, "agreement on options");
    if (ok && help > 0) {
        if (world.rank == 0) training_options_print_help(stdout);
    } else if (ok && world_meet_sites(&world, &sky_program, diagnostics, &exit_code)) {
        handshake(&world, &sky_program, options, diagnostics);
        if (world_agree(&world, diagnostics, &exit_code)) {
            FREED char *directory = file_program_directory();
            exit_code = train(&world, &sky_program, options, directory);
        }
    }
    world_close(&world);
    return exit_code;
}

/* A failed write must not end training: whoever writes reports it. Opens closed standard streams, because otherwise the
 * next file would take their place and receive what is printed. */
static void keep_from_ending_by_output(void)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    for (int descriptor = 0; descriptor < 3; descriptor++)
        if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", descriptor ? O_WRONLY : O_RDONLY) != descriptor)
            _exit(EXIT_RUN_FAILED);
}

/* Goes to where SKYCC_FOLDER says that `train` was started, if it does: mpiexec ends without a word where a host has no
 * such folder, so it starts ranks elsewhere. An error: this host has none. */
static bool enter_working_folder(Diagnostics *diagnostics)
{
    const char *folder = getenv("SKYCC_FOLDER");
    char host[256] = "";
    if (!folder || chdir(folder) == 0) return true;
    const char *why = strerror(errno);
    gethostname(host, sizeof host - 1);
    return input_error(diagnostics, folder, "start it in a folder that all hosts have, such as that of train",
                       "train was started here, where host %s cannot go: %s", host, why);
}

int main(int argument_count, char **arguments)
{
    keep_from_ending_by_output();
    setvbuf(stderr, NULL, _IOLBF, 0); /* whole lines, because other ranks print too */
    if (argument_count > 1 && strcmp(arguments[1], "--launch") == 0)
        return launch_ranks(argument_count - 2, arguments + 2);
    if (argument_count > 1 && strcmp(arguments[1], "--guard") == 0)
        return guard_launcher(argument_count - 2, arguments + 2);
    peers_note_inherited();
    RunState *state = supervise(&sky_program);
    Diagnostics diagnostics = {0};
    Arena arena = {0};
    TrainingOptions options;
    enter_working_folder(&diagnostics);
    arguments = training_options_with_environment(&arena, &argument_count, arguments);
    if (training_options_parse(&options, argument_count, arguments, &arena, &diagnostics) && !options.help)
        training_options_suit(&options, &sky_program, &diagnostics);
    interface_choose(&diagnostics);
    state->timeout = options.timeout;
    MPI_Init(NULL, NULL);
    int exit_code = run(&options, &diagnostics, state);
    arena_free(&arena);
    supervised_exit(state, exit_code);
}
