#include "driver/compile/stage_programs.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "codegen/link/launch.h"
#include "driver/compile/local_program.h"
#include "driver/compile/plan_codecs.h"
#include "driver/compile/recipe.h"
#include "partitioner/replicas.h"

/* The sites that have ranks. */
static void find_sites(StagePrograms *pipeline, const Plan *plan, const Cluster *cluster)
{
    Arena *arena = &pipeline->arena;
    pipeline->in_folders = cluster->site_count > 1;
    pipeline->rank_sites = arena_new_array(arena, uint32_t, (size_t)plan->rank_count);
    pipeline->sites = arena_new_array(arena, const ClusterSite *, (size_t)cluster->site_count);
    for (int s = 0; s < cluster->site_count && pipeline->in_folders; s++) {
        bool used = false;
        for (int r = 0; r < plan->rank_count; r++) {
            if (cluster->devices[cluster_find_device(cluster, plan->ranks[r].device)].site != s) continue;
            pipeline->rank_sites[r] = (uint32_t)pipeline->site_count;
            used = true;
        }
        if (used) pipeline->sites[pipeline->site_count++] = &cluster->sites[s];
    }
}

const char *stage_programs_folder(const StagePrograms *pipeline, Arena *arena, const char *directory, size_t rank)
{
    if (!pipeline->in_folders) return directory;
    return arena_format(arena, "%s/%s", directory, pipeline->sites[pipeline->rank_sites[rank]]->name);
}

static bool make_folders(StagePrograms *pipeline, const char *directory, Diagnostics *diagnostics)
{
    for (size_t s = 0; s < pipeline->site_count; s++) {
        const char *path = arena_format(&pipeline->arena, "%s/%s", directory, pipeline->sites[s]->name);
        if (mkdir(path, 0777) != 0) return file_error(diagnostics, path, "cannot create");
    }
    return true;
}

/* With a single site, MPI reaches all ranks. */
static void set_sites(StagePrograms *pipeline)
{
    if (pipeline->site_count < 2) return;
    const char **names = arena_new_array(&pipeline->arena, const char *, pipeline->site_count);
    for (size_t s = 0; s < pipeline->site_count; s++)
        names[s] = arena_string(&pipeline->arena, pipeline->sites[s]->name);
    for (size_t r = 0; r < pipeline->rank_count; r++) {
        SkyProgram *program = &pipeline->programs[r];
        program->site = pipeline->rank_sites[r];
        program->site_count = (uint32_t)pipeline->site_count;
        program->site_names = names;
        program->rank_sites = pipeline->rank_sites;
    }
}

static SkyInstruction instruction_of(const PlanInstruction *from)
{
    return (SkyInstruction){.op = from->op,
                            .stage = (uint32_t)from->stage,
                            .microbatch = from->microbatch < 0 ? 0 : (uint32_t)from->microbatch,
                            .slot = from->slot < 0 ? 0 : (uint32_t)from->slot};
}

/* Checks the laid-out memory of all stages of a rank against the plan. Replicas code at each other's cuts, too, which
 * plans do not count. */
static bool check_memory(const StagePrograms *pipeline, const Plan *plan, const Cluster *cluster,
                         Diagnostics *diagnostics)
{
    for (int r = 0; r < plan->rank_count; r++) {
        uint64_t bytes = 0, counted = 0, limit = (uint64_t)plan->stages[plan->ranks[r].stages[0]].memory_limit_bytes;
        for (int k = 0; k < plan->ranks[r].stage_count; k++) {
            const SkyStage *stage = &pipeline->stages[plan->ranks[r].stages[k]].stage;
            int device = cluster_find_device(cluster, plan->ranks[r].device);
            bytes += stage_bytes(stage, stage->slot_count, (uint32_t)cluster_blocks(&cluster->devices[device]));
            counted += (uint64_t)plan->stages[plan->ranks[r].stages[k]].memory_bytes;
        }
        if (limit == COSTS_NO_LIMIT || bytes <= limit) continue;
        if (codecs_of_sums(plan->codecs) == CODEC_NONE || plan->replica_count < 2)
            bug("rank %d needs %llu bytes, but the plan counted %llu", r, (unsigned long long)bytes,
                (unsigned long long)counted);
        return diagnostics_error(diagnostics, EXIT_NO_PLAN, PLACE_NONE, "give --codec lossless, or fewer replicas",
                                 "'%s' has no memory for the codecs at the cuts of other replicas",
                                 plan->ranks[r].device);
    }
    return true;
}

static bool build_stages(StagePrograms *pipeline, TrainingModel *model, const Plan *plan, const Cluster *cluster,
                         const WeightOptions *weights, Diagnostics *diagnostics)
{
    pipeline->stage_count = (size_t)plan->stage_count;
    pipeline->stages = arena_new_array(&pipeline->arena, StageCode, pipeline->stage_count);
    StageIndex *index = stage_index_create(&model->graph, model->precision);
    bool ok = true;
    for (int s = 0; s < plan->stage_count; s++) {
        const PlanStage *planned = &plan->stages[s];
        StageCode *code = &pipeline->stages[s];
        StageForm form = planned->recompute                ? STAGE_RECOMPUTE
                         : planned->weight_gradient_ns > 0 ? STAGE_SPLIT
                                                           : STAGE_PLAIN;
        stage_build_indexed(code, index, planned->first_layer, planned->last_layer, form);
        code->stage.index = (uint32_t)s;
        code->stage.slot_count = (uint32_t)planned->in_flight;
        if (!weights) continue;
        WeightOptions here = *weights;
        const char *name = plan->ranks[planned->rank].device;
        const ClusterDevice *device = &cluster->devices[cluster_find_device(cluster, name)];
        here.alone = weights->alone || pipeline->in_folders || !launch_host_is_here(device->host);
        here.directory = stage_programs_folder(pipeline, &pipeline->arena, weights->directory, (size_t)planned->rank);
        ok &= weights_reference(code, model, &here, diagnostics);
    }
    stage_index_free(index);
    return ok && check_memory(pipeline, plan, cluster, diagnostics);
}

static const SkyLink *links_of(const Plan *plan, Arena *arena)
{
    SkyLink *links = arena_new_array(arena, SkyLink, (size_t)plan->stage_count);
    for (int l = 0; l < plan->link_count; l++)
        for (int direction = 0; direction < 2; direction++) {
            SkyLink *link = &links[plan->links[l].from];
            link->latency_s[direction] = (double)plan->links[l].latency_ns[direction] * 1e-9;
            link->transfer_s[direction] = (double)plan->links[l].transfer_ns[direction] * 1e-9;
        }
    return links;
}

static void set_sum_order(SkyProgram *program, Arena *arena, const Plan *plan)
{
    if (!plan->sum_order) return;
    uint32_t *places = arena_new_array(arena, uint32_t, (size_t)plan->layer_count);
    for (int i = 0; i < plan->layer_count; i++) places[plan->sum_order[i]] = (uint32_t)i;
    program->summed_layers = (uint32_t)plan->layer_count;
    program->sum_places = places;
}

/* What a rank has to know of the pipelines that share the step with its own. */
static void set_replicas(SkyProgram *program, Arena *arena, const Plan *plan)
{
    if (plan->replica_count < 2) return;
    int own = plan->ranks[program->rank].replica;
    int *microbatches = arena_new_array(arena, int, (size_t)plan->replica_count);
    uint32_t *replicas = arena_new_array(arena, uint32_t, (size_t)plan->rank_count);
    for (int r = 0; r < plan->rank_count; r++) replicas[r] = (uint32_t)plan->ranks[r].replica;
    for (int r = 0; r < plan->replica_count; r++) microbatches[r] = plan->replicas[r].microbatches;
    uint32_t *dealt = arena_new_array(arena, uint32_t, (size_t)microbatches[own]);
    plan_deal(microbatches, plan->replica_count, own, dealt);
    program->replica_count = (uint32_t)plan->replica_count;
    program->sum_codec = codecs_of_sums(plan->codecs);
    program->rank_replicas = replicas;
    program->dealt_count = (uint32_t)microbatches[own];
    program->dealt = dealt;
    int64_t summed = plan->ranks[program->rank].summed_bytes;
    program->sum_s = summed ? (double)plan->ranks[program->rank].sum_ns * 1e-9 / (double)summed : 0;
    program->sum_latency_s = (double)plan->ranks[program->rank].sum_latency_ns * 1e-9;
    set_sum_order(program, arena, plan);
}

static const char *hash_plan(const Plan *plan, Arena *arena)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    char hash[33];
    plan_print(plan, &text);
    hash_format(hash_bytes(text.bytes, text.size), hash);
    return arena_string(arena, hash);
}

static void build_program(StagePrograms *pipeline, const SkyProgram *common, const Plan *plan, const Cluster *cluster,
                          int rank, const char *plan_hash)
{
    Arena *arena = &pipeline->arena;
    const PlanRank *planned = &plan->ranks[rank];
    const ClusterDevice *device = &cluster->devices[cluster_find_device(cluster, planned->device)];
    SkyProgram *program = &pipeline->programs[rank];
    *program = *common;
    program->rank = (uint32_t)rank;
    program->rank_count = (uint32_t)plan->rank_count;
    program->total_stage_count = (uint32_t)plan->stage_count;
    program->microbatch_count = (uint32_t)plan->microbatches;
    program->threads = (uint32_t)device->threads;
    program->slowdown = device->slowdown;
    program->device_name = arena_string(arena, device->name);
    program->opencl_platform = device->opencl_platform;
    program->opencl_device = device->opencl_device;
    program->device_blocks = device->opencl_device ? (uint32_t)cluster_blocks(device) : 0;
    program->model_hash = plan->model_hash;
    program->plan_hash = plan_hash;
    double *predicted = arena_new(arena, double);
    *predicted = (double)plan->simulated_step_ns * 1e-9;
    program->predicted_step_s = predicted;
    bool varies = plan->rows.microbatch_kinds > 0;
    program->planned_microbatches = varies ? row_samples_mean(&plan->rows) : plan->microbatches;
    const PlanStage *first = &plan->stages[planned->stages[0]];
    int64_t limit = first->memory_limit_bytes, taken = plan_rank_memory(plan, rank) + planned->process_bytes;
    program->spare_bytes = limit == COSTS_NO_LIMIT ? UINT64_MAX : limit > taken ? (uint64_t)(limit - taken) : 0;

    double own = program->planned_microbatches; /* micro-batches of this rank */
    if (plan->replica_count > 1) own *= (double)plan->replicas[planned->replica].microbatches / plan->microbatches;
    SkyStage *stages = arena_new_array(arena, SkyStage, (size_t)planned->stage_count);
    for (int i = 0; i < planned->stage_count; i++) {
        const PlanStage *stage = &plan->stages[planned->stages[i]];
        const int64_t nanoseconds[SKY_LIST_COUNT] = {stage->forward_ns, plan_stage_backward(stage),
                                                     plan_stage_weight_gradient(stage), stage->update_ns};
        stages[i] = pipeline->stages[planned->stages[i]].stage;
        for (int list = 0; list < SKY_LIST_COUNT; list++)
            stages[i].planned_s[list] = (double)nanoseconds[list] * 1e-9 * (list == SKY_LIST_UPDATE ? 1 : own);
    }
    program->stages = stages;
    program->stage_count = (uint32_t)planned->stage_count;
    program->lines_vary = program->tokens_vary = true;
    for (size_t s = 0; s < pipeline->stage_count; s++) {
        program->lines_vary &= pipeline->stages[s].lines_vary;
        program->tokens_vary &= pipeline->stages[s].bears_zeros;
    }
    uint32_t *stage_rank = arena_new_array(arena, uint32_t, (size_t)plan->stage_count);
    for (int s = 0; s < plan->stage_count; s++) stage_rank[s] = (uint32_t)plan->stages[s].rank;
    program->stage_rank = stage_rank;
    program->links = links_of(plan, arena);
    program->norm = plan->norm;
    set_replicas(program, arena, plan);
    SkyInstruction *instructions = arena_new_array(arena, SkyInstruction, (size_t)planned->instruction_count);
    for (int i = 0; i < planned->instruction_count; i++) instructions[i] = instruction_of(&planned->instructions[i]);
    program->instructions = instructions;
    program->instruction_count = (uint32_t)planned->instruction_count;
}

bool stage_programs_build(StagePrograms *pipeline, TrainingModel *model, const Plan *plan, const Cluster *cluster,
                          const WeightOptions *weights, uint64_t seed, double clip, Diagnostics *diagnostics)
{
    *pipeline = (StagePrograms){0};
    find_sites(pipeline, plan, cluster);
    if (weights && !make_folders(pipeline, weights->directory, diagnostics)) return false;
    Arena *arena = &pipeline->arena;
    SkyProgram common = {.clip = clip, .seed = seed};
    program_describe(&common, arena, model);
    common.optimizer = recipe_optimizer(model);
    recipe_describe(&common, arena, model, weights ? weights->init : (WeightInit){0});
    if (!plan_codecs_apply(model, plan, "the plan", diagnostics) ||
        !build_stages(pipeline, model, plan, cluster, weights, diagnostics))
        return false;
    recipe_describe_weights(&common, arena, pipeline->stages, pipeline->stage_count);
    pipeline->targets = arena_new_array(arena, StageTarget, (size_t)cluster->target_count);
    pipeline->rank_count = (size_t)plan->rank_count;
    pipeline->programs = arena_new_array(arena, SkyProgram, pipeline->rank_count);
    const char *plan_hash = hash_plan(plan, arena);
    for (int r = 0; r < plan->rank_count; r++) build_program(pipeline, &common, plan, cluster, r, plan_hash);
    set_sites(pipeline);
    return true;
}

const ClusterDevice *stage_programs_device(const StagePrograms *pipeline, const Cluster *cluster, size_t rank)
{
    return &cluster->devices[cluster_find_device(cluster, pipeline->programs[rank].device_name)];
}

void stage_programs_free(StagePrograms *pipeline)
{
    for (size_t i = 0; i < pipeline->stage_count; i++) stage_free(&pipeline->stages[i]);
    arena_free(&pipeline->arena);
    *pipeline = (StagePrograms){0};
}
