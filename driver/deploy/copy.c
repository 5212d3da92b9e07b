#include "driver/deploy/copy.h"

#include <string.h>

#include "base/file.h"
#include "codegen/link/launch.h"
#include "partitioner/report/report.h"

/* path, part, hash, bytes, mode, how much of the part is kept (all or 0). Without line breaks, which not every login
 * shell takes inside quotes. Two transfers of a file write the same bytes at the same places, so neither harms the
 * other; the one that ends later finds the file complete. */
static const char receiver[] =
    "p=$1 t=$2 h=$3; is() { s=$(sha256sum <\"$1\") && [ \"${s%% *}\" = \"$h\" ]; } 2>/dev/null; "
    "if [ -d \"$p\" ]; then echo \"$p is a folder\" >&2; exit 43; fi; mkdir -p \"${p%/*}\" || exit 43; "
    "if [ \"$6\" = 0 ] || [ -h \"$t\" ]; then rm -f \"$t\"; fi; "
    "dd of=\"$t\" bs=65536 seek=\"$6\" oflag=seek_bytes conv=notrunc status=none || exit 43; "
    "if is \"$t\" && chmod \"$5\" \"$t\" && mv -f \"$t\" \"$p\"; then exit 0; fi; "
    "if [ ! -e \"$t\" ]; then is \"$p\" && exit 0; exit 42; fi; "
    "if [ \"$(wc -c <\"$t\")\" -lt \"$4\" ]; then exit 42; fi; "
    "if is \"$t\"; then exit 43; fi; rm -f \"$t\"; exit 41";

enum { RECEIVED_WRONG = 41, RECEIVED_PART = 42, CANNOT_WRITE = 43, SSH_FAILED = 255 };

static const int longest_stall_ms = 600000; /* what a slow link's buffers hold takes minutes to arrive */
static const char again[] = "run the same command again: it goes on where this one ended";

static bool cannot_copy(const Survey *survey, const char *hint, const char *path, const char *why,
                        Diagnostics *diagnostics)
{
    return diagnostics_error(diagnostics, EXIT_RUN_FAILED, (Place){.object = survey->host->name}, hint, "%s: %s", path,
                             why);
}

static void print_receiver(const SurveyFile *file, uint64_t kept, Buffer *text)
{
    buffer_print(text, "sh -c ");
    shell_quote(text, receiver);
    buffer_print(text, " deploy ");
    shell_quote(text, file->there);
    buffer_print(text, " ");
    shell_quote(text, file->partial);
    buffer_print(text, " %s %llu %s %llu", file->file->sha256.digits, (unsigned long long)file->file->bytes,
                 file->file->executable ? "755" : "644", (unsigned long long)kept);
}

static bool tell_failure(const Survey *survey, const SurveyFile *file, const RemoteCommand *command,
                         Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const char *words = remote_last_words(command, &arena), *hint = NULL, *why = words;
    if (command->status == RECEIVED_WRONG) why = "arrived with another hash", hint = "does the file change meanwhile?";
    if (command->status == RECEIVED_PART) why = "only a part of it arrived", hint = again;
    if (command->status == CANNOT_WRITE) hint = "make room for it there, or choose another folder with --to";
    if (command->status == SSH_FAILED) why = words ? words : "the connection was cut", hint = again;
    if (!why) why = arena_format(&arena, "cannot be written there (exit status %d)", command->status);
    cannot_copy(survey, hint, file->there, why, diagnostics);
    return false;
}

static bool send_from(const Survey *survey, const SurveyFile *file, const Deployment *deployment,
                      const MappedFile *mapped, uint64_t kept, RemoteCommand *command, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    print_receiver(file, kept, &text);
    *command = (RemoteCommand){.remote = &deployment->remote,
                               .host = survey->host->name,
                               .text = text.bytes,
                               .input = mapped->bytes + kept,
                               .input_bytes = mapped->size - kept,
                               .patience_ms = longest_stall_ms + survey_work_ms(mapped->size)};
    return remote_run(command, diagnostics);
}

/* Sends a file again from the start if the partial one belongs to another file. */
static bool send_file(const Survey *survey, const SurveyFile *file, const Deployment *deployment, CopyResult *result,
                      Diagnostics *diagnostics)
{
    FREED_WITH(file_unmap) MappedFile mapped = {0};
    if (!file_map(&mapped, file->here, diagnostics)) return false;
    uint64_t kept = file->partial_bytes <= mapped.size ? file->partial_bytes : 0;
    RemoteCommand command;
    bool ok = send_from(survey, file, deployment, &mapped, kept, &command, diagnostics);
    if (ok && kept && command.status == RECEIVED_WRONG) {
        remote_free(&command);
        kept = 0;
        ok = send_from(survey, file, deployment, &mapped, kept, &command, diagnostics);
    }
    if (ok && command.status != 0) ok = tell_failure(survey, file, &command, diagnostics);
    if (ok) result->sent++, result->bytes += mapped.size - kept;
    remote_free(&command);
    return ok;
}

bool copy_to_host(const Survey *survey, const Deployment *deployment, CopyResult *result, Diagnostics *diagnostics)
{
    const char *place = deployment->destination;
    uint64_t missing = survey_missing_bytes(survey);
    char needed[REPORT_TEXT], room[REPORT_TEXT];
    if (!survey->answered) return survey_refuse_silence(survey, diagnostics);
    if (!survey->has_sha256)
        return cannot_copy(survey, "install coreutils", "sha256sum", "is not installed on the host", diagnostics);
    if (missing > survey->room_bytes)
        return diagnostics_error(diagnostics, EXIT_RUN_FAILED, (Place){.object = survey->host->name}, NULL,
                                 "%s: %s must be copied, but only %s of disk space is free", place,
                                 report_bytes((int64_t)missing, needed),
                                 report_bytes((int64_t)survey->room_bytes, room));
    for (int f = 0; f < survey->file_count; f++)
        if (!survey->files[f].is_right && !send_file(survey, &survey->files[f], deployment, result, diagnostics))
            return false;
    return true;
}

bool copy_check_here(const Deployment *deployment, Diagnostics *diagnostics)
{
    const DeployList *list = deployment->list;
    FREED_WITH(arena_free) Arena arena = {0};
    bool *wanted = arena_new_array(&arena, bool, (size_t)list->file_count), ok = true;
    for (int h = 0; h < list->host_count; h++)
        for (int f = 0; f < list->hosts[h].file_count && !launch_host_is_here(list->hosts[h].name); f++)
            wanted[list->hosts[h].files[f]] = true;
    for (int f = 0; f < list->file_count; f++) {
        const DeployFile *file = &list->files[f];
        const char *path = arena_format(&arena, "%s/%s", deployment->directory, file->name);
        Sha256Text hash;
        uint64_t bytes;
        if (!wanted[f]) continue;
        if (!sha256_file(path, &hash, &bytes, diagnostics))
            ok = false;
        else if (strcmp(hash.digits, file->sha256.digits) != 0)
            ok = input_error(diagnostics, path, "run skycc compile again with the same -o",
                             "has changed since skycc compile wrote it");
    }
    return ok;
}
