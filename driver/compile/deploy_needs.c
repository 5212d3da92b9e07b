#include "driver/compile/deploy_needs.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "codegen/link/launch.h"
#include "driver/deploy/deploy_list.h"

typedef struct Needs {
    const StagePrograms *pipeline;
    const Cluster *cluster;
    const size_t *members; /* ranks */
    size_t member_count;
    const char *folder;
    Diagnostics *diagnostics;
    DeployList list;
    size_t file_capacity, processor_capacity;
} Needs;

static const ClusterDevice *device_of(const Needs *needs, size_t rank)
{
    return stage_programs_device(needs->pipeline, needs->cluster, rank);
}

/* The index of the file in the list; -1 after an error. */
static int add_file(Needs *needs, const char *name, bool executable)
{
    DeployList *list = &needs->list;
    for (int f = 0; f < list->file_count; f++)
        if (strcmp(list->files[f].name, name) == 0) return f;
    DeployFile file = {.name = arena_string(&list->arena, name), .executable = executable};
    const char *path = arena_format(&list->arena, "%s/%s", needs->folder, name);
    if (!sha256_file(path, &file.sha256, &file.bytes, needs->diagnostics)) return -1;
    size_t count = (size_t)list->file_count;
    array_push(list->files, count, needs->file_capacity, file);
    list->file_count = (int)count;
    return list->file_count - 1;
}

static int add_processor(Needs *needs, size_t rank)
{
    DeployList *list = &needs->list;
    int target = device_of(needs, rank)->target;
    const StageTarget *compiled = &needs->pipeline->targets[target];
    DeployProcessor processor = {compiled->architecture, compiled->cpu, compiled->flags,
                                 needs->cluster->targets[target].launch};
    for (int p = 0; p < list->processor_count; p++) {
        const DeployProcessor *known = &list->processors[p];
        if (strcmp(known->architecture, processor.architecture) == 0 && strcmp(known->cpu, processor.cpu) == 0 &&
            strcmp(known->flags, processor.flags) == 0 && strcmp(known->launch, processor.launch) == 0)
            return p;
    }
    size_t count = (size_t)list->processor_count;
    array_push(list->processors, count, needs->processor_capacity, processor);
    list->processor_count = (int)count;
    return list->processor_count - 1;
}

static uint64_t memory_of(const Needs *needs, size_t rank)
{
    const SkyProgram *program = &needs->pipeline->programs[rank];
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < program->stage_count; s++)
        bytes += stage_bytes(&program->stages[s], program->stages[s].slot_count, program->threads);
    return bytes;
}

static bool host_add_file(Needs *needs, DeployHost *host, const char *name, bool executable)
{
    int file = add_file(needs, name, executable);
    for (int f = 0; f < host->file_count; f++)
        if (host->files[f] == file) return file >= 0;
    if (file >= 0) host->files[host->file_count++] = file;
    return file >= 0;
}

/* Weights are in the stage's own file, or in the model's, whose name is relative to the folder. */
static bool host_add_weights(Needs *needs, DeployHost *host, const char *name)
{
    if (!strchr(name, '/')) return host_add_file(needs, host, name, false);
    for (int f = 0; f < host->outside_count; f++)
        if (strcmp(host->outside[f], name) == 0) return true;
    const char **outside = arena_new_array(&needs->list.arena, const char *, (size_t)host->outside_count + 1);
    for (int f = 0; f < host->outside_count; f++) outside[f] = host->outside[f];
    outside[host->outside_count++] = name;
    host->outside = outside;
    return true;
}

static bool host_add_rank(Needs *needs, DeployHost *host, size_t rank)
{
    const SkyProgram *program = &needs->pipeline->programs[rank];
    const char *name = arena_format(&needs->list.arena, "stage-%02zu", rank), *last = NULL;
    host->ranks[host->rank_count++] =
        (DeployRank){(int)rank, program->device_name, name, add_processor(needs, rank), memory_of(needs, rank)};
    bool ok = host_add_file(needs, host, name, true);
    for (uint32_t s = 0; s < program->stage_count && ok; s++)
        for (uint32_t i = 0; i < program->stages[s].parameter_count && ok; i++) {
            const char *file = program->stages[s].parameters[i].initial_file;
            if (!file || (last && strcmp(file, last) == 0)) continue;
            ok = host_add_weights(needs, host, last = file);
        }
    return ok;
}

/* The launchers and, if there are several sites, the gateway with its file. */
static bool host_add_launchers(Needs *needs, DeployHost *host)
{
    bool ok = host_add_file(needs, host, "train", true) && host_add_file(needs, host, "run.mpi", false) &&
              host_add_file(needs, host, "run.conf", false) && host_add_file(needs, host, "run.sbatch", true);
    if (ok && needs->pipeline->site_count > 1)
        ok = host_add_file(needs, host, "gateway", true) && host_add_file(needs, host, "site.json", false);
    return ok;
}

static size_t most_files(const Needs *needs)
{
    size_t count = 6; /* of launching */
    for (size_t m = 0; m < needs->member_count; m++)
        count += 1 + needs->pipeline->programs[needs->members[m]].stage_count;
    return count;
}

static DeployHost *find_host(Needs *needs, const char *name)
{
    DeployList *list = &needs->list;
    for (int h = 0; h < list->host_count; h++)
        if (strcmp(list->hosts[h].name, name) == 0) return &list->hosts[h];
    DeployHost *host = &list->hosts[list->host_count++];
    *host = (DeployHost){.name = name,
                         .ranks = arena_new_array(&list->arena, DeployRank, needs->member_count),
                         .files = arena_new_array(&list->arena, int, most_files(needs))};
    return host;
}

static bool collect(Needs *needs)
{
    DeployList *list = &needs->list;
    const ClusterSite *site =
        needs->pipeline->site_count > 1 ? needs->pipeline->sites[needs->pipeline->rank_sites[needs->members[0]]] : NULL;
    const char *port = site && site->address ? strrchr(site->address, ':') : NULL;
    list->first_port = needs->cluster->network.first_port;
    list->last_port = needs->cluster->network.last_port;
    list->gateway_port = port ? atoi(port + 1) : 0;
    list->hosts = arena_new_array(&list->arena, DeployHost, needs->member_count);
    bool ok = true;
    for (size_t m = 0; m < needs->member_count && ok; m++)
        ok = host_add_rank(needs, find_host(needs, device_of(needs, needs->members[m])->host), needs->members[m]);
    for (int h = 0; h < list->host_count && ok; h++) ok = host_add_launchers(needs, &list->hosts[h]);
    return ok;
}

bool deploy_needs_write(const StagePrograms *pipeline, const Cluster *cluster, const size_t *members, size_t count,
                        const char *folder, Diagnostics *diagnostics)
{
    Needs needs = {.pipeline = pipeline,
                   .cluster = cluster,
                   .members = members,
                   .member_count = count,
                   .folder = folder,
                   .diagnostics = diagnostics};
    Buffer text = {0};
    bool ok = collect(&needs);
    if (ok) {
        deploy_list_print(&needs.list, &text);
        ok = file_write_all(arena_format(&needs.list.arena, "%s/" DEPLOY_LIST_FILE, folder), text.bytes, text.size,
                            diagnostics);
    }
    buffer_free(&text);
    free(needs.list.files);
    free(needs.list.processors);
    arena_free(&needs.list.arena);
    return ok;
}
