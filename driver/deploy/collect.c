#include "driver/deploy/collect.h"

#include <string.h>

/* folder, files: moves them to the same place below the folder, never over what is there, which it compares. Prints a
 * line for each that is there with other content. */
#define PLACE                                                                                                          \
    "d=$1; shift; for f; do p=$d/${f#./}; if [ -d \"$p\" ]; then echo \"$p: is a folder\" >&2; exit 43; fi; "          \
    "if [ -e \"$p\" ] || [ -h \"$p\" ]; then cmp -s \"$f\" \"$p\" || echo \"@kept ${f#./}\"; "                         \
    "else mv -n \"$f\" \"$p\" || exit 43; fi; done"

/* folder here, PLACE. What arrives is no part of it before all has: a host may be cut off, full, or not to be trusted,
 * so only folders and plain files are kept, and the manifests of checkpoints come last. Hosts print other text before
 * the line that begins it. `fetch` runs ssh. */
static const char collector[] =
    "d=$1; t=$(mktemp -d \"$d/.collect.XXXXXX\") || exit 43; trap 'chmod -R u+rwx \"$t\"; rm -rf \"$t\"' EXIT; "
    "trap 'exit 130' HUP INT TERM; mkdir \"$t/tree\" || exit 43; "
    "{ fetch; echo $? 2>/dev/null >\"$t/status\"; } | "
    "{ n=0; while IFS= read -r l && [ \"$l\" != @collect ] && [ $((n += 1)) -lt 1000 ]; do :; done; "
    "[ \"$l\" = @collect ] || exit 44; w=$(tar -xf - --no-same-owner --no-same-permissions -C \"$t/tree\" 2>&1) || "
    "{ echo \"$w\" | grep -v Exiting | tail -n 1 >&2; exit 44; }; } || exit 44; "
    "s=$(cat \"$t/status\") || exit 43; [ \"$s\" = 0 ] || exit \"$s\"; cd \"$t/tree\" || exit 43; "
    "chmod -R u+rwX,go-w,a-st . && find . ! -type d ! -type f -exec rm -f {} + && "
    "find . -type d -exec sh -c 'd=$1; shift; for f; do mkdir -p \"$d/$f\" || exit 43; done' sh \"$d\" {} + && "
    "find . -type f ! -name MANIFEST.json -exec sh -c \"$2\" sh \"$d\" {} + && "
    "find . -type f -name MANIFEST.json -exec sh -c \"$2\" sh \"$d\" {} +";

/* Of the lines that PLACE prints. */
static void tell_kept(const char *host, const char *folder, const char *lines, Diagnostics *diagnostics)
{
    static const char mark[] = "@kept ";
    int kept = 0;
    FREED_WITH(arena_free) Arena arena = {0};
    const char *first = NULL;
    for (const char *line = strstr(lines, mark); line; line = strstr(line + 1, mark), kept++)
        if (!first) first = arena_string_n(&arena, line + strlen(mark), strcspn(line + strlen(mark), "\n"));
    if (kept)
        diagnostics_warning(
            diagnostics, (Place){.object = host}, "collect into an empty folder to get those of the host",
            "%s: %d of its files differ from those there and are kept, such as %s", folder, kept, first);
}

bool collect_from_host(const Remote *remote, const char *host, const char *folder, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer there = {0}, text = {0};
    buffer_print(&there, "echo; echo @collect; cd ");
    shell_quote(&there, folder);
    buffer_print(&there, " && exec tar -cf - --exclude='./.collect.*' .");
    buffer_print(&text, "fetch() { %s -o BatchMode=yes -o ConnectTimeout=10 -T -- ", remote->command);
    shell_quote(&text, host);
    buffer_print(&text, " ");
    shell_quote(&text, buffer_text(&there));
    buffer_print(&text, " </dev/null; }; set -- ");
    shell_quote(&text, folder);
    buffer_print(&text, " ");
    shell_quote(&text, PLACE);
    buffer_print(&text, "; %s", collector);
    FREED_WITH(remote_free) RemoteCommand command = {.remote = remote, .text = buffer_text(&text)};
    bool ok = remote_run(&command, diagnostics);
    if (ok && command.status != 0) {
        FREED_WITH(arena_free) Arena arena = {0};
        const char *words = remote_last_words(&command, &arena);
        ok = diagnostics_error(diagnostics, EXIT_RUN_FAILED, (Place){.object = host},
                               "copy this folder from there by hand, or try again", "%s cannot be collected: %s",
                               folder, words ? words : "not all of it arrived");
    } else if (ok) {
        tell_kept(host, folder, buffer_text(&command.output), diagnostics);
    }
    return ok;
}
