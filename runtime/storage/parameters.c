#include "runtime/storage/parameters.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/weight_blocks.h"

static void draw(const char *name, uint64_t seed, uint64_t first, float mean, float deviation, float *values,
                 size_t count)
{
    FREED_WITH(buffer_free) Buffer stream = {0};
    buffer_print(&stream, "init/%s", name);
    random_fill_normal(random_stream(seed, buffer_text(&stream)), first, deviation, values, count);
    for (size_t i = 0; mean != 0 && i < count; i++) values[i] += mean;
}

void parameter_draw(const char *name, uint64_t seed, float mean, float deviation, float *values, size_t count)
{
    draw(name, seed, 0, mean, deviation, values, count);
}

/* In pieces, because float32 values of a large parameter would take more than the parameter. */
static void draw_in_form(const SkyParameter *parameter, uint64_t seed, void *bytes)
{
    enum { PIECE = 1 << 14 };
    const SkyTensor *value = &parameter->value;
    float mean = parameter->initial_mean, deviation = parameter->initial_deviation, values[PIECE];
    int64_t count = 1;
    for (uint32_t i = 0; i < value->rank; i++) count *= value->dim[i];
    if (value->dtype == DTYPE_F32) {
        parameter_draw(value->name, seed, mean, deviation, bytes, (size_t)count);
        return;
    }
    for (int64_t done = 0; done < count; done += PIECE) {
        int64_t size = count - done < PIECE ? count - done : PIECE;
        void *to = (char *)bytes + dtype_bytes((DType)value->dtype, done);
        draw(value->name, seed, (uint64_t)done, mean, deviation, values, (size_t)size);
        if (dtype_in_blocks((DType)value->dtype))
            weight_blocks_encode((DType)value->dtype, values, size, to);
        else
            for (int64_t i = 0; i < size; i++) element_store_double((DType)value->dtype, to, i, (double)values[i]);
    }
}

const char *parameter_state_prefix(uint32_t state_count, uint32_t index)
{
    if (state_count == 1) return "momentum";
    return index == 0 ? "adam.m" : "adam.v";
}

/* The file that was used last stays mapped: parameters of one file follow each other. */
typedef struct InitialFile {
    const char *directory, *name; /* name NULL: none is mapped */
    char *path;
    MappedFile file;
} InitialFile;

static void initial_file_close(InitialFile *initial)
{
    file_unmap(&initial->file);
    free(initial->path);
    initial->name = NULL;
    initial->path = NULL;
}

static bool initial_file_use(InitialFile *initial, const char *name, Diagnostics *diagnostics)
{
    if (initial->name && strcmp(initial->name, name) == 0) return true;
    initial_file_close(initial);
    Buffer path = {0};
    if (name[0] == '/')
        buffer_print(&path, "%s", name);
    else
        buffer_print(&path, "%s/%s", initial->directory, name);
    initial->path = path.bytes;
    if (!file_map(&initial->file, initial->path, diagnostics)) return false;
    initial->name = name;
    return true;
}

/* Copies in pieces, because the file's pages of a large parameter would double its memory at the peak. */
static void copy_and_forget(MappedFile *file, size_t offset, size_t bytes, unsigned char *to)
{
    enum { PIECE = 1 << 20 };
    for (size_t done = 0; done < bytes; done += PIECE) {
        size_t size = bytes - done < PIECE ? bytes - done : PIECE;
        memcpy(to + done, file->bytes + offset + done, size);
        file_forget(file, offset + done, size);
    }
}

static bool initialize(Execution *execution, uint32_t stage, const SkyParameter *parameter, InitialFile *initial,
                       Diagnostics *diagnostics)
{
    const SkyTensor *value = &parameter->value;
    void *bytes = execution_address(execution, stage, 0, value->location);
    if (!parameter->initial_file) {
        draw_in_form(parameter, execution->program->seed, bytes);
        execution_hand(execution, stage, 0, value->location, value->bytes);
        return true;
    }
    if (!initial_file_use(initial, parameter->initial_file, diagnostics)) return false;
    size_t size = initial->file.size;
    if (parameter->initial_offset > size || value->bytes > size - parameter->initial_offset) {
        Place place = {.file = initial->path, .object = value->name};
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "compile the model again",
                                 "the file is shorter than when the program was compiled");
    }
    copy_and_forget(&initial->file, parameter->initial_offset, value->bytes, bytes);
    if (hash_bytes(bytes, value->bytes).low != parameter->initial_check) {
        Place place = {.file = initial->path, .object = value->name};
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "compile the model again",
                                 "the file is not the one that the program was compiled from");
    }
    execution_hand(execution, stage, 0, value->location, value->bytes);
    return true;
}

bool parameters_initialize(Execution *execution, const char *directory, Diagnostics *diagnostics)
{
    FREED_WITH(initial_file_close) InitialFile initial = {.directory = directory};
    for (SkyHeld held = {0}; sky_next_parameter(execution->program, &held);)
        if (!initialize(execution, held.stage, held.parameter, &initial, diagnostics)) return false;
    return true;
}
