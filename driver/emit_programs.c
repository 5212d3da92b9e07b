#include "driver/emit_programs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "codegen/link.h"
#include "codegen/program_object.h"

typedef struct Emission {
    Pipeline *pipeline;
    const Cluster *cluster;
    const EmitOptions *options;
    Arena arena;
    int target_index; /* the target at hand */
    Target target;
    CompiledKernels *compiled;
    const char **objects; /* of the compiled kernels; [count] is the rank's own */
} Emission;

static bool runs_on_target(const Emission *emission, size_t rank)
{
    return pipeline_device(emission->pipeline, emission->cluster, rank)->target == emission->target_index;
}

static void add_kernels(const SkyCall *calls, uint32_t count, const Kernel ***kernels, size_t *kernel_count,
                        size_t *capacity)
{
    for (uint32_t i = 0; i < count; i++) array_push(*kernels, *kernel_count, *capacity, calls[i].interpreted);
}

/* Compiles the kernels of all ranks on the target, each once. */
static bool compile_kernels(Emission *emission, Diagnostics *diagnostics)
{
    const Kernel **kernels = NULL;
    size_t count = 0, capacity = 0;
    for (size_t r = 0; r < emission->pipeline->rank_count; r++) {
        const SkyProgram *program = &emission->pipeline->programs[r];
        if (!runs_on_target(emission, r)) continue;
        for (uint32_t s = 0; s < program->stage_count; s++) {
            const SkyStage *stage = &program->stages[s];
            add_kernels(stage->forward, stage->forward_count, &kernels, &count, &capacity);
            add_kernels(stage->backward, stage->backward_count, &kernels, &count, &capacity);
            add_kernels(stage->weight_gradient, stage->weight_gradient_count, &kernels, &count, &capacity);
            add_kernels(stage->update, stage->update_count, &kernels, &count, &capacity);
        }
    }
    emission->compiled =
        codegen_compile(kernels, count, &emission->target, codegen_default_options(&emission->arena), diagnostics);
    free(kernels);
    return emission->compiled != NULL;
}

static bool write_kernels(Emission *emission, Diagnostics *diagnostics)
{
    size_t count = emission->compiled->count;
    emission->objects = arena_new_array(&emission->arena, const char *, count + 1);
    for (size_t i = 0; i < count; i++) {
        const CompiledKernel *kernel = &emission->compiled->kernels[i];
        emission->objects[i] = arena_format(&emission->arena, "%s/%s-%d.o", emission->options->directory,
                                            kernel->symbol, emission->target_index);
        if (!file_write_all(emission->objects[i], kernel->object.bytes, kernel->object.size, diagnostics)) return false;
    }
    return true;
}

static bool emit_text(Emission *emission, const char *base, const SkyProgram *program, Diagnostics *diagnostics)
{
    bool llvm = strcmp(emission->options->form, "llvm") == 0;
    CompiledKernels *compiled =
        codegen_compile_program(program, &emission->target, codegen_default_options(&emission->arena), diagnostics);
    if (!compiled) return false;
    Buffer text = {0};
    codegen_print(compiled, llvm ? CODEGEN_LLVM : CODEGEN_ASSEMBLY, &text);
    bool ok = file_write_all(arena_format(&emission->arena, "%s%s", base, llvm ? ".ll" : ".s"), buffer_text(&text),
                             text.size, diagnostics);
    buffer_free(&text);
    codegen_free(compiled);
    return ok;
}

static bool emit_rank(Emission *emission, size_t rank, Diagnostics *diagnostics)
{
    SkyProgram *program = &emission->pipeline->programs[rank];
    const char *form = emission->options->form;
    const char *base = arena_format(&emission->arena, "%s/stage-%02zu", emission->options->directory, rank);
    if (form && strcmp(form, "obj") != 0) return emit_text(emission, base, program, diagnostics);

    codegen_bind(emission->compiled, NULL, program);
    size_t count = emission->compiled->count;
    const char *tables = arena_format(&emission->arena, "%s.o", base);
    Buffer object = {0};
    program_object(program, emission->compiled, &object);
    bool ok = file_write_all(tables, object.bytes, object.size, diagnostics);
    buffer_free(&object);
    if (!ok || form) return ok;

    emission->objects[count] = tables;
    const ClusterTarget *target = &emission->cluster->targets[emission->target_index];
    LinkOptions link = {.linker = target->linker,
                        .sysroot = target->sysroot,
                        .runtime = target->runtime,
                        .foreign = emission->target.foreign};
    ok = link_program(base, emission->objects, count + 1, &link, diagnostics);
    unlink(tables);
    return ok;
}

static bool emit_target(Emission *emission, Diagnostics *diagnostics)
{
    const ClusterTarget *from = &emission->cluster->targets[emission->target_index];
    TargetOptions options = {.triple = *from->triple ? from->triple : NULL,
                             .cpu = *from->cpu ? from->cpu : NULL,
                             .features = *from->features ? from->features : NULL};
    if (emission->target_index == 0 && emission->options->cpu) options.cpu = emission->options->cpu;
    if (!target_init(&emission->target, options, diagnostics)) return false;
    bool text = emission->options->form && strcmp(emission->options->form, "obj") != 0;
    bool ok = text || (compile_kernels(emission, diagnostics) && write_kernels(emission, diagnostics));
    for (size_t r = 0; ok && r < emission->pipeline->rank_count; r++)
        if (runs_on_target(emission, r)) ok = emit_rank(emission, r, diagnostics);
    for (size_t i = 0; emission->compiled && !emission->options->form && i < emission->compiled->count; i++)
        if (emission->objects && emission->objects[i]) unlink(emission->objects[i]);
    if (emission->compiled) codegen_free(emission->compiled);
    emission->compiled = NULL;
    emission->objects = NULL;
    target_free(&emission->target);
    return ok;
}

bool programs_emit(Pipeline *pipeline, const Cluster *cluster, const EmitOptions *options, Diagnostics *diagnostics)
{
    Emission emission = {.pipeline = pipeline, .cluster = cluster, .options = options};
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
