#include "driver/deploy/survey.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codegen/link/launch.h"

static const int patience_ms = 15000; /* the script says something at once */

/* Answers are lines that begin with @ and a word, for what else a host prints is no answer. */
static const char script_head[] =
    "LC_ALL=C\n"
    "export LC_ALL\n"
    "echo \"@begin $(date +%s.%N)\"\n"
    "look() { # number, path, bytes, whether it is to be executable, path of the part\n"
    "    if [ -d \"$2\" ]; then\n"
    "        echo \"@other $1\"\n"
    "    elif [ -f \"$2\" ]; then\n"
    "        size=$(wc -c <\"$2\") hash=''\n"
    "        if [ \"${size:-0}\" -eq \"$3\" ]; then hash=$(sha256sum <\"$2\"); fi\n"
    "        if [ \"$4\" = 1 ] && [ ! -x \"$2\" ]; then hash=''; fi\n"
    "        echo \"@file $1 ${hash%% *}\"\n"
    "    fi\n"
    "    if [ -f \"$5\" ] && [ ! -h \"$5\" ]; then echo \"@part $1 $(wc -c <\"$5\")\"; fi\n"
    "}\n"
    "lacks() { # a program for this machine\n"
    "    [ -x \"$1\" ] && ldd \"$1\" 2>/dev/null |\n"
    "        sed -n 's/^[[:space:]]*\\([^[:space:]]*\\) => not found.*/@lacks \\1/p'\n"
    "    if grep -q '__kernel ' \"$1\" 2>/dev/null; then # it has OpenCL C, and loads this library itself\n"
    "        if LD_PRELOAD=libOpenCL.so.1 sh -c : 2>&1 | grep -q libOpenCL; then echo '@lacks libOpenCL.so.1'; fi\n"
    "    fi\n"
    "}\n"
    "room() { # a folder that need not be there\n"
    "    folder=$1\n"
    "    while [ ! -d \"$folder\" ]; do\n"
    "        if [ -e \"$folder\" ] || [ -h \"$folder\" ]; then echo @readonly; fi\n"
    "        folder=${folder%/*}\n"
    "        [ -n \"$folder\" ] || folder=/\n"
    "    done\n"
    "    [ -w \"$folder\" ] || echo @readonly\n"
    "    df -Pk \"$folder\" 2>/dev/null | sed -n '2s/.* \\([0-9][0-9]*\\)  *[0-9-]*% .*/@room \\1/p'\n"
    "}\n"
    "mpi() { # mpiexec\n"
    "    version=$(\"$1\" --version 2>/dev/null | sed -n 's/^[[:space:]]*Version:[[:space:]]*//p' | sed -n 1p)\n"
    "    if [ -n \"$version\" ]; then echo \"@mpi $version\"; fi\n"
    "}\n"
    "if command -v sha256sum >/dev/null; then echo @sha256; fi\n"
    "echo \"@machine $(uname -m)\"\n"
    "sed -n 's/^flags[[:space:]]*: */@flags /p; s/^Features[[:space:]]*: */@flags /p' /proc/cpuinfo 2>/dev/null | "
    "sed -n 1p\n"
    "sed -n 's/^MemAvailable: *\\([0-9]*\\) kB/@memory \\1/p' /proc/meminfo 2>/dev/null\n";

/* Of /proc/net/tcp: sockets in state 0A listen. */
static const char script_ports[] =
    "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |\n"
    "    sed -n 's/^ *[0-9]*: [0-9A-F]*:\\([0-9A-F]*\\) [0-9A-F]*:[0-9A-F]* 0A .*/@port \\1/p' | sort -u\n";

static void print_call(Buffer *script, const char *function, const char *argument)
{
    buffer_print(script, "%s ", function);
    shell_quote(script, argument);
    buffer_print(script, "\n");
}

static const char *mpiexec_name(void)
{
    const char *name = getenv("MPIEXEC");
    return name && *name ? name : "mpiexec.mpich";
}

static void print_files(const Survey *survey, Buffer *script)
{
    for (int f = 0; f < survey->file_count; f++) {
        const SurveyFile *file = &survey->files[f];
        buffer_print(script, "look %d ", f);
        shell_quote(script, file->there);
        buffer_print(script, " %llu %d ", (unsigned long long)file->file->bytes, file->file->executable);
        shell_quote(script, file->partial);
        buffer_print(script, "\n");
    }
}

/* Programs for other processors are not inspected, only the command that runs them. */
static void print_programs(const Survey *survey, const Deployment *deployment, Buffer *script)
{
    for (int r = 0; r < survey->host->rank_count; r++) {
        const DeployRank *rank = &survey->host->ranks[r];
        const char *launch = deployment->list->processors[rank->processor].launch;
        if (*launch) {
            char word[256];
            snprintf(word, sizeof word, "%.*s", (int)strcspn(launch, " "), launch);
            buffer_print(script, "command -v ");
            shell_quote(script, word);
            buffer_print(script, " >/dev/null || echo @nolaunch ");
            shell_quote(script, word);
            buffer_print(script, "\n");
            continue;
        }
        FREED_WITH(buffer_free) Buffer path = {0};
        buffer_print(&path, "%s/%s", deployment->destination, rank->program);
        print_call(script, "lacks", path.bytes);
    }
}

static void print_script(const Survey *survey, const Deployment *deployment, Buffer *script)
{
    const DeployList *list = deployment->list;
    buffer_print(script, "%s", script_head);
    print_call(script, "mpi", mpiexec_name());
    print_call(script, "room", deployment->destination);
    if (list->first_port || list->gateway_port) buffer_print(script, "%s", script_ports);
    print_files(survey, script);
    print_programs(survey, deployment, script);
    for (int f = 0; f < survey->host->outside_count; f++) {
        FREED_WITH(buffer_free) Buffer path = {0};
        buffer_print(&path, "%s/%s", deployment->destination, survey->host->outside[f]);
        buffer_print(script, "[ -r ");
        shell_quote(script, path.bytes);
        buffer_print(script, " ] || echo @absent %d\n", f);
    }
    buffer_print(script, "echo \"@end $(date +%%s.%%N)\"\n");
}

/* ---- What it answers ---- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* "3 rest": an index below `count`; -1 for anything else. */
static int index_in(const char *text, int count, const char **rest)
{
    char *end;
    long index = strtol(text, &end, 10);
    while (*end == ' ') end++;
    if (rest) *rest = end;
    return end != text && index >= 0 && index < count ? (int)index : -1;
}

static void read_file(Survey *survey, const char *text)
{
    const char *hash;
    int index = index_in(text, survey->file_count, &hash);
    if (index < 0) return;
    SurveyFile *file = &survey->files[index];
    file->is_right = strcmp(hash, file->file->sha256.digits) == 0;
    file->is_other = !file->is_right;
}

static uint64_t kibibytes(const char *text) { return strtoull(text, NULL, 10) << 10; }

typedef struct Answers {
    Survey *survey;
    size_t port_capacity, absent_capacity, launch_capacity;
    Buffer lacks;
    double begin, end; /* its clock; 0: it did not say */
} Answers;

static void read_lack(Answers *answers, const char *library)
{
    FREED_WITH(buffer_free) Buffer marked = {0};
    buffer_print(&marked, " %s,", library);
    const char *known = buffer_text(&answers->lacks);
    bool is_new = !strstr(known, marked.bytes) && answers->lacks.size < 1000;
    if (is_new) buffer_append(&answers->lacks, marked.bytes, marked.size);
}

static bool read_fact(Survey *survey, const char *word, const char *text)
{
    if (strcmp(word, "machine") == 0)
        survey->architecture = arena_string(&survey->arena, text);
    else if (strcmp(word, "flags") == 0)
        survey->flags = arena_string(&survey->arena, text);
    else if (strcmp(word, "mpi") == 0)
        survey->mpi = arena_string(&survey->arena, text);
    else if (strcmp(word, "memory") == 0)
        survey->memory_bytes = kibibytes(text);
    else if (strcmp(word, "room") == 0)
        survey->room_bytes = kibibytes(text);
    else if (strcmp(word, "readonly") == 0)
        survey->read_only = true;
    else if (strcmp(word, "sha256") == 0)
        survey->has_sha256 = true;
    else
        return false;
    return true;
}

static void read_answer(Answers *answers, const char *word, const char *text)
{
    Survey *survey = answers->survey;
    int index;
    if (read_fact(survey, word, text)) return;
    if (strcmp(word, "begin") == 0) answers->begin = strtod(text, NULL);
    if (strcmp(word, "end") == 0) answers->end = strtod(text, NULL);
    if (strcmp(word, "file") == 0) read_file(survey, text);
    if (strcmp(word, "lacks") == 0) read_lack(answers, text);
    if (strcmp(word, "other") == 0 && (index = index_in(text, survey->file_count, NULL)) >= 0)
        survey->files[index].is_other = true;
    if (strcmp(word, "part") == 0 && (index = index_in(text, survey->file_count, &text)) >= 0)
        survey->files[index].partial_bytes = strtoull(text, NULL, 10);
    if (strcmp(word, "port") == 0)
        array_push(survey->ports, survey->port_count, answers->port_capacity, (int)strtol(text, NULL, 16));
    if (strcmp(word, "absent") == 0 && (index = index_in(text, survey->host->outside_count, NULL)) >= 0)
        array_push(survey->absent, survey->absent_count, answers->absent_capacity, survey->host->outside[index]);
    if (strcmp(word, "nolaunch") == 0)
        array_push(survey->no_launch, survey->no_launch_count, answers->launch_capacity,
                   arena_string(&survey->arena, text));
}

/* The host's clock was read between `before` and `after` on this host's clock. */
static void read_answers(Survey *survey, const RemoteCommand *command, double before, double after)
{
    Answers answers = {.survey = survey};
    char *text = arena_string(&survey->arena, buffer_text(&command->output)), *rest = text;
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        if (*line != '@') continue;
        char *word = line + 1, *value = strchr(word, ' ');
        for (char *at = line; *at; at++)
            if ((unsigned char)*at < ' ' || *at == 127) *at = '?'; /* parts of it are printed later */
        if (value) *value++ = '\0';
        read_answer(&answers, word, value ? value : "");
    }
    survey->answered = answers.begin > 0 && answers.end > 0;
    survey->clock_least = answers.end - after;
    survey->clock_most = answers.begin - before;
    const char *lacks = buffer_text(&answers.lacks);
    survey->lacks = answers.lacks.size ? arena_string_n(&survey->arena, lacks + 1, answers.lacks.size - 2) : "";
    buffer_free(&answers.lacks);
}

/* ---- One host ---- */

/* Each host has its own partial file, because hosts may share the folder. */
static void add_file(Survey *survey, const char *here, const char *there, const DeployFile *file)
{
    const char *slash = strrchr(there, '/');
    survey->files[survey->file_count++] =
        (SurveyFile){.file = file,
                     .here = here,
                     .there = there,
                     .partial = arena_format(&survey->arena, "%.*s/.%.100s.%.16s.%.60s.part", (int)(slash - there),
                                             there, slash + 1, file->sha256.digits, survey->host->name)};
}

static void list_files(Survey *survey, const Deployment *deployment)
{
    Arena *arena = &survey->arena;
    const DeployHost *host = survey->host;
    survey->files = arena_new_array(arena, SurveyFile, (size_t)host->file_count + 1);
    for (int f = 0; f < host->file_count; f++) {
        const DeployFile *file = &deployment->list->files[host->files[f]];
        add_file(survey, arena_format(arena, "%s/%s", deployment->directory, file->name),
                 arena_format(arena, "%s/%s", deployment->destination, file->name), file);
    }
    if (deployment->data.path) add_file(survey, deployment->data.path, deployment->data.there, &deployment->data.file);
}

int survey_work_ms(uint64_t bytes)
{
    enum { BYTES_PER_MS = 5000, MOST = 1 << 30 };
    return bytes / BYTES_PER_MS < MOST ? (int)(bytes / BYTES_PER_MS) : MOST;
}

static uint64_t largest_file(const Survey *survey)
{
    uint64_t largest = 0;
    for (int f = 0; f < survey->file_count; f++)
        if (survey->files[f].file->bytes > largest) largest = survey->files[f].file->bytes;
    return largest;
}

bool survey_take(Survey *survey, const Deployment *deployment, const DeployHost *host, Diagnostics *diagnostics)
{
    *survey = (Survey){.host = host,
                       .architecture = "",
                       .flags = "",
                       .lacks = "",
                       .memory_bytes = UINT64_MAX,
                       .room_bytes = UINT64_MAX};
    FREED_WITH(buffer_free) Buffer script = {0};
    list_files(survey, deployment);
    print_script(survey, deployment, &script);
    FREED_WITH(remote_free)
    RemoteCommand command = {.remote = &deployment->remote,
                             .host = launch_host_is_here(host->name) ? NULL : host->name,
                             .text = "sh -s",
                             .input = script.bytes,
                             .input_bytes = script.size,
                             .patience_ms = patience_ms,
                             .work_ms = survey_work_ms(largest_file(survey))};
    double before = now();
    bool ok = remote_run(&command, diagnostics);
    if (ok) read_answers(survey, &command, before, now());
    survey->silence = remote_last_words(&command, &survey->arena);
    return ok;
}

void survey_free(Survey *survey)
{
    free(survey->ports);
    free(survey->absent);
    free(survey->no_launch);
    arena_free(&survey->arena);
    *survey = (Survey){0};
}

const char *survey_own_mpi(Arena *arena, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer script = {0};
    buffer_print(&script, "%s", script_head);
    print_call(&script, "mpi", mpiexec_name());
    FREED_WITH(remote_free)
    RemoteCommand command = {.text = "sh -s", .input = script.bytes, .input_bytes = script.size};
    const char *version = NULL;
    if (remote_run(&command, diagnostics)) {
        const char *found = strstr(buffer_text(&command.output), "@mpi ");
        if (found) version = arena_string_n(arena, found + 5, strcspn(found + 5, "\n"));
    }
    return version;
}

uint64_t survey_missing_bytes(const Survey *survey)
{
    uint64_t bytes = 0;
    for (int f = 0; f < survey->file_count; f++) {
        const SurveyFile *file = &survey->files[f];
        uint64_t kept = file->partial_bytes <= file->file->bytes ? file->partial_bytes : 0;
        if (!file->is_right) bytes += file->file->bytes - kept;
    }
    return bytes;
}

bool survey_refuse_silence(const Survey *survey, Diagnostics *diagnostics)
{
    return diagnostics_error(diagnostics, EXIT_RUN_FAILED, (Place){.object = survey->host->name},
                             "make 'ssh -o BatchMode=yes HOST true' work without a password", "no answer by ssh: %s",
                             survey->silence ? survey->silence : "the answer does not come from a shell");
}
