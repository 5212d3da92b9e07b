#include "driver/deploy/remote.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/pending.h"

extern char **environ;

enum { MOST_KEPT = 1 << 20 };

void shell_quote(Buffer *command, const char *text)
{
    buffer_print(command, "'");
    for (; *text; text++) {
        if (*text == '\'')
            buffer_print(command, "'\\''"); /* ends the quotes, a quote outside of them, begins others */
        else
            buffer_append(command, text, 1);
    }
    buffer_print(command, "'");
}

/* Its end of the input is a socket, so that a command that ends early is an error here and no signal. */
typedef struct Ends {
    int input[2], output[2], said[2]; /* [0] is the command's of `input`, [1] of the others */
} Ends;

static void close_end(int *end)
{
    if (*end >= 0) close(*end);
    *end = -1;
}

static void close_ends(Ends *ends)
{
    int *all[] = {ends->input, ends->output, ends->said};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) close_end(&all[i][0]), close_end(&all[i][1]);
}

static bool open_ends(Ends *ends)
{
    *ends = (Ends){{-1, -1}, {-1, -1}, {-1, -1}};
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends->input) == 0 &&
           pipe2(ends->output, O_CLOEXEC) == 0 && pipe2(ends->said, O_CLOEXEC) == 0;
}

static int make_private_folder(const char *temporary, const char *path)
{
    (void)path;
    return mkdir(temporary, 0700);
}

/* Of the 107 characters that a socket's path may have ssh takes 57. It replaces some characters. */
static bool suits_sockets(const char *folder)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/-";
    return folder && *folder == '/' && strlen(folder) <= 24 && strspn(folder, plain) == strlen(folder);
}

void remote_begin(Remote *remote, const char *command)
{
    int made;
    FREED_WITH(arena_free) Arena arena = {0};
    const char *folder = getenv("TMPDIR");
    const char *path = arena_format(&arena, "%s/skycc", suits_sockets(folder) ? folder : "/tmp");
    remote->command = command;
    remote->sockets = pending_create(path, make_private_folder, &made);
}

typedef struct Words {
    const char **items;
    size_t count, capacity;
} Words;

static void add_word(Words *words, const char *word) { array_push(words->items, words->count, words->capacity, word); }

static void add_option(Words *words, const char *option)
{
    add_word(words, "-o");
    add_word(words, option);
}

/* Options of the user's own command come first, and of ssh's the first counts. */
static void add_ssh(Words *words, const Remote *remote, Arena *arena)
{
    add_word(words, "/bin/sh");
    add_word(words, "-c");
    add_word(words, arena_format(arena, "exec %s \"$@\"", remote->command));
    add_word(words, "ssh");
    add_option(words, "BatchMode=yes");
    add_option(words, "ConnectTimeout=10");
    add_option(words, "ServerAliveInterval=15");
    add_option(words, "ServerAliveCountMax=4");
    if (!remote->sockets) return;
    add_option(words, "ControlMaster=auto");
    add_option(words, "ControlPersist=30");
    add_option(words, arena_format(arena, "ControlPath=%s/%%C", remote->sockets));
}

static int start(const RemoteCommand *command, const Ends *ends, pid_t *child, Arena *arena)
{
    Words words = {0};
    if (command->host) {
        add_ssh(&words, command->remote, arena);
        add_word(&words, "-T");
        add_word(&words, command->host);
        add_word(&words, command->text);
    } else {
        add_word(&words, "/bin/sh");
        add_word(&words, "-c");
        add_word(&words, command->text);
    }
    add_word(&words, NULL);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends->input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends->output[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends->said[1], STDERR_FILENO);
    int failed = posix_spawn(child, words.items[0], &actions, NULL, (char *const *)words.items, environ);
    posix_spawn_file_actions_destroy(&actions);
    free(words.items);
    return failed;
}

/* Reads what is there; closes the end after the last of it. False if there is too much. */
static bool take(int *end, Buffer *text)
{
    char chunk[16384];
    ssize_t got = read(*end, chunk, sizeof chunk);
    if (got > 0 && text->size + (size_t)got > MOST_KEPT) return false;
    if (got > 0) buffer_append(text, chunk, (size_t)got);
    if (got == 0 || (got < 0 && errno != EINTR)) close_end(end);
    return true;
}

/* A command that stops reading has ended; its exit status says why. */
static void give(int *end, const RemoteCommand *command, size_t *given)
{
    const char *bytes = command->input;
    if (*given < command->input_bytes) {
        ssize_t sent = send(*end, bytes + *given, command->input_bytes - *given, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) *given += (size_t)sent;
        if (sent < 0 && errno != EINTR && errno != EAGAIN) *given = command->input_bytes;
    }
    if (*given == command->input_bytes) close_end(end);
}

/* Until the command has closed its ends. False if it is given up, and `said` says why. */
static bool talk(RemoteCommand *command, Ends *ends)
{
    size_t given = 0;
    double heard = monotonic_seconds();
    while (ends->output[0] >= 0 || ends->said[0] >= 0 || ends->input[1] >= 0) {
        struct pollfd waits[] = {
            {ends->output[0], POLLIN, 0}, {ends->said[0], POLLIN, 0}, {ends->input[1], POLLOUT, 0}};
        int patience = command->patience_ms + (command->output.size ? command->work_ms : 0);
        int left = patience - (int)(1e3 * (monotonic_seconds() - heard));
        if (patience && left <= 0) {
            buffer_print(&command->said, "\nits shell says nothing for %d s\n", patience / 1000);
            return false;
        }
        int ready = poll(waits, 3, patience ? left : -1);
        if (ready < 0 && errno != EINTR) return true;
        if (ready <= 0) continue;
        if ((waits[0].revents && !take(&ends->output[0], &command->output)) ||
            (waits[1].revents && !take(&ends->said[0], &command->said))) {
            buffer_print(&command->said, "\nits shell says more than %d MiB\n", MOST_KEPT >> 20);
            return false;
        }
        if (waits[2].revents) give(&ends->input[1], command, &given);
        heard = monotonic_seconds();
    }
    return true;
}

bool remote_run(RemoteCommand *command, Diagnostics *diagnostics)
{
    Ends ends;
    FREED_WITH(arena_free) Arena arena = {0};
    pid_t child = -1;
    int failed = open_ends(&ends) ? start(command, &ends, &child, &arena) : errno;
    close_end(&ends.input[0]);
    close_end(&ends.output[1]);
    close_end(&ends.said[1]);
    if (!failed) {
        int status = 0;
        if (!talk(command, &ends)) kill(child, SIGKILL);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
        command->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    close_ends(&ends);
    return !failed || diagnostics_error(diagnostics, EXIT_RUN_FAILED, (Place){.object = command->host}, NULL,
                                        "cannot start a command: %s", strerror(failed));
}

/* The host's name means nothing to a socket. */
static void end_connection(const Remote *remote, const char *socket)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0}; /* what does not end now ends by itself */
    FREED_WITH(buffer_free) Buffer text = {0};
    buffer_print(&text, "%s -O exit -o ControlPath=%s/%s host", remote->command, remote->sockets, socket);
    FREED_WITH(remote_free) RemoteCommand command = {.text = text.bytes};
    remote_run(&command, &ignored);
}

void remote_end(Remote *remote)
{
    if (!remote->sockets) return;
    DIR *folder = opendir(remote->sockets);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (*entry->d_name != '.') end_connection(remote, entry->d_name);
    if (folder) closedir(folder);
    remove_tree(remote->sockets);
    pending_drop(remote->sockets);
    *remote = (Remote){0};
}

void remote_free(RemoteCommand *command)
{
    buffer_free(&command->output);
    buffer_free(&command->said);
}

const char *remote_last_words(const RemoteCommand *command, Arena *arena)
{
    const char *text = buffer_text(&command->said), *last = NULL;
    size_t length = 0;
    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        size_t size = strcspn(at, "\r\n");
        if (size) last = at, length = size < 300 ? size : 300;
    }
    if (!last) return NULL;
    char *words = arena_string_n(arena, last, length);
    for (char *at = words; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127) *at = '?';
    return words;
}
