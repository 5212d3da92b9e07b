#include "driver/compile/emit_programs.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "codegen/kernels/kernel_compiler.h"
#include "codegen/kernels/target_flags.h"
#include "codegen/link/link.h"
#include "codegen/link/program_object.h"
#include "codegen/opencl/opencl_program.h"
#include "codegen/stage/stage_kept.h"
#include "runtime/device/opencl_build.h"
#include "runtime/program/parallel.h"

typedef struct Emission {
    StagePrograms *pipeline;
    const Cluster *cluster;
    const EmitOptions *options;
    EmitTimes *times;
    Arena arena;
    int target_index; /* the target at hand */
    Target target;
    CompiledKernels *compiled;
    const char **objects; /* of the compiled kernels */
    size_t object_count;
    atomic_size_t next; /* rank to be emitted */
    Diagnostics *said;  /* [rank] */
} Emission;

static bool runs_on_target(const Emission *emission, size_t rank)
{
    return stage_programs_device(emission->pipeline, emission->cluster, rank)->target == emission->target_index;
}

/* Compiles the kernels of all ranks on the target, each once. */
static bool compile_kernels(Emission *emission, Diagnostics *diagnostics)
{
    KernelList list = {0};
    for (size_t r = 0; r < emission->pipeline->rank_count; r++)
        if (runs_on_target(emission, r) && !emission->pipeline->programs[r].opencl_device)
            kernel_list_add_program(&list, &emission->pipeline->programs[r]);
    emission->compiled = kernels_compile(list.kernels, list.count, &emission->target,
                                         kernel_cache_defaults(&emission->arena), diagnostics);
    free(list.kernels);
    return emission->compiled != NULL;
}

static LinkOptions link_options(const Emission *emission)
{
    const ClusterTarget *target = &emission->cluster->targets[emission->target_index];
    return (LinkOptions){.linker = target->linker,
                         .sysroot = target->sysroot,
                         .runtime = target->runtime,
                         .foreign = emission->target.foreign,
                         .sites = emission->pipeline->site_count > 1};
}

/* Joins the objects into one, so that each program links a single file: joining takes as long as linking two programs
 * without. If the target's linker cannot join, linking only takes longer. */
static void join_kernels(Emission *emission)
{
    const char *joined =
        arena_format(&emission->arena, "%s/kernels-%d.o", emission->options->directory, emission->target_index);
    LinkOptions link = link_options(emission);
    size_t programs = 0;
    for (size_t r = 0; r < emission->pipeline->rank_count; r++) programs += runs_on_target(emission, r);
    if (programs < 3 || emission->object_count < 2) return;
    if (!link_objects(joined, emission->objects, emission->object_count, &link)) return;
    for (size_t i = 0; i < emission->object_count; i++) unlink(emission->objects[i]);
    emission->objects[0] = joined;
    emission->object_count = 1;
}

static bool write_kernels(Emission *emission, Diagnostics *diagnostics)
{
    size_t count = emission->compiled->count;
    emission->objects = arena_new_array(&emission->arena, const char *, count + 1);
    for (size_t i = 0; i < count; i++) {
        const CompiledKernel *kernel = &emission->compiled->kernels[i];
        const char *path = arena_format(&emission->arena, "%s/%s-%d.o", emission->options->directory, kernel->symbol,
                                        emission->target_index);
        emission->objects[emission->object_count++] = path;
        if (!file_write_part(path, kernel->object.bytes, kernel->object.size, diagnostics)) return false;
    }
    if (emission->options->form == EMIT_PROGRAMS) join_kernels(emission);
    return true;
}

static bool emit_text(Emission *emission, const char *base, SkyProgram *program, Diagnostics *diagnostics)
{
    bool llvm = emission->options->form == EMIT_LLVM;
    FREED_WITH(arena_free) Arena arena = {0};
    if (program->opencl_device) { /* the text of its kernels is that of the program */
        opencl_bind(program, &arena);
        return file_write_all(arena_format(&arena, "%s.cl", base), program->opencl_source,
                              strlen(program->opencl_source), diagnostics);
    }
    CompiledKernels *compiled =
        kernels_compile_program(program, &emission->target, kernel_cache_defaults(&arena), diagnostics);
    bool ok = compiled != NULL;
    if (ok) {
        FREED_WITH(buffer_free) Buffer text = {0};
        kernels_print(compiled, llvm ? KERNEL_TEXT_LLVM : KERNEL_TEXT_ASSEMBLY, &text);
        ok = file_write_all(arena_format(&arena, "%s%s", base, llvm ? ".ll" : ".s"), buffer_text(&text), text.size,
                            diagnostics);
        kernels_free(compiled);
    }
    return ok;
}

/* DIRECTORY/stage-NN, or in the folder of its site. */
static const char *rank_base(const Emission *emission, Arena *arena, size_t rank)
{
    const char *folder = stage_programs_folder(emission->pipeline, arena, emission->options->directory, rank);
    return arena_format(arena, "%s/stage-%02zu", folder, rank);
}

static bool link_rank(const Emission *emission, const char *base, const char *tables, Diagnostics *diagnostics)
{
    FREED const char **objects = memory_allocate((emission->object_count + 1) * sizeof *objects);
    memcpy(objects, emission->objects, emission->object_count * sizeof *objects);
    objects[emission->object_count] = tables;
    LinkOptions link = link_options(emission);
    bool ok = link_program(base, objects, emission->object_count + 1, &link, diagnostics);
    unlink(tables);
    return ok;
}

/* OPENCL_KEPT, empty. */
static bool write_kept(const Emission *emission, Arena *arena, size_t rank, Diagnostics *diagnostics)
{
    const char *folder = stage_programs_folder(emission->pipeline, arena, emission->options->directory, rank);
    const char *name = arena_format(arena, OPENCL_KEPT, (unsigned)rank);
    return file_write_part(arena_format(arena, "%s/%s", folder, name), "", 0, diagnostics);
}

static bool emit_rank(const Emission *emission, size_t rank, Diagnostics *diagnostics)
{
    SkyProgram *program = &emission->pipeline->programs[rank];
    FREED_WITH(arena_free) Arena arena = {0};
    const char *base = rank_base(emission, &arena, rank);
    const char *tables = arena_format(&arena, "%s.o", base);
    bool ok = true;
    if (program->opencl_device)
        opencl_bind(program, &arena);
    else
        kernels_bind(emission->compiled, NULL, program);
    FREED_WITH(buffer_free) Buffer object = {0};
    if (ok) program_object(program, emission->compiled, &object);
    ok = ok && file_write_part(tables, object.bytes, object.size, diagnostics);
    if (ok && emission->options->form == EMIT_PROGRAMS)
        ok = link_rank(emission, base, tables, diagnostics) &&
             (!program->opencl_device || write_kept(emission, &arena, rank, diagnostics));
    return ok;
}

/* Threads take the next rank; after an error they stop. */
static void emit_queued(void *context, int thread, int threads)
{
    (void)thread, (void)threads;
    Emission *emission = context;
    size_t count = emission->pipeline->rank_count;
    for (size_t r; (r = atomic_fetch_add(&emission->next, 1)) < count;)
        if (runs_on_target(emission, r) && !emit_rank(emission, r, &emission->said[r]))
            atomic_store(&emission->next, count);
}

/* Links programs in parallel and reports the first rank's error. */
static bool emit_ranks(Emission *emission, Diagnostics *diagnostics)
{
    size_t count = emission->pipeline->rank_count;
    bool ok = true;
    emission->said = arena_new_array(&emission->arena, Diagnostics, count);
    atomic_store(&emission->next, 0);
    parallel_run(parallel_threads(0), emit_queued, emission);
    for (size_t r = 0; r < count; r++) {
        if (ok) diagnostics_append(diagnostics, &emission->said[r]);
        ok &= emission->said[r].errors == 0;
        diagnostics_free(&emission->said[r]);
    }
    return ok;
}

static bool emit_texts(Emission *emission, Diagnostics *diagnostics)
{
    for (size_t r = 0; r < emission->pipeline->rank_count; r++) {
        const char *base = rank_base(emission, &emission->arena, r);
        if (runs_on_target(emission, r) && !emit_text(emission, base, &emission->pipeline->programs[r], diagnostics))
            return false;
    }
    return true;
}

static bool emit_objects(Emission *emission, Diagnostics *diagnostics)
{
    double begin = monotonic_seconds();
    bool ok = compile_kernels(emission, diagnostics);
    double compiled = monotonic_seconds();
    emission->times->compile_s += compiled - begin;
    if (!ok) return false;
    emission->times->kernels += emission->compiled->count;
    emission->times->cached += emission->compiled->cached;
    ok = write_kernels(emission, diagnostics) && emit_ranks(emission, diagnostics);
    for (size_t i = 0; emission->options->form == EMIT_PROGRAMS && i < emission->object_count; i++)
        unlink(emission->objects[i]);
    kernels_free(emission->compiled);
    emission->object_count = 0;
    emission->times->link_s += monotonic_seconds() - compiled;
    return ok;
}

/* Where several micro-batches share a step, its weights are kept in the order in which they are multiplied, if that
 * leaves room for the copy of the state that checkpoints make. */
static void keep_weights(Emission *emission, SkyProgram *program)
{
    if (emission->target.bf16 == BF16_NONE || program->opencl_device || program->microbatch_count < 2) return;
    uint64_t all = 0;
    for (uint32_t s = 0; s < program->stage_count; s++) {
        SkyStage *stage = (SkyStage *)&program->stages[s];
        uint64_t state = stage->space_bytes[SKY_SPACE_STATE], spare = program->spare_bytes;
        if (spare <= state) break;
        uint64_t kept = stage_keep_weights(stage, &emission->pipeline->arena, spare - state);
        if (spare != UINT64_MAX) program->spare_bytes -= kept;
        all += kept;
    }
    if (all > emission->times->kept_bytes) emission->times->kept_bytes = all;
}

static bool emit_target(Emission *emission, Diagnostics *diagnostics)
{
    const ClusterTarget *from = &emission->cluster->targets[emission->target_index];
    TargetOptions options = {.triple = *from->triple ? from->triple : NULL,
                             .cpu = *from->cpu ? from->cpu : NULL,
                             .features = *from->features ? from->features : NULL};
    if (emission->target_index == 0 && emission->options->cpu) options.cpu = emission->options->cpu;
    if (!target_init(&emission->target, options, diagnostics)) return false;
    Arena *arena = &emission->pipeline->arena;
    emission->pipeline->targets[emission->target_index] =
        (StageTarget){target_architecture(&emission->target, arena), arena_string(arena, emission->target.cpu),
                      target_flags(&emission->target, arena)};
    for (size_t r = 0; r < emission->pipeline->rank_count; r++)
        if (runs_on_target(emission, r)) keep_weights(emission, &emission->pipeline->programs[r]);
    EmitForm form = emission->options->form;
    bool ok = form == EMIT_LLVM || form == EMIT_ASSEMBLY ? emit_texts(emission, diagnostics)
                                                         : emit_objects(emission, diagnostics);
    target_free(&emission->target);
    return ok;
}

bool stage_programs_emit(StagePrograms *pipeline, const Cluster *cluster, const EmitOptions *options, EmitTimes *times,
                         Diagnostics *diagnostics)
{
    *times = (EmitTimes){0};
    Emission emission = {.pipeline = pipeline, .cluster = cluster, .options = options, .times = times};
    bool ok = true;
    for (int t = 0; ok && t < cluster->target_count; t++) {
        bool used = false;
        emission.target_index = t;
        for (size_t r = 0; r < pipeline->rank_count; r++) used |= runs_on_target(&emission, r);
        if (used) ok = emit_target(&emission, diagnostics);
    }
    arena_free(&emission.arena);
    return ok;
}
