#include "driver/compile/launch_files.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "base/parts.h"
#include "codegen/link/launch.h"
#include "codegen/link/link.h"
#include "driver/compile/stage_programs.h"
#include "driver/deploy/deploy_list.h"
#include "partitioner/site_crossings.h"
#include "runtime/program/message_tags.h"

/* deploy.json: what each host of a plan needs, for skycc deploy. */

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
        bytes += stage_bytes(&program->stages[s], program->stages[s].slot_count,
                             program->device_blocks ? program->device_blocks : program->threads);
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
    if (word_index(name, host->outside, (size_t)host->outside_count) >= 0) return true;
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

/* Writes it into `folder`, next to the programs and launch files of the ranks in `members`. */
static bool deploy_needs_write(const StagePrograms *pipeline, const Cluster *cluster, const size_t *members,
                               size_t count, const char *folder, Diagnostics *diagnostics)
{
    Needs needs = {.pipeline = pipeline,
                   .cluster = cluster,
                   .members = members,
                   .member_count = count,
                   .folder = folder,
                   .diagnostics = diagnostics};
    FREED_WITH(buffer_free) Buffer text = {0};
    bool ok = collect(&needs);
    if (ok) {
        deploy_list_print(&needs.list, &text);
        ok = file_write_all(arena_format(&needs.list.arena, "%s/" DEPLOY_LIST_FILE, folder), text.bytes, text.size,
                            diagnostics);
    }
    free(needs.list.files);
    free(needs.list.processors);
    arena_free(&needs.list.arena);
    return ok;
}

/* Maps messages between sites to the tensors in the plan, so that gateways can count them. */

typedef struct Listing {
    const StagePrograms *pipeline;
    const Plan *plan;
    MessageTags tags;
    JsonWriter *json;
    bool *taken; /* per crossing of the plan */
} Listing;

static void list(Listing *x, const PlanSiteCrossing *crossing, int from, int to, int64_t tag, int64_t tags)
{
    JsonWriter *json = x->json;
    json_open(json_break(json, "\n  "), NULL, '{');
    json_add_string(json, "tensor", crossing->tensor.name);
    json_add_string(json, "kind", site_crossing_kind_name(crossing->kind));
    if (crossing->from_stage >= 0) json_add_integer(json, "from_stage", crossing->from_stage);
    if (crossing->to_stage >= 0) json_add_integer(json, "to_stage", crossing->to_stage);
    json_add_integer(json, "from", from);
    json_add_integer(json, "to", to);
    json_add_integer(json, "tag", tag);
    json_add_integer(json, "tags", tags);
    json_close(json, '}');
}

/* ---- Between stages ---- */

static bool is_coded(const PlanSiteCrossing *crossing) { return crossing->wire_bytes != crossing->tensor.bytes; }

/* The plan lists the model's values. A stage sends coded values after the others; both kinds keep their order. */
static const PlanSiteCrossing *find_crossing(Listing *x, int from_stage, int to_stage, const SkyTensor *tensor)
{
    for (int i = 0; i < x->plan->site_crossing_count; i++) {
        const PlanSiteCrossing *crossing = &x->plan->site_crossings[i];
        bool same_dtype = crossing->tensor.dtype == (DType)tensor->dtype;
        if (x->taken[i] || crossing->kind > PLAN_CROSSING_GRADIENT || crossing->from_stage != from_stage ||
            crossing->to_stage != to_stage || crossing->wire_bytes != (int64_t)tensor->bytes ||
            same_dtype == is_coded(crossing))
            continue;
        x->taken[i] = true;
        return crossing;
    }
    bug("stage %d sends stage %d a tensor that the plan does not list", from_stage, to_stage);
}

static void list_boundary(Listing *x, int k, bool backward)
{
    int from = backward ? k + 1 : k, to = backward ? k : k + 1;
    int from_rank = x->plan->stages[from].rank, to_rank = x->plan->stages[to].rank;
    const SkyStage *stage = &x->pipeline->stages[from].stage;
    const SkyTensor *tensors = backward ? stage->send_backward : stage->send_forward;
    uint32_t count = backward ? stage->send_backward_count : stage->send_forward_count;
    for (uint32_t t = 0; t < count; t++)
        list(x, find_crossing(x, from, to, &tensors[t]), from_rank, to_rank,
             message_tag_of_tensor(&x->tags, (uint32_t)k, backward, t), x->tags.microbatches);
}

/* ---- Gradients of parameters that several ranks use ---- */

/* The rank's copy of the parameter that "gradient of ..." names; NULL: it has none. */
static const SkyParameter *find_use(const SkyProgram *program, const char *gradient)
{
    static const char prefix[] = "gradient of ";
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t p = 0; p < program->stages[s].parameter_count; p++) {
            const SkyParameter *parameter = &program->stages[s].parameters[p];
            if (parameter->use_count && strcmp(parameter->value.name, gradient + sizeof prefix - 1) == 0)
                return parameter;
        }
    return NULL;
}

static void list_shared(Listing *x, const PlanSiteCrossing *crossing)
{
    const StagePrograms *pipeline = x->pipeline;
    for (size_t a = 0; a < pipeline->rank_count; a++)
        for (size_t b = 0; b < pipeline->rank_count; b++) {
            const SkyParameter *parameter = find_use(&pipeline->programs[a], crossing->tensor.name);
            if (strcmp(pipeline->sites[pipeline->rank_sites[a]]->name, crossing->from_site) == 0 &&
                strcmp(pipeline->sites[pipeline->rank_sites[b]]->name, crossing->to_site) == 0 && parameter &&
                find_use(&pipeline->programs[b], crossing->tensor.name))
                list(x, crossing, (int)a, (int)b, message_tag_of_parameter(&x->tags, parameter->global_index, false),
                     2);
        }
}

/* The members "plan" and "tensors" of site.json (runtime/wire/site_file.h). */
static void site_tensors_add(const StagePrograms *pipeline, const Plan *plan, JsonWriter *json)
{
    uint32_t most = 1;
    for (size_t r = 0; r < pipeline->rank_count; r++) {
        uint32_t tensors = message_most_tensors(&pipeline->programs[r]);
        if (tensors > most) most = tensors;
    }
    Listing x = {.pipeline = pipeline,
                 .plan = plan,
                 .tags = message_tags(&pipeline->programs[0], most),
                 .json = json,
                 .taken = memory_allocate((size_t)plan->site_crossing_count + 1)};
    json_add_string(json_break(json, "\n "), "plan", pipeline->programs[0].plan_hash);
    json_open(json_break(json, "\n "), "tensors", '[');
    for (int k = 0; k + 1 < plan->stage_count; k++)
        for (int backward = 0; backward < 2; backward++)
            if (pipeline->rank_sites[plan->stages[k].rank] != pipeline->rank_sites[plan->stages[k + 1].rank])
                list_boundary(&x, k, backward);
    for (int i = 0; i < plan->site_crossing_count; i++)
        if (plan->site_crossings[i].kind == PLAN_CROSSING_SHARED) list_shared(&x, &plan->site_crossings[i]);
    json_close(json, ']');
    free(x.taken);
}

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
    FREED_WITH(buffer_free) Buffer run = {0};
    buffer_print(&run, "%u %s %s %s %s %s %llu", program->version, program->model_hash, program->plan_hash,
                 program->recipe_hash, program->weights_hash, program->low_rank, (unsigned long long)program->seed);
    for (size_t s = 0; s < pipeline->site_count; s++) {
        const ClusterSite *site = pipeline->sites[s];
        buffer_print(&run, "\n%s %s %s", site->name, site->key, site->address ? site->address : "");
    }
    json_add_string(json, "run", hash_format(hash_bytes(run.bytes, run.size), hash));
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
    FREED_WITH(buffer_free) Buffer text = {0};
    print_site_file(pipeline, plan, site, &text);
    return file_write_all(path, text.bytes, text.size, diagnostics);
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
    FREED_WITH(arena_free) Arena arena = {0};
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
    return ok && deploy_needs_write(pipeline, cluster, members, count, folder, diagnostics);
}

bool launch_files_make(const StagePrograms *pipeline, const Plan *plan, const Cluster *cluster, const char *directory,
                       Diagnostics *diagnostics)
{
    size_t folders = pipeline->in_folders ? pipeline->site_count : 1;
    FREED size_t *members = memory_allocate(pipeline->rank_count * sizeof *members);
    bool ok = true;
    for (size_t f = 0; f < folders && ok; f++) {
        size_t count = 0;
        for (size_t r = 0; r < pipeline->rank_count; r++)
            if (pipeline->rank_sites[r] == f) members[count++] = r;
        ok = make_folder(pipeline, plan, cluster, members, count, directory, diagnostics);
    }
    return ok;
}
