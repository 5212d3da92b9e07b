#include "driver/deploy/collect.h"

/* tar takes no path that leads out of the folder, and keeps what is here. */
bool collect_from_host(const Remote *remote, const char *host, const char *folder, Diagnostics *diagnostics)
{
    Buffer there = {0}, text = {0};
    buffer_print(&there, "cd ");
    shell_quote(&there, folder);
    buffer_print(&there, " && exec tar -cf - .");
    buffer_print(&text, "%s -o BatchMode=yes -o ConnectTimeout=10 -T -- ", remote->command);
    shell_quote(&text, host);
    buffer_print(&text, " ");
    shell_quote(&text, buffer_text(&there));
    buffer_print(&text, " | tar -xf - --skip-old-files --no-same-owner -C ");
    shell_quote(&text, folder);
    RemoteCommand command = {.remote = remote, .text = buffer_text(&text)};
    bool ok = remote_run(&command, diagnostics);
    if (ok && command.status != 0) {
        Arena arena = {0};
        const char *words = remote_last_words(&command, &arena);
        ok = diagnostics_error(diagnostics, EXIT_RUN_FAILED, (Place){.object = host},
                               "copy this folder from there by hand, or try again", "%s cannot be collected: %s",
                               folder, words ? words : "tar failed");
        arena_free(&arena);
    }
    remote_free(&command);
    buffer_free(&there);
    buffer_free(&text);
    return ok;
}
