#include "runtime/train/proximal.h"

#include <stdio.h>

#include "base/input_files.h"
#include "base/safetensors.h"
#include "runtime/program/parallel.h"

/* The next trained parameter of this rank; NULL after the last. */
static const SkyParameter *next_trained(const Execution *execution, SkyHeld *held)
{
    while (sky_next_parameter(execution->program, held))
        if (!held->parameter->frozen) return held->parameter;
    return NULL;
}

/* Adds `factor` times the tensors called `prefix` and a parameter's name to the region, which begins as zeros. */
static bool add_file(const Execution *execution, MemoryRegion *region, const char *path, const char *prefix,
                     float factor, Diagnostics *diagnostics)
{
    FREED_WITH(safetensors_close) SafeTensors file = {0};
    float *to = (float *)region->bytes;
    SkyHeld held = {0};
    bool ok = safetensors_open(&file, path, diagnostics);
    if (!ok) return false;
    input_files_release_path(path);
    for (const SkyParameter *p; ok && (p = next_trained(execution, &held)); to += p->value.bytes / sizeof *to) {
        char name[512];
        snprintf(name, sizeof name, "%s%s", prefix, p->value.name);
        const SafeTensor *found = safetensors_find(&file, name);
        ok = found && found->dtype == DTYPE_F32 && found->bytes == p->value.bytes;
        if (!ok)
            diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = path, .object = name}, NULL,
                              "the tensor is missing, or has another size than the parameter");
        for (size_t i = 0; ok && i < p->value.bytes / sizeof *to; i++)
            to[i] += factor * ((const float *)found->data)[i];
    }
    return ok;
}

static bool map(const Execution *execution, MemoryRegion *region, const char *what, Diagnostics *diagnostics)
{
    size_t bytes = 0;
    SkyHeld held = {0};
    for (const SkyParameter *p; (p = next_trained(execution, &held));) bytes += p->value.bytes;
    return memory_map(region, bytes, execution->threads, what, diagnostics);
}

bool proximal_open(Proximal *proximal, const Execution *execution, double strength, const ProximalFiles *files,
                   Diagnostics *diagnostics)
{
    *proximal = (Proximal){.execution = execution, .strength = strength, .corrects = files->control};
    if (strength > 0 && (!map(execution, &proximal->start, "the start of the round", diagnostics) ||
                         !add_file(execution, &proximal->start, files->start, "", 1, diagnostics)))
        return false;
    return !files->control || (map(execution, &proximal->control, "the control variates", diagnostics) &&
                               add_file(execution, &proximal->control, files->start, "control/", 1, diagnostics) &&
                               add_file(execution, &proximal->control, files->control, "", -1, diagnostics));
}

void proximal_close(Proximal *proximal)
{
    memory_unmap(&proximal->start);
    memory_unmap(&proximal->control);
}

/* to += strength * (value - start), or without a value: to -= strength * start. */
typedef struct Part {
    float *to;
    const float *value, *start;
    int64_t count;
    float strength;
} Part;

static void add(void *context, int thread, int threads)
{
    const Part *part = context;
    int64_t end = parallel_begin(part->count, thread + 1, threads);
    for (int64_t i = parallel_begin(part->count, thread, threads); i < end; i++)
        part->to[i] += part->strength * ((part->value ? part->value[i] : 0) - part->start[i]);
}

void proximal_add(Proximal *proximal)
{
    const Execution *execution = proximal->execution;
    const unsigned char *start = proximal->start.bytes;
    SkyHeld held = {0};
    if (!(proximal->strength > 0)) return;
    for (const SkyParameter *p; (p = next_trained(execution, &held)); start += p->value.bytes) {
        size_t bytes = p->value.bytes;
        Part part = {execution_fetch(execution, held.stage, 0, p->gradient, bytes),
                     execution_fetch(execution, held.stage, 0, p->value.location, bytes), (const float *)start,
                     (int64_t)(bytes / sizeof(float)), (float)proximal->strength};
        parallel_run(execution->threads, add, &part);
        execution_hand(execution, held.stage, 0, p->gradient, bytes);
    }
}

void proximal_correct(Proximal *proximal, double learning_rate)
{
    const Execution *execution = proximal->execution;
    const unsigned char *control = proximal->control.bytes;
    SkyHeld held = {0};
    if (!proximal->corrects) return;
    for (const SkyParameter *p; (p = next_trained(execution, &held)); control += p->value.bytes) {
        size_t bytes = p->value.bytes;
        Part part = {execution_fetch(execution, held.stage, 0, p->value.location, bytes), NULL, (const float *)control,
                     (int64_t)(bytes / sizeof(float)), (float)learning_rate};
        parallel_run(execution->threads, add, &part);
        execution_hand(execution, held.stage, 0, p->value.location, bytes);
    }
}
