#include "driver/compile/launch_files.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "codegen/kernels/target.h"
#include "codegen/link/launch.h"
#include "codegen/link/link.h"
#include "driver/compile/deploy_needs.h"
#include "driver/compile/site_tensors.h"

/* The largest tensor that one rank may have to send to another. */
static uint64_t largest_message(const StagePrograms *pipeline)
{
    uint64_t largest = 0;
    for (size_t s = 0; s < pipeline->stage_count; s++) {
        const SkyStage *stage = &pipeline->stages[s].stage;
        for (uint32_t i = 0; i < stage->send_forward_count; i++)
            if (stage->send_forward[i].bytes > largest) largest = stage->send_forward[i].bytes;
        for (uint32_t i = 0; i < stage->send_backward_count; i++)
            if (stage->send_backward[i].bytes > largest) largest = stage->send_backward[i].bytes;
        for (uint32_t i = 0; i < stage->parameter_count; i++) /* gradients of shared parameters are summed */
            if (stage->parameters[i].use_count && stage->parameters[i].value.bytes > largest)
                largest = stage->parameters[i].value.bytes;
    }
    return largest;
}

/* A hash of what must be the same for sites to train together, and of who they are. */
static void add_run(const StagePrograms *pipeline, JsonWriter *json)
{
    const SkyProgram *program = &pipeline->programs[0];
    char hash[33];
    Buffer run = {0};
    buffer_print(&run, "%u %s %s %s %s %s %llu", program->version, program->model_hash, program->plan_hash,
                 program->recipe_hash, program->weights_hash, program->low_rank, (unsigned long long)program->seed);
    for (size_t s = 0; s < pipeline->site_count; s++) {
        const ClusterSite *site = pipeline->sites[s];
        buffer_print(&run, "\n%s %s %s", site->name, site->key, site->address ? site->address : "");
    }
    json_add_string(json, "run", hash_format(hash_bytes(run.bytes, run.size), hash));
    buffer_free(&run);
}

static void print_site_file(const StagePrograms *pipeline, const Plan *plan, size_t site, Buffer *text)
{
    JsonWriter json = {.buffer = text};
    json_open(&json, NULL, '{');
    json_add_string(&json, "format", "skycc.site/1");
    add_run(pipeline, json_break(&json, "\n "));
    json_add_string(json_break(&json, "\n "), "site", pipeline->sites[site]->name);
    json_open(json_break(&json, "\n "), "sites", '[');
    for (size_t s = 0; s < pipeline->site_count; s++) {
        json_open(json_break(&json, "\n  "), NULL, '{');
        json_add_string(&json, "name", pipeline->sites[s]->name);
        json_add_string(&json, "address", pipeline->sites[s]->address);
        json_add_string(&json, "key", pipeline->sites[s]->key);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_open(json_break(&json, "\n "), "rank_sites", '[');
    for (size_t r = 0; r < pipeline->rank_count; r++) json_add_integer(&json, NULL, pipeline->rank_sites[r]);
    json_close(&json, ']');
    json_add_integer(json_break(&json, "\n "), "largest_message_bytes", (int64_t)largest_message(pipeline));
    site_tensors_add(pipeline, plan, &json);
    json_close(&json, '}');
    buffer_print(text, "\n");
}

static bool write_site_file(const StagePrograms *pipeline, const Plan *plan, size_t site, const char *path,
                            Diagnostics *diagnostics)
{
    Buffer text = {0};
    print_site_file(pipeline, plan, site, &text);
    bool ok = file_write_all(path, text.bytes, text.size, diagnostics);
    buffer_free(&text);
    return ok;
}

/* The gateway runs where `train` does: on the host of the site's first rank. */
static bool add_gateway(const StagePrograms *pipeline, const Cluster *cluster, size_t rank, const char *path,
                        Diagnostics *diagnostics)
{
    const ClusterTarget *target = &cluster->targets[stage_programs_device(pipeline, cluster, rank)->target];
    return link_beside("gateway", path, &(LinkOptions){.runtime = target->runtime}, diagnostics);
}

/* Writes the launch files for the ranks in `members`, which share a folder. */
static bool make_folder(const StagePrograms *pipeline, const Plan *plan, const Cluster *cluster, const size_t *members,
                        size_t count, const char *directory, Diagnostics *diagnostics)
{
    Arena arena = {0};
    LaunchRank *ranks = arena_new_array(&arena, LaunchRank, count);
    const char *folder = stage_programs_folder(pipeline, &arena, directory, members[0]);
    size_t site = pipeline->rank_sites[members[0]];
    bool among_others = pipeline->site_count > 1;
    for (size_t i = 0; i < count; i++) {
        const ClusterDevice *device = stage_programs_device(pipeline, cluster, members[i]);
        ranks[i] = (LaunchRank){.program = arena_format(&arena, "stage-%02zu", members[i]),
                                .host = device->host,
                                .threads = device->threads,
                                .prefix = cluster->targets[device->target].launch};
    }
    LaunchPlan launch = {.ranks = ranks,
                         .rank_count = (int)count,
                         .site = among_others ? pipeline->sites[site]->name : NULL,
                         .network = cluster->network};
    bool ok = launch_files_write(&launch, folder, diagnostics);
    if (ok && among_others)
        ok = write_site_file(pipeline, plan, site, arena_format(&arena, "%s/site.json", folder), diagnostics) &&
             add_gateway(pipeline, cluster, members[0], arena_format(&arena, "%s/gateway", folder), diagnostics);
    ok = ok && deploy_needs_write(pipeline, cluster, members, count, folder, diagnostics);
    arena_free(&arena);
    return ok;
}

bool launch_files_make(const StagePrograms *pipeline, const Plan *plan, const Cluster *cluster, const char *directory,
                       Diagnostics *diagnostics)
{
    size_t folders = pipeline->in_folders ? pipeline->site_count : 1;
    size_t *members = memory_allocate(pipeline->rank_count * sizeof *members);
    bool ok = true;
    for (size_t f = 0; f < folders && ok; f++) {
        size_t count = 0;
        for (size_t r = 0; r < pipeline->rank_count; r++)
            if (pipeline->rank_sites[r] == f) members[count++] = r;
        ok = make_folder(pipeline, plan, cluster, members, count, directory, diagnostics);
    }
    free(members);
    return ok;
}
