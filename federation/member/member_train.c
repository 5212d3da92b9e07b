/* Local steps: runs the site's stage programs in their own process. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/file.h"
#include "federation/member/member.h"
#include "federation/site_starts.h"
#include "runtime/program/program.h"
#include "runtime/storage/checkpoint_directory.h"

enum { FURTHER_ARGUMENTS = 26 };

/* Between looks whether stage programs have ended or are done: seconds, and the share of the time so far. */
static const double look_pause[] = {5e-3, 0.1}, look_pause_share = 0.002;

/* As `--name VALUE` or `--name=VALUE`. */
static bool is_passed(const MemberOptions *options, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; options->passed[i]; i++)
        if (strncmp(options->passed[i], name, length) == 0 && strchr("=", options->passed[i][length])) return true;
    return false;
}

bool member_stages_live(const Member *member)
{
    return !member->federation.overlap && !(member->federation.proximal > 0) && !member->start.control;
}

static const char *round_path(Member *member)
{
    return arena_format(&member->arena, "%s/next-round", member->options->checkpoint);
}

static char **train_arguments(Arena *arena, Member *member, int64_t until)
{
    const MemberOptions *options = member->options;
    size_t passed = 0, count = 0;
    while (options->passed[passed]) passed++;
    char **arguments = arena_new_array(arena, char *, passed + FURTHER_ARGUMENTS + 1);
    arguments[count++] = arena_format(arena, "%s/train", options->directory);
    for (size_t i = 0; i < passed; i++) arguments[count++] = options->passed[i];
    int64_t rounds_left = member->federation.rounds - member->start.round;
    char *last = arena_format(arena, "%" PRId64, member->start.step + rounds_left * member->federation.local_steps);
    arguments[count++] = "--resume";
    arguments[count++] = "--steps";
    arguments[count++] = last;
    if (!is_passed(options, "--schedule-steps")) { /* overrides the checkpoint's, which may be for fewer rounds */
        arguments[count++] = "--schedule-steps";
        arguments[count++] = last;
    }
    arguments[count++] = "--stop-after";
    arguments[count++] = arena_format(arena, "%" PRId64, until);
    if (!is_passed(options, "--retries")) { /* a restart is cheaper than a missed round */
        arguments[count++] = "--retries";
        arguments[count++] = "3";
    }
    if (member->federation.proximal > 0) {
        arguments[count++] = "--proximal";
        arguments[count++] = arena_format(arena, "%.17g", member->federation.proximal);
    }
    if (member->start.control) {
        arguments[count++] = "--control";
        arguments[count++] = arena_string(arena, member->control.path);
    }
    if (member->federation.proximal > 0 || member->start.control) {
        arguments[count++] = "--proximal-start";
        arguments[count++] = arena_string(arena, member->start_path);
    }
    if (!is_passed(options, "--keep")) { /* rounds make one each */
        arguments[count++] = "--keep";
        arguments[count++] = "2";
    }
    if (member_first_path(member) && checkpoint_newest(options->checkpoint) == member->start.step) {
        arguments[count++] = "--eval-first";
        arguments[count++] = arena_string(arena, member_first_path(member));
    }
    if (!options->log) {
        arguments[count++] = "--log";
        arguments[count++] = arena_string(arena, member->log_path);
    }
    if (member_stages_live(member)) {
        arguments[count++] = "--round-start";
        arguments[count++] = arena_string(arena, member->start_path);
        arguments[count++] = "--go-on";
        arguments[count++] = arena_string(arena, round_path(member));
    }
    return arguments;
}

/* Of a line on standard error: where an error is told in it; NULL: nowhere. */
static const char *error_in(const char *line)
{
    static const char *const heads[] = {"skycc: error: ", "train: "};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        if (strncmp(line, heads[h], strlen(heads[h])) == 0) return line + strlen(heads[h]);
    return strstr(line, ": error: ") ? line : NULL;
}

/* Of what stage programs say, keeps the first error of the last start that told one, with its hint. */
static void note_line(Member *member)
{
    static const char mark[] = ": error: ", hint[] = "    hint: ", failed[] = "train: the run failed";
    Buffer *reason = &member->reason;
    const char *line = buffer_text(&member->stage_line);
    bool ends = strncmp(line, failed, sizeof failed - 1) == 0, takes = !reason->size || member->reason_is_old;
    const char *error = ends || !takes ? NULL : error_in(line), *middle = error ? strstr(error, mark) : NULL;
    if (error) buffer_free(reason);
    member->reason_is_old = ends || (member->reason_is_old && !error);
    if (middle)
        buffer_print(reason, "%.*s: %s", (int)(middle - error), error, middle + strlen(mark));
    else if (error)
        buffer_print(reason, "%s", error);
    else if (member->reason_is_last && strncmp(line, hint, strlen(hint)) == 0)
        buffer_print(reason, " (%s)", line + strlen(hint));
    member->reason_is_last = error != NULL;
    buffer_free(&member->stage_line);
}

/* Passes on what stage programs have written on standard error. */
static void pass_on_errors(Member *member)
{
    char bytes[4096];
    ssize_t count;
    while (member->stage_errors >= 0 && (count = read(member->stage_errors, bytes, sizeof bytes)) > 0) {
        fwrite(bytes, 1, (size_t)count, stderr);
        fflush(stderr);
        for (ssize_t i = 0; i < count; i++) {
            member->stage_line.limit = MOST_NEWS;
            if (bytes[i] != '\n') buffer_append(&member->stage_line, bytes + i, 1);
            if (bytes[i] == '\n') note_line(member);
        }
    }
}

/* Waits until the child ends, or lives with the checkpoint of `until` (UNTIL_ITS_END: for its end alone). Forwards,
 * once, the signal to end. After `deadline` seconds (negative: never), or when the site may not stay, it tells the
 * child to save and end, which is no error. */
enum { UNTIL_ITS_END = -1 };
static int wait_for(Member *member, pid_t child, int64_t until, double deadline, Diagnostics *diagnostics)
{
    FREED char *complete = until == UNTIL_ITS_END ? NULL : checkpoint_manifest_path(member->options->checkpoint, until);
    int status, passed_on = 0;
    double since = monotonic_seconds(), signed_at = since;
    bool is_over = false, may_stay = true, lives = false;
    while (waitpid(child, &status, WNOHANG) == 0) {
        double now = monotonic_seconds();
        pass_on_errors(member);
        if (*member->ended && *member->ended != passed_on) kill(child, passed_on = *member->ended);
        if (now - signed_at > SITE_SIGN_SECONDS && may_stay && !*member->ended) {
            may_stay = member_sign_life(member, diagnostics);
            signed_at = monotonic_seconds();
        }
        if ((deadline >= 0 && now - since > deadline) || !may_stay) is_over = is_over || kill(child, SIGTERM) == 0;
        lives = complete && access(complete, F_OK) == 0;
        if (lives) break;
        usleep((useconds_t)(1e6 * fmin(fmax(look_pause_share * (now - since), look_pause[0]), look_pause[1])));
    }
    if (lives) return EXIT_OK;
    member->stages = 0;
    /* A launcher that must end while it starts may fail. Then no steps are made, and the next try reports more. */
    bool ended_by_term = WIFEXITED(status)
                             ? WEXITSTATUS(status) == 128 + SIGTERM || WEXITSTATUS(status) == EXIT_RUN_FAILED
                             : WTERMSIG(status) == SIGTERM;
    if (!may_stay) return diagnostics->exit_code;
    if (is_over && ended_by_term) return EXIT_OK;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_RUN_FAILED;
}

pid_t member_train_begin(Member *member, int64_t until)
{
    FREED_WITH(arena_free) Arena arena = {0};
    char **arguments = train_arguments(&arena, member, until);
    int errors[2] = {-1, -1};
    if (pipe2(errors, O_CLOEXEC) == 0) fcntl(errors[0], F_SETFL, O_NONBLOCK);
    pid_t member_process = getpid(), child = child_fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* who waits for a next round must not wait for one that nobody names */
        if (getppid() != member_process) _exit(128 + SIGTERM);
        if (errors[1] >= 0) dup2(errors[1], STDERR_FILENO);
        if (member->steps_lock >= 0) fcntl(member->steps_lock, F_SETFD, 0);
        if (member->federation.compiled.recipe) setenv(SKY_RECIPE_VARIABLE, member->federation.compiled.recipe, 1);
        execv(arguments[0], arguments);
        _exit(127);
    }
    if (errors[1] >= 0) close(errors[1]);
    member->stage_errors = errors[0];
    buffer_free(&member->reason);
    member->reason_is_old = false;
    return child;
}

static int wait_and_report(Member *member, pid_t child, int64_t until, double deadline, Diagnostics *diagnostics)
{
    int code = child < 0 ? EXIT_RUN_FAILED : wait_for(member, child, until, deadline, diagnostics);
    pass_on_errors(member);
    if (member->stages) return code;
    if (member->stage_errors >= 0) close(member->stage_errors);
    member->stage_errors = -1;
    if (code == EXIT_OK) buffer_free(&member->reason);
    if (child < 0 || code == 127) {
        diagnostics_error(diagnostics, EXIT_RUN_FAILED, PLACE_FILE(member->options->directory), NULL,
                          "its train cannot be started: %s", child < 0 ? "no process is to be had" : "is it there?");
        code = EXIT_RUN_FAILED;
    }
    return code;
}

int member_train_end(Member *member, pid_t child, double deadline, Diagnostics *diagnostics)
{
    return wait_and_report(member, child, UNTIL_ITS_END, deadline, diagnostics);
}

/* Tells stage programs that wait of a round (both -1: of none any more; both 0: of none yet). In place, because nobody
 * reads it after a crash; they wait for the end of the line. */
static bool name_round(Member *member, int64_t from, int64_t until, Diagnostics *diagnostics)
{
    const char *path = round_path(member);
    FILE *file = fopen(path, "we");
    bool ok = file && fprintf(file, "%" PRId64 " %" PRId64 "\n", from, until) > 0;
    ok = file && fclose(file) == 0 && ok;
    return ok || file_error(diagnostics, path, "cannot write");
}

void member_train_stop(Member *member)
{
    FREED_WITH(diagnostics_free) Diagnostics unsaid = {0};
    if (member->stages && !name_round(member, -1, -1, &unsaid)) kill(member->stages, SIGTERM);
    if (member->stages) member_train_end(member, member->stages, MEMBER_NO_DEADLINE, &unsaid);
}

/* All arguments but the step after which they stop, and which rows they have read, as text. */
static char *stage_options(Member *member)
{
    const char *const rows[] = {member->options->data, member->options->eval_data};
    FREED_WITH(arena_free) Arena arena = {0};
    Buffer text = {0};
    char **arguments = train_arguments(&arena, member, 0);
    for (size_t i = 0; arguments[i]; i++) buffer_print(&text, "%s\n", arguments[i]);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i]) buffer_print(&text, "%s", member_file_card(rows[i]).line);
    return text.bytes;
}

/* Has stage programs that wait make the round's steps, if they were started with the same options and rows; else starts
 * others, as after an end of those that waited. */
static int train(Member *member, int64_t until, double deadline, Diagnostics *diagnostics)
{
    if (!member_stages_live(member))
        return member_train_end(member, member_train_begin(member, until), deadline, diagnostics);
    const char *checkpoint = member->options->checkpoint;
    char *options = stage_options(member);
    if (member->stages && strcmp(options, member->stage_options) != 0) member_train_stop(member);
    free(member->stage_options);
    member->stage_options = options;
    for (bool goes_on = member->stages != 0;; goes_on = false) {
        if (!name_round(member, goes_on ? member->start.step : 0, goes_on ? until : 0, diagnostics))
            return diagnostics->exit_code;
        pid_t child = goes_on ? member->stages : member_train_begin(member, until);
        member->stages = child < 0 ? 0 : child;
        int code = wait_and_report(member, child, until, deadline, diagnostics);
        bool lacks_steps =
            code == EXIT_OK ? deadline < 0 && checkpoint_newest(checkpoint) < until : code != EXIT_DIVERGED;
        if (goes_on && lacks_steps && !*member->ended && !diagnostics->errors) continue;
        if (code == EXIT_OK && member->stages && !name_round(member, 0, 0, diagnostics)) return diagnostics->exit_code;
        return code;
    }
}

/* ---- The steps of a round ---- */

/* With a deadline, local steps may end early. Then this notes the last step, so that a restarted site makes the same
 * steps and the same update. */
static const char *note_path(Member *member)
{
    return arena_format(&member->arena, "%s/last-step", member->options->checkpoint);
}

bool member_steps_are_made(Member *member, int64_t step, int64_t until)
{
    int64_t round = -1, last = -1;
    if (step >= until) return true;
    if (!(member->federation.deadline_s > 0)) return false;
    FREED_WITH(stream_close) FILE *note = fopen(note_path(member), "re");
    bool is_noted = note && fscanf(note, "%" SCNd64 " %" SCNd64, &round, &last) == 2;
    return is_noted && round == member->start.round && last == step;
}

int member_make_steps(Member *member, int64_t until, int64_t *step, Diagnostics *diagnostics)
{
    double deadline = member->federation.deadline_s;
    const char *checkpoint = member->options->checkpoint;
    FREED_WITH(buffer_free) Buffer note = {0};
    int code = train(member, until, deadline > 0 ? deadline : MEMBER_NO_DEADLINE, diagnostics);
    *step = checkpoint_newest(checkpoint);
    if (code == EXIT_OK && deadline > 0 && *step == member->start.step && !*member->ended) {
        code = train(member, *step + 1, MEMBER_NO_DEADLINE, diagnostics);
        *step = checkpoint_newest(checkpoint);
    }
    if (code != EXIT_OK || *member->ended) return code;
    if (*step <= member->start.step || (*step < until && !(deadline > 0))) return EXIT_RUN_FAILED;
    if (*step == until) return EXIT_OK;
    member_say(member, "round %" PRId64 ": %" PRId64 " of %" PRId64 " steps by the deadline", member->start.round + 1,
               *step - member->start.step, until - member->start.step);
    buffer_print(&note, "%" PRId64 " %" PRId64 "\n", member->start.round, *step);
    bool ok = file_write_all(note_path(member), buffer_text(&note), note.size, diagnostics);
    return ok ? EXIT_OK : diagnostics->exit_code;
}

bool member_mean_loss(const char *log, int64_t after, int64_t until, double *loss)
{
    FREED_WITH(stream_close) FILE *file = fopen(log, "re");
    FREED char *line = NULL;
    size_t capacity = 0;
    double sum = 0;
    int64_t count = 0;
    while (file && getline(&line, &capacity, file) > 0) {
        char *end, *value;
        long long step = strtoll(line, &end, 10);
        if (end == line || *end != ',' || step <= after || step > until) continue;
        double number = strtod(end + 1, &value);
        if (value == end + 1 || !isfinite(number)) continue;
        sum += number;
        count++;
    }
    if (count) *loss = sum / (double)count;
    return count > 0;
}
