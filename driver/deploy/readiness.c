#include "driver/deploy/readiness.h"

#include <stdarg.h>
#include <string.h>

#include "base/parts.h"
#include "base/text.h"
#include "codegen/link/launch.h"
#include "partitioner/report/report.h"

enum { CELL = 128 };

typedef struct Judgement {
    const Survey *survey;
    const Deployment *deployment;
    Diagnostics *diagnostics;
    bool ok;
} Judgement;

__attribute__((format(printf, 3, 4))) static void complain(Judgement *judgement, const char *hint, const char *format,
                                                           ...)
{
    FREED_WITH(arena_free) Arena arena = {0};
    va_list arguments;
    va_start(arguments, format);
    const char *text = arena_format_va(&arena, format, arguments);
    va_end(arguments);
    diagnostics_error(judgement->diagnostics, EXIT_RUN_FAILED, (Place){.object = judgement->survey->host->name}, hint,
                      "%s", text);
    judgement->ok = false;
}

/* Each judge_... fills a cell of the table and says what is not as it must be. */

/* Names of files, those in the folder without it. */
static void add_name(Buffer *names, const Deployment *deployment, const char *path)
{
    size_t length = strlen(deployment->destination);
    bool inside = strncmp(path, deployment->destination, length) == 0 && path[length] == '/';
    buffer_print(names, "%s%s", names->size ? ", " : "", inside ? path + length + 1 : path);
}

static int complain_of(Judgement *judgement, const char *hint, const char *what, Buffer *names, int count)
{
    if (count) complain(judgement, hint, "%s: %s: %s", judgement->deployment->destination, what, buffer_text(names));
    buffer_free(names);
    return count;
}

static void judge_files(Judgement *judgement, char cell[static CELL])
{
    const Survey *survey = judgement->survey;
    const char *hint = launch_host_is_here(survey->host->name) ? "run skycc compile again with the same -o"
                                                               : "run skycc deploy without --check to copy them";
    enum { MISSING, CUT, WRONG, OUTSIDE, KINDS };
    Buffer names[KINDS] = {0};
    int counts[KINDS] = {0};
    for (int f = 0; f < survey->file_count; f++) {
        const SurveyFile *file = &survey->files[f];
        if (file->is_right) continue;
        int kind = file->is_other ? WRONG : file->partial_bytes ? CUT : MISSING;
        counts[kind]++;
        add_name(&names[kind], judgement->deployment, file->there);
    }
    for (size_t f = 0; f < survey->absent_count; f++, counts[OUTSIDE]++)
        add_name(&names[OUTSIDE], judgement->deployment, survey->absent[f]);
    int missing =
        complain_of(judgement, hint, "not there", &names[MISSING], counts[MISSING]) +
        complain_of(judgement, hint, "incomplete, because a transfer was interrupted", &names[CUT], counts[CUT]);
    int other = complain_of(judgement, hint, "wrong content or not executable", &names[WRONG], counts[WRONG]);
    missing +=
        complain_of(judgement, "put the model's file back, or run skycc compile again",
                    "the model's file, from which weights are read, is missing", &names[OUTSIDE], counts[OUTSIDE]);
    if (missing && other)
        snprintf(cell, CELL, "%d missing, %d wrong", missing, other);
    else if (missing || other)
        snprintf(cell, CELL, "%d %s", missing + other, missing ? "missing" : "wrong");
    else
        snprintf(cell, CELL, "ok");
}

static void judge_mpi(Judgement *judgement, const char *mpi, char cell[static CELL])
{
    const char *found = judgement->survey->mpi;
    if (!found)
        complain(judgement, "install mpich, or name another mpiexec in MPIEXEC", "mpiexec.mpich is not installed");
    else if (mpi && strcmp(found, mpi) != 0)
        complain(judgement, "install the same version on all hosts: mpiexec needs it",
                 "MPICH is %s here, but %s where the run is started", found, mpi);
    snprintf(cell, CELL, "%s", found ? found : "none");
}

/* Flags that are wanted and not there. */
static void print_lacking(const char *wanted, const char *flags, Buffer *text)
{
    FREED_WITH(arena_free) Arena arena = {0};
    char *rest = arena_string(&arena, wanted);
    for (char *flag; (flag = strtok_r(rest, " ", &rest));)
        if (!text_has_part(flags, flag, " ")) buffer_print(text, "%s%s", text->size ? " " : "", flag);
}

static void judge_processor(Judgement *judgement, char cell[static CELL])
{
    const Survey *survey = judgement->survey;
    const char *state = "ok";
    for (int r = 0; r < survey->host->rank_count; r++) {
        const DeployRank *rank = &survey->host->ranks[r];
        const DeployProcessor *wanted = &judgement->deployment->list->processors[rank->processor];
        FREED_WITH(buffer_free) Buffer lacking = {0};
        if (*wanted->launch) {
            state = "emulated";
        } else if (strcmp(wanted->architecture, survey->architecture) != 0) {
            complain(judgement, "set the device's target in the cluster file and compile again",
                     "%s is for %s, but this host is %s", rank->program, wanted->architecture, survey->architecture);
            state = "other";
        } else {
            print_lacking(wanted->flags, survey->flags, &lacking);
        }
        if (lacking.size) {
            complain(judgement,
                     "compile with --target-cpu, for example x86-64-v3, or give the device its own target in the "
                     "cluster file",
                     "%s was compiled for %s, but this processor lacks %s", rank->program, wanted->cpu, lacking.bytes);
            state = "lacks features";
        }
    }
    for (size_t l = 0; l < survey->no_launch_count; l++) {
        complain(judgement, NULL, "%s, which must run the programs, is not installed", survey->no_launch[l]);
        state = "no emulator";
    }
    if (*survey->lacks) {
        complain(judgement,
                 "install libmpich12 libjansson4 libgomp1 libzmq5, and ocl-icd-libopencl1 for OpenCL (Debian's names)",
                 "shared libraries are missing: %s", survey->lacks);
        state = "lacks libraries";
    }
    snprintf(cell, CELL, "%s", state);
}

static void judge_memory(Judgement *judgement, char cell[static CELL])
{
    const Survey *survey = judgement->survey;
    char text[2][REPORT_TEXT];
    uint64_t needed = 0;
    for (int r = 0; r < survey->host->rank_count; r++) needed += survey->host->ranks[r].memory_bytes;
    report_bytes((int64_t)needed, text[0]);
    if (survey->memory_bytes == UINT64_MAX) {
        snprintf(cell, CELL, "%s of ?", text[0]);
        return;
    }
    report_bytes((int64_t)survey->memory_bytes, text[1]);
    if (needed > survey->memory_bytes)
        complain(judgement,
                 "end other programs there, or set the device's memory in the cluster file and compile again",
                 "the plan needs %s of memory, but only %s is available", text[0], text[1]);
    snprintf(cell, CELL, "%s of %s", text[0], text[1]);
}

static void judge_room(Judgement *judgement, char cell[static CELL])
{
    const Survey *survey = judgement->survey;
    char text[2][REPORT_TEXT];
    uint64_t needed = survey_missing_bytes(survey);
    if (survey->read_only)
        complain(judgement, "choose another folder with --to", "this user cannot make %s there, or cannot write to it",
                 judgement->deployment->destination);
    if (survey->room_bytes == UINT64_MAX) {
        snprintf(cell, CELL, "?");
        return;
    }
    report_bytes((int64_t)survey->room_bytes, text[1]);
    if (needed > survey->room_bytes)
        complain(judgement, NULL, "%s must be copied, but only %s of disk space is free",
                 report_bytes((int64_t)needed, text[0]), text[1]);
    snprintf(cell, CELL, "%s free", text[1]);
}

static bool listens(const Survey *survey, int port)
{
    for (size_t p = 0; p < survey->port_count; p++)
        if (survey->ports[p] == port) return true;
    return false;
}

/* Every rank listens on a port, and mpiexec on one where it is started. */
static void judge_ports(Judgement *judgement, char cell[static CELL])
{
    const Survey *survey = judgement->survey;
    const DeployList *list = judgement->deployment->list;
    int needed = survey->host->rank_count + 1, free_ports = 0;
    snprintf(cell, CELL, "any");
    if (list->first_port) {
        for (int port = list->first_port; port <= list->last_port; port++) free_ports += !listens(survey, port);
        if (free_ports < needed)
            complain(judgement, "end the programs that use them, or give the cluster file more ports and compile again",
                     "ports %d-%d: %d are free, but %d are needed", list->first_port, list->last_port, free_ports,
                     needed);
        snprintf(cell, CELL, "%d free", free_ports);
    }
    if (list->gateway_port) {
        bool taken = listens(survey, list->gateway_port);
        if (taken)
            complain(judgement, "end the program that listens there; it may be the gateway of another run",
                     "port %d of the site is in use", list->gateway_port);
        snprintf(cell, CELL, "%d %s", list->gateway_port, taken ? "taken" : "free");
    }
}

static void judge_clock(Judgement *judgement, char cell[static CELL])
{
    double least = judgement->survey->clock_least, most = judgement->survey->clock_most;
    double ahead = least > 0 ? least : most < 0 ? most : 0; /* as little as it may be */
    if (ahead > READINESS_CLOCK_S || ahead < -READINESS_CLOCK_S)
        complain(judgement, "set the clock, for example with systemd-timesyncd or chrony",
                 "its clock is %.0f s %s this host's", ahead < 0 ? -ahead : ahead, ahead < 0 ? "behind" : "ahead of");
    snprintf(cell, CELL, "%+.0f s", ahead);
}

enum { COLUMNS = 7 };

static void print_row(const Deployment *deployment, const char *host, char cells[COLUMNS][CELL], Buffer *table)
{
    static const int widths[COLUMNS] = {20, 8, 15, 22, 14, 12, 5};
    int longest = 4;
    for (int h = 0; h < deployment->list->host_count; h++) {
        int length = (int)strlen(deployment->list->hosts[h].name);
        if (length > longest) longest = length;
    }
    text_format(table, "%-*s", longest, host);
    for (int c = 0; c < COLUMNS; c++) text_format(table, "  %-*s", widths[c], cells[c]);
    while (table->bytes[table->size - 1] == ' ') table->bytes[--table->size] = '\0';
    text_format(table, "\n");
}

void readiness_print_head(const Deployment *deployment, Buffer *table)
{
    char cells[COLUMNS][CELL] = {"files", "MPICH", "processor", "memory", "disk", "ports", "clock"};
    print_row(deployment, "host", cells, table);
}

bool readiness_judge(const Survey *survey, const Deployment *deployment, const char *mpi, Buffer *table,
                     Diagnostics *diagnostics)
{
    Judgement judgement = {survey, deployment, diagnostics, true};
    char cells[COLUMNS][CELL] = {"no answer", "", "", "", "", "", ""};
    if (survey->answered) {
        judge_files(&judgement, cells[0]);
        judge_mpi(&judgement, mpi, cells[1]);
        judge_processor(&judgement, cells[2]);
        judge_memory(&judgement, cells[3]);
        judge_room(&judgement, cells[4]);
        judge_ports(&judgement, cells[5]);
        judge_clock(&judgement, cells[6]);
    } else {
        survey_refuse_silence(survey, diagnostics);
        judgement.ok = false;
    }
    print_row(deployment, survey->host->name, cells, table);
    return judgement.ok;
}
