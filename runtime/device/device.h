/* The memory of a program's stages, and what a kind of device does with their call lists: the seam between what all
 * devices share (execute.h) and each of them (cpu.c, opencl.c).
 *
 * The host has a place for every byte of state and slots: messages, data sets and checkpoints are read and written
 * there, and kernels' results read. On the CPU the kernels use the same place. A device with a memory of its own has
 * the same layout there, and DeviceKind says how a piece of one becomes that of the other. */
#ifndef RUNTIME_DEVICE_DEVICE_H
#define RUNTIME_DEVICE_DEVICE_H

#include "base/diagnostics.h"
#include "runtime/program/memory.h"
#include "runtime/program/program.h"
#include "runtime/program/waves.h"

/* Runs one whole kernel, to the limit that its sum has, or one block of it, over its operands where a call names a
 * description instead of code; false if an index left its buffer. A pointer, so that emitted programs do not contain
 * the interpreter. */
enum { EXECUTE_ALL_BLOCKS = -1 };
typedef bool ExecuteInterpreter(const void *kernel, void *const *operands, int64_t block, int64_t limit);

/* The step space as an update call sees it: made of a group of it before every update. */
typedef struct UpdateScalars {
    float values[SKY_STEP_GROUP];
    double rate; /* what its learning rate is multiplied with */
    bool exempt; /* from weight decay */
} UpdateScalars;

typedef struct StageSpaces {
    const SkyStage *stage;
    WaveList *lists;     /* [lines - 1][SkyListKind], of every number of lines that a micro-batch may have; the CPU's */
    SkyPresent *present; /* per slot: what there is of its micro-batch; at first as much as there can be */
    MemoryRegion state, slots;
    size_t slot_stride;     /* bytes from one slot to the next */
    UpdateScalars *updates; /* per update call */
    double *squares;        /* per parameter: what execution_squares found */
} StageSpaces;

typedef struct DeviceKind DeviceKind;

typedef struct Execution {
    const SkyProgram *program;
    const DeviceKind *kind;
    void *device;                /* what the kind keeps; NULL: nothing */
    int64_t memory_bytes;        /* of a device that has its own; else 0 */
    StageSpaces *stages;         /* as in program->stages */
    MemoryRegion scratch;        /* of all stages: dead between call lists */
    MemoryRegion thread_scratch; /* the CPU's, per thread: its kernels' scratch, then the space of blocks */
    size_t thread_scratch_stride, thread_block_offset;
    int threads;
    uint32_t line_length;            /* tokens; 1 if rows are not packed */
    bool counts_tokens;              /* calls may leave out tokens of a line */
    Team *team;                      /* of these threads, on the CPU */
    ExecuteInterpreter *interpreter; /* may be NULL */
    /* Called after every wave, when so many calls of the list are done; may be NULL. Devices that are not CPUs call it
     * after waves only with `timed`, which has them wait there, else as often as they like, with 0. */
    void (*between)(void *context, uint32_t calls);
    void *between_context;
    bool timed;
    _Alignas(MEMORY_ALIGNMENT) float step[SKY_STEP_SCALARS]; /* the step space: set it before running anything */
    double learning_rate; /* that of `step` before it was rounded, for parameters with a rate of their own */
} Execution;

/* The start of each space on the host, for one slot. Those of blocks differ by thread, and are NULL. */
typedef struct DeviceBases {
    unsigned char *space[SKY_SPACE_COUNT];
} DeviceBases;

/* The most lines of a micro-batch. */
static inline uint32_t device_most_lines(const SkyProgram *program)
{
    return program->packing.slots ? program->packing.lines : 1;
}

DeviceBases device_bases(const Execution *execution, uint32_t stage, uint32_t slot);

/* A list of calls that is to run. */
typedef struct DeviceWork {
    const Execution *execution;
    uint32_t stage, slot;
    SkyListKind list;
    UpdateScalars *updates; /* per call; NULL: not an update */
    SkyPresent present;     /* of the micro-batch */
    int first_operand;      /* which operand every call is given as its first */
    bool spot;              /* of every call the first unit alone */
    const SkyCall *failed;  /* NULL: none */
} DeviceWork;

/* Bytes at a place of a stage's memory. */
typedef struct DevicePiece {
    uint32_t stage, slot;
    SkyLocation location;
    size_t bytes;
} DevicePiece;

struct DeviceKind {
    /* Makes ready what runs need in addition to state and slots of the host. `close` undoes it, also after failure. */
    bool (*open)(Execution *execution, Diagnostics *diagnostics);
    void (*close)(Execution *execution);
    /* Runs the list; false with `failed` set if an index left its tensor, or after reporting what else went wrong. */
    bool (*run)(DeviceWork *work, Diagnostics *diagnostics);
    /* NULL, all: kernels work on the host's memory. */
    void (*fetch)(const Execution *execution, DevicePiece piece); /* from the device */
    void (*hand)(const Execution *execution, DevicePiece piece);  /* to it */
    /* Starts a fetch, during which lists may run; and whether all that were started are done. */
    void (*fetch_ahead)(const Execution *execution, DevicePiece piece);
    bool (*fetched)(const Execution *execution, bool wait);
};

/* The CPU: kernels are functions of this process, which threads share wave by wave (runtime/program/waves.h). */
extern const DeviceKind device_cpu;
/* Cuts the stage's lists into waves anew. `apart`: every call or group is a wave. */
void cpu_make_waves(const Execution *execution, StageSpaces *spaces, bool apart);

/* Devices that are reached by OpenCL: GPUs, and CPUs by PoCL. Calls go into one queue in the order of their list, and
 * the host waits at its end. */
extern const DeviceKind device_opencl;

#endif
