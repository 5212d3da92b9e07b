#include "runtime/train/proximal.h"

#include <string.h>

#include "base/input_files.h"
#include "base/safetensors.h"
#include "runtime/program/parallel.h"

/* The next trained parameter of this rank after (*stage, *next); NULL after the last. */
static const SkyParameter *next_trained(const Execution *execution, uint32_t *stage, uint32_t *next)
{
    for (; *stage < execution->program->stage_count; ++*stage, *next = 0) {
        const SkyStage *s = execution->stages[*stage].stage;
        while (*next < s->parameter_count)
            if (!s->parameters[(*next)++].frozen) return &s->parameters[*next - 1];
    }
    return NULL;
}

static bool read_start(Proximal *proximal, const SafeTensors *file, const char *path, Diagnostics *diagnostics)
{
    unsigned char *to = proximal->start.bytes;
    uint32_t stage = 0, next = 0;
    for (const SkyParameter *p; (p = next_trained(proximal->execution, &stage, &next)); to += p->value.bytes) {
        const SafeTensor *found = safetensors_find(file, p->value.name);
        if (!found || found->dtype != DTYPE_F32 || found->bytes != p->value.bytes)
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = path, .object = p->value.name}, NULL,
                                     "the tensor is missing, or has another size than the parameter");
        memcpy(to, found->data, found->bytes);
    }
    return true;
}

bool proximal_open(Proximal *proximal, const Execution *execution, double strength, const char *path,
                   Diagnostics *diagnostics)
{
    SafeTensors file;
    size_t bytes = 0;
    uint32_t stage = 0, next = 0;
    *proximal = (Proximal){.execution = execution, .strength = strength};
    if (!(strength > 0)) return true;
    if (!safetensors_open(&file, path, diagnostics)) return false;
    input_files_release_path(path);
    for (const SkyParameter *p; (p = next_trained(execution, &stage, &next));) bytes += p->value.bytes;
    bool ok = memory_map(&proximal->start, bytes, execution->threads, "the start of the round", diagnostics) &&
              read_start(proximal, &file, path, diagnostics);
    safetensors_close(&file);
    return ok;
}

void proximal_close(Proximal *proximal) { memory_unmap(&proximal->start); }

typedef struct Part {
    float *gradient;
    const float *value, *start;
    int64_t count;
    float strength;
} Part;

static void add(void *context, int thread, int threads)
{
    const Part *part = context;
    int64_t end = parallel_begin(part->count, thread + 1, threads);
    for (int64_t i = parallel_begin(part->count, thread, threads); i < end; i++)
        part->gradient[i] += part->strength * (part->value[i] - part->start[i]);
}

void proximal_add(Proximal *proximal)
{
    const Execution *execution = proximal->execution;
    const unsigned char *start = proximal->start.bytes;
    uint32_t stage = 0, next = 0;
    if (!(proximal->strength > 0)) return;
    for (const SkyParameter *p; (p = next_trained(execution, &stage, &next)); start += p->value.bytes) {
        size_t bytes = p->value.bytes;
        Part part = {execution_fetch(execution, stage, 0, p->gradient, bytes),
                     execution_fetch(execution, stage, 0, p->value.location, bytes), (const float *)start,
                     (int64_t)(bytes / sizeof(float)), (float)proximal->strength};
        parallel_run(execution->threads, add, &part);
        execution_hand(execution, stage, 0, p->gradient, bytes);
    }
}
