/* Commands on other hosts, by ssh, and on this one. */
#ifndef DRIVER_DEPLOY_REMOTE_H
#define DRIVER_DEPLOY_REMOTE_H

#include "base/buffer.h"
#include "base/diagnostics.h"

/* Appends the text as one word for any shell: inside single quotes. */
void shell_quote(Buffer *command, const char *text);

/* How hosts are reached. Commands on one host share a connection, which takes several times the latency and some
 * computing to make. */
typedef struct Remote {
    const char *command; /* of the shell, with ssh's options; "ssh" mostly */
    char *sockets;       /* a folder for ssh's sockets; NULL: every command has a connection of its own */
} Remote;

void remote_begin(Remote *remote, const char *command);
/* Closes the connections. They close themselves half a minute after a process that was killed. */
void remote_end(Remote *remote);

/* What a command is given and what it left. */
typedef struct RemoteCommand {
    const Remote *remote;
    const char *host; /* NULL: this one */
    const char *text; /* for a shell */
    const void *input;
    size_t input_bytes;
    int patience_ms;     /* until the first word of its output comes; 0: any time */
    int work_ms;         /* in addition: between two signs of life after that, for what it may have to compute */
    Buffer output, said; /* standard output and error, at most a MiB of each: hosts are not trusted with more */
    int status;          /* exit status; -1 where a signal ended it */
} RemoteCommand;

/* Runs it. ssh asks nobody anything, gives a host 10 s to answer, and one that answers no more up after a minute; a
 * host whose shell says nothing for patience_ms, or more than a MiB, is given up: where that is what happened, `said`
 * ends with it. Errors
 * (EXIT_RUN_FAILED): it cannot be started. Safe to call from several threads. */
bool remote_run(RemoteCommand *command, Diagnostics *diagnostics);
void remote_free(RemoteCommand *command);
/* The last line that it printed on standard error, without control characters, in the arena; NULL if there is none. */
const char *remote_last_words(const RemoteCommand *command, Arena *arena);

#endif
