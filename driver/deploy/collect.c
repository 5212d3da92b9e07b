#include "driver/deploy/collect.h"

/* folder here. What arrives is no part of it before all has: a host may be cut off, full, or not to be trusted, so only
 * folders and plain files are kept, never in place of one that is here, and the manifests of checkpoints last. Hosts
 * print other text before the line that begins it. `fetch` runs ssh. */
static const char collector[] =
    "d=$1; t=$(mktemp -d \"$d/.collect.XXXXXX\") || exit 43; trap 'chmod -R u+rwx \"$t\"; rm -rf \"$t\"' EXIT; "
    "trap 'exit 130' HUP INT TERM; mkdir \"$t/tree\" || exit 43; "
    "{ fetch; echo $? >\"$t/status\"; } | "
    "{ n=0; while IFS= read -r l && [ \"$l\" != @collect ] && [ $((n += 1)) -lt 1000 ]; do :; done; "
    "[ \"$l\" = @collect ] || exit 44; tar -xf - --no-same-owner --no-same-permissions -C \"$t/tree\"; } || exit 44; "
    "s=$(cat \"$t/status\") || exit 43; [ \"$s\" = 0 ] || exit \"$s\"; cd \"$t/tree\" || exit 43; "
    "chmod -R u+rwX,go-w,a-st . && find . ! -type d ! -type f -exec rm -f {} + && "
    "find . -type d -exec mkdir -p \"$d/{}\" ';' && "
    "find . -type f ! -name MANIFEST.json -exec mv -n {} \"$d/{}\" ';' && "
    "find . -type f -name MANIFEST.json -exec mv -n {} \"$d/{}\" ';'";

bool collect_from_host(const Remote *remote, const char *host, const char *folder, Diagnostics *diagnostics)
{
    Buffer there = {0}, text = {0};
    buffer_print(&there, "echo; echo @collect; cd ");
    shell_quote(&there, folder);
    buffer_print(&there, " && exec tar -cf - --exclude='./.collect.*' .");
    buffer_print(&text, "fetch() { %s -o BatchMode=yes -o ConnectTimeout=10 -T -- ", remote->command);
    shell_quote(&text, host);
    buffer_print(&text, " ");
    shell_quote(&text, buffer_text(&there));
    buffer_print(&text, " </dev/null; }; set -- ");
    shell_quote(&text, folder);
    buffer_print(&text, "; %s", collector);
    RemoteCommand command = {.remote = remote, .text = buffer_text(&text)};
    bool ok = remote_run(&command, diagnostics);
    if (ok && command.status != 0) {
        Arena arena = {0};
        const char *words = remote_last_words(&command, &arena);
        ok = diagnostics_error(diagnostics, EXIT_RUN_FAILED, (Place){.object = host},
                               "copy this folder from there by hand, or try again", "%s cannot be collected: %s",
                               folder, words ? words : "not all of it arrived");
        arena_free(&arena);
    }
    remote_free(&command);
    buffer_free(&there);
    buffer_free(&text);
    return ok;
}
