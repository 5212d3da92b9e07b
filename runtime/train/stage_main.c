/* main() of every stage program. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/launch.h"
#include "runtime/train/handshake.h"
#include "runtime/train/interface.h"
#include "runtime/train/supervise.h"
#include "runtime/train/train.h"
#include "runtime/train/working_folder.h"

static int run(TrainingOptions *options, Diagnostics *diagnostics, RunState *state)
{
    World world;
    int exit_code = EXIT_OK;
    world_open(&world, &sky_program, options->timeout, &state->step);
    state->joined = true;
    bool ok = world_agree(&world, diagnostics, &exit_code); /* about the options */
    if (ok && options->help) {
        if (world.rank == 0) training_options_print_help(stdout);
    } else if (ok && world_meet_sites(&world, &sky_program, diagnostics, &exit_code)) {
        handshake(&world, &sky_program, options, diagnostics);
        if (world_agree(&world, diagnostics, &exit_code)) {
            char *directory = file_program_directory();
            exit_code = train(&world, &sky_program, options, directory);
            free(directory);
        }
    }
    world_close(&world);
    return exit_code;
}

int main(int argument_count, char **arguments)
{
    setvbuf(stderr, NULL, _IOLBF, 0); /* whole lines: others print too */
    if (argument_count > 1 && strcmp(arguments[1], "--launch") == 0)
        return launch_ranks(argument_count - 2, arguments + 2);
    if (argument_count > 1 && strcmp(arguments[1], "--guard") == 0)
        return guard_launcher(argument_count - 2, arguments + 2);
    RunState *state = supervise(&sky_program);
    Diagnostics diagnostics = {0};
    Arena arena = {0};
    TrainingOptions options;
    working_folder_enter(&diagnostics);
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
