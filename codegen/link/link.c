#include "codegen/link/link.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "link_config.h" /* SKYCC_LINKER, SKYCC_LINK_LIBRARIES: how this skycc was built */

extern char **environ;

/* lib/skycc/libskyrt.a, next to the bin/ of this executable, in the build tree and in an installation. */
static const char *own_runtime(Arena *arena)
{
    FREED char *directory = file_program_directory();
    const char *path = arena_format(arena, "%s/../lib/skycc/libskyrt.a", directory);
    return access(path, R_OK) == 0 ? path : NULL;
}

/* What pulls the wire out of the runtime, and what it needs in turn. */
static const char wire_symbol[] = "-Wl,-u,world_bridge", wire_libraries[] = "-lzmq";
static const char foreign_wire_libraries[] = "-l:libzmq.so.5";

/* On another architecture: the libraries as their run-time packages name them, because development packages of two
 * architectures cannot be installed side by side; what they need in turn is looked for where the program runs. */
static const char foreign_libraries[] =
    "-l:libjansson.so.4 -l:libmpich.so.12 -l:libgomp.so.1 -lm -Wl,--allow-shlib-undefined";

typedef struct Words {
    const char **items;
    size_t count, capacity;
} Words;

static void add_words(Words *words, Arena *arena, const char *text)
{
    char *rest = arena_string(arena, text);
    for (char *word; (word = strtok_r(rest, " ", &rest));)
        array_push(words->items, words->count, words->capacity, word);
}

static void add_word(Words *words, const char *word) { array_push(words->items, words->count, words->capacity, word); }

/* Runs a command and collects what it prints. Returns its exit status, or -1 if it could not be started. */
static int run_command(const Words *words, Buffer *output)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return -1; /* others are started side by side */
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    pid_t child;
    int failed = posix_spawnp(&child, words->items[0], &actions, NULL, (char *const *)words->items, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    char chunk[4096];
    for (ssize_t got; !failed && (got = read(ends[0], chunk, sizeof chunk)) != 0;) {
        if (got > 0)
            buffer_append(output, chunk, (size_t)got);
        else if (errno != EINTR)
            break;
    }
    close(ends[0]);
    if (failed) {
        buffer_print(output, "%s", strerror(failed));
        return -1;
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The linker's command and the sysroot. */
static void begin_command(Words *words, Arena *arena, const LinkOptions *options)
{
    add_words(words, arena, options->linker);
    if (!words->count) add_words(words, arena, SKYCC_LINKER); /* none is named, or only blanks */
    if (*options->sysroot) add_word(words, arena_format(arena, "--sysroot=%s", options->sysroot));
}

static void add_output(Words *words, const char *output, const char *const *objects, size_t object_count)
{
    add_word(words, "-o");
    add_word(words, output);
    for (size_t i = 0; i < object_count; i++) add_word(words, objects[i]);
}

bool link_objects(const char *output, const char *const *objects, size_t object_count, const LinkOptions *options)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Words words = {0};
    FREED_WITH(buffer_free) Buffer said = {0};
    begin_command(&words, &arena, options);
    add_word(&words, "-r");
    add_word(&words, "-nostdlib");
    add_word(&words, "-fno-sanitize=all"); /* or each object brings that runtime, and the program has it twice */
    add_output(&words, output, objects, object_count);
    add_word(&words, NULL);
    bool ok = run_command(&words, &said) == 0 && access(output, R_OK) == 0;
    free(words.items);
    return ok;
}

bool link_program(const char *output, const char *const *objects, size_t object_count, const LinkOptions *options,
                  Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Words words = {0};
    const char *runtime = *options->runtime ? options->runtime : own_runtime(&arena);
    if (!runtime)
        return diagnostics_error(diagnostics, EXIT_TOOLCHAIN, PLACE_NONE,
                                 "install it as lib/skycc/libskyrt.a next to bin/, or name it as a target's runtime",
                                 "libskyrt.a is not found");
    begin_command(&words, &arena, options);
    const char *command = words.items[0];
    add_output(&words, output, objects, object_count);
    if (options->sites) add_word(&words, wire_symbol);
    add_word(&words, runtime);
    if (options->sites) add_words(&words, &arena, options->foreign ? foreign_wire_libraries : wire_libraries);
    add_words(&words, &arena, options->foreign ? foreign_libraries : SKYCC_LINK_LIBRARIES);
    add_word(&words, NULL);

    FREED_WITH(buffer_free) Buffer said = {0};
    int status = run_command(&words, &said);
    bool ok = status == 0 || diagnostics_error(diagnostics, EXIT_TOOLCHAIN, PLACE_FILE(output),
                                               "the target's linker is set in the cluster file", "%s failed", command);
    if (!ok) diagnostics_quote(diagnostics, buffer_text(&said));
    free(words.items);
    return ok;
}

/* The program of that name in the directory of the archive. */
static const char *program_beside(Arena *arena, const char *runtime, const char *name)
{
    const char *slash = strrchr(runtime, '/');
    return slash ? arena_format(arena, "%.*s/%s", (int)(slash - runtime), runtime, name) : name;
}

bool link_beside(const char *name, const char *output, const LinkOptions *options, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const char *runtime = *options->runtime ? options->runtime : own_runtime(&arena);
    const char *path = runtime ? program_beside(&arena, runtime, name) : name;
    FREED_WITH(diagnostics_free) Diagnostics unread = {0};
    FREED_WITH(file_unmap) MappedFile file = {0};
    if (file_map(&file, path, &unread))
        return file_write_part(output, file.bytes, file.size, diagnostics) &&
               (chmod(output, 0755) == 0 || file_error(diagnostics, output, "cannot set its mode"));
    return diagnostics_error(
        diagnostics, EXIT_TOOLCHAIN, PLACE_FILE(path),
        "build it for the target of each site's first device, and install it next to that target's libskyrt.a",
        "the program of sites '%s' is not found", name);
}
