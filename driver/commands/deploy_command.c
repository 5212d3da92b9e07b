/* skycc deploy: copies to the hosts of a plan what they need, or lists what they lack. */
#include <dirent.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "codegen/link/launch.h"
#include "driver/commands/commands.h"
#include "driver/deploy/collect.h"
#include "driver/deploy/copy.h"
#include "driver/deploy/readiness.h"
#include "partitioner/report/report.h"
#include "runtime/program/parallel.h"

enum { SIDE_BY_SIDE = 8 }; /* hosts in parallel; they share this host's network link */

typedef struct Deploy {
    const Options *options;
    Arena arena;
    DeployList list;
    Deployment deployment;
    Survey *surveys; /* [host] */
    CopyResult *results;
    Diagnostics *said; /* [host] */
    atomic_int next;   /* host to be served */
} Deploy;

/* A directory with one folder per site is refused with the name of one of them. NULL: it has none. */
static const char *sites_in(Deploy *deploy, const char *directory)
{
    const char *sites = NULL;
    DIR *folder = opendir(directory);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *path = arena_format(&deploy->arena, "%s/%s", directory, entry->d_name);
        if (access(arena_format(&deploy->arena, "%s/" DEPLOY_LIST_FILE, path), F_OK) != 0) continue;
        if (!sites || strcmp(path, sites) < 0) sites = path; /* the first by name */
    }
    if (folder) closedir(folder);
    return sites;
}

static bool find_list(Deploy *deploy, const char *directory, Diagnostics *diagnostics)
{
    if (access(arena_format(&deploy->arena, "%s/" DEPLOY_LIST_FILE, directory), F_OK) == 0)
        return deploy_list_read(&deploy->list, directory, diagnostics);
    const char *site = sites_in(deploy, directory);
    if (site)
        return input_error(diagnostics, directory,
                           arena_format(&deploy->arena, "name the folder of one site, such as skycc deploy %s", site),
                           "holds a folder for every site");
    return input_error(diagnostics, directory, "give a directory that skycc compile -o DIR made",
                       "there is no " DEPLOY_LIST_FILE);
}

static char *absolute_path(Deploy *deploy, const char *path, Diagnostics *diagnostics)
{
    char *real = realpath(path, NULL), *kept = real ? arena_string(&deploy->arena, real) : NULL;
    if (!real) file_error(diagnostics, path, "cannot open");
    free(real);
    return kept;
}

static bool has_rank_here(const DeployList *list)
{
    for (int h = 0; h < list->host_count; h++)
        if (launch_host_is_here(list->hosts[h].name)) return true;
    return false;
}

/* mpiexec starts ranks by the same path on all hosts. */
static bool set_destination(Deploy *deploy, Diagnostics *diagnostics)
{
    Deployment *deployment = &deploy->deployment;
    const char *to = deploy->options->destination;
    deployment->destination = deployment->directory;
    if (!to) return true;
    if (*to != '/' || !to[strspn(to, "/")])
        return diagnostics_error(diagnostics, EXIT_USAGE, (Place){.object = "--to"}, NULL,
                                 "'%s' is not the absolute path of a folder", to);
    char *path = arena_string(&deploy->arena, to);
    for (size_t length = strlen(path); path[length - 1] == '/';) path[--length] = '\0';
    if (has_rank_here(deployment->list) && strcmp(path, deployment->directory) != 0)
        return diagnostics_error(diagnostics, EXIT_USAGE, (Place){.object = "--to"},
                                 "give the device on localhost a host name in the cluster file, or leave --to out",
                                 "one rank runs on localhost in %s, and mpiexec starts all ranks by the same path",
                                 deployment->directory);
    deployment->destination = path;
    return true;
}

/* Data go next to the programs, and replace none of them. */
static bool is_of_the_run(const DeployList *list, const char *name)
{
    for (int f = 0; f < list->file_count; f++)
        if (strcmp(list->files[f].name, name) == 0) return true;
    return false;
}

static bool set_data(Deploy *deploy, Diagnostics *diagnostics)
{
    DeployData *data = &deploy->deployment.data;
    if (!deploy->options->data) return true;
    data->path = absolute_path(deploy, deploy->options->data, diagnostics);
    if (!data->path || !sha256_file(data->path, &data->file.sha256, &data->file.bytes, diagnostics)) return false;
    data->file.name = strrchr(data->path, '/') + 1;
    data->there = deploy->options->destination
                      ? arena_format(&deploy->arena, "%s/%s", deploy->deployment.destination, data->file.name)
                      : data->path;
    return !deploy->options->destination || !is_of_the_run(&deploy->list, data->file.name) ||
           diagnostics_error(diagnostics, EXIT_USAGE, (Place){.object = "--data"}, "rename the file",
                             "'%s' is the name of a file of the run in %s", data->file.name,
                             deploy->deployment.destination);
}

static bool prepare(Deploy *deploy, Diagnostics *diagnostics)
{
    Deployment *deployment = &deploy->deployment;
    if (!find_list(deploy, deploy->options->folder, diagnostics)) return false;
    deployment->list = &deploy->list;
    deployment->directory = absolute_path(deploy, deploy->options->folder, diagnostics);
    size_t count = (size_t)deploy->list.host_count;
    deploy->surveys = arena_new_array(&deploy->arena, Survey, count);
    deploy->results = arena_new_array(&deploy->arena, CopyResult, count);
    deploy->said = arena_new_array(&deploy->arena, Diagnostics, count);
    return deployment->directory && set_destination(deploy, diagnostics) && set_data(deploy, diagnostics) &&
           (deploy->options->check || copy_check_here(deployment, diagnostics));
}

static void serve(Deploy *deploy, int host)
{
    const DeployHost *to = &deploy->list.hosts[host];
    Survey *survey = &deploy->surveys[host];
    bool copies = !deploy->options->check;
    if (copies && launch_host_is_here(to->name)) return;
    if (survey_take(survey, &deploy->deployment, to, &deploy->said[host]) && copies)
        copy_to_host(survey, &deploy->deployment, &deploy->results[host], &deploy->said[host]);
}

static void serve_queued(void *context, int thread, int threads)
{
    (void)thread, (void)threads;
    Deploy *deploy = context;
    for (int host; (host = atomic_fetch_add(&deploy->next, 1)) < deploy->list.host_count;) serve(deploy, host);
}

static void serve_all(Deploy *deploy, Diagnostics *diagnostics)
{
    int count = deploy->list.host_count;
    parallel_run(count < SIDE_BY_SIDE ? count : SIDE_BY_SIDE, serve_queued, deploy);
    for (int h = 0; h < count; h++) {
        diagnostics_append(diagnostics, &deploy->said[h]);
        diagnostics_free(&deploy->said[h]);
    }
}

/* ---- What is said ---- */

static void tell_copies(const Deploy *deploy)
{
    char bytes[REPORT_TEXT];
    for (int h = 0; h < deploy->list.host_count; h++) {
        const Survey *survey = &deploy->surveys[h];
        const CopyResult *result = &deploy->results[h];
        int there = 0;
        for (int f = 0; f < survey->file_count; f++) there += survey->files[f].is_right;
        if (launch_host_is_here(deploy->list.hosts[h].name))
            text_print(stdout, "%s: this host, nothing to copy\n", deploy->list.hosts[h].name);
        else if (survey->answered)
            text_print(stdout, "%s: %d files sent, %s; %d were there\n", deploy->list.hosts[h].name, result->sent,
                       report_bytes((int64_t)result->bytes, bytes), there);
    }
}

static void tell_start(const Deploy *deploy)
{
    const Deployment *deployment = &deploy->deployment;
    FREED_WITH(buffer_free) Buffer line = {0}, train = {0};
    buffer_print(&train, "%s/train", deployment->destination);
    text_append_word(&line, train.bytes);
    buffer_print(&line, " --data ");
    text_append_word(&line, deployment->data.path ? deployment->data.there : "DATA");
    bool elsewhere = strcmp(deployment->destination, deployment->directory) != 0;
    if (elsewhere) text_print(stdout, "on %s: ", deploy->list.hosts[0].name);
    printf("%s\n", line.bytes);
}

/* All hosts should have the MPICH version of this host, or of the first host if the run is started there. */
static bool judge_all(Deploy *deploy, Diagnostics *diagnostics)
{
    const Deployment *deployment = &deploy->deployment;
    FREED_WITH(buffer_free) Buffer table = {0};
    bool ok = true;
    const char *mpi = deploy->options->destination ? NULL : survey_own_mpi(&deploy->arena, diagnostics);
    for (int h = 0; h < deploy->list.host_count && !mpi; h++) mpi = deploy->surveys[h].mpi;
    readiness_print_head(deployment, &table);
    for (int h = 0; h < deploy->list.host_count; h++)
        ok &= readiness_judge(&deploy->surveys[h], deployment, mpi, &table, diagnostics);
    if (!deploy->options->quiet) fputs(buffer_text(&table), stdout);
    return ok;
}

static bool collect_all(Deploy *deploy, Diagnostics *diagnostics)
{
    if (deploy->options->check || deploy->options->data || deploy->options->destination)
        return usage_error(diagnostics, "give --collect alone", "--collect copies from the hosts, not to them");
    const char *folder = absolute_path(deploy, deploy->options->collected, diagnostics);
    if (!folder || !find_list(deploy, deploy->options->folder, diagnostics)) return false;
    remote_begin(&deploy->deployment.remote, deploy->options->ssh);
    for (int h = 0; h < deploy->list.host_count; h++) {
        const char *host = deploy->list.hosts[h].name;
        if (launch_host_is_here(host)) continue;
        bool ok = collect_from_host(&deploy->deployment.remote, host, folder, diagnostics);
        if (ok && !deploy->options->quiet) text_print(stdout, "%s: %s is collected\n", host, folder);
    }
    remote_end(&deploy->deployment.remote);
    return diagnostics->errors == 0;
}

static bool deploy_all(Deploy *deploy, Diagnostics *diagnostics)
{
    if (deploy->options->collected) return collect_all(deploy, diagnostics);
    if (!prepare(deploy, diagnostics)) return false;
    remote_begin(&deploy->deployment.remote, deploy->options->ssh);
    serve_all(deploy, diagnostics);
    remote_end(&deploy->deployment.remote);
    if (deploy->options->check) return judge_all(deploy, diagnostics) && diagnostics->errors == 0;
    if (!deploy->options->quiet) tell_copies(deploy);
    if (!deploy->options->quiet && diagnostics->errors == 0) tell_start(deploy);
    return diagnostics->errors == 0;
}

bool deploy_command(const Options *options, Diagnostics *diagnostics)
{
    Deploy deploy = {.options = options};
    bool ok = deploy_all(&deploy, diagnostics);
    for (int h = 0; deploy.surveys && h < deploy.list.host_count; h++) survey_free(&deploy.surveys[h]);
    deploy_list_free(&deploy.list);
    arena_free(&deploy.arena);
    return ok;
}
