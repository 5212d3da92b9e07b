/* Times kernels on this machine: of processor time with one thread, so that it is charged only for its own work, and of
 * the clock with more. */
#ifndef PROFILER_PROBE_MEASURE_H
#define PROFILER_PROBE_MEASURE_H

#include "cluster/cluster.h"
#include "codegen/kernels/target.h"
#include "graph/kernel/kernel.h"
#include "profiler/costs/profile.h"
#include "runtime/device/execute.h"

/* Fills in gflops and bandwidth_Bps: a large matrix product and a large sum of two arrays, compiled for `target`, which
 * must be this machine, over buffers that stay warm, with machine->threads threads. */
bool measure_machine(MachineProfile *machine, const Target *target, Diagnostics *diagnostics);

/* The same of the device that OpenCL reaches, and how fast it copies from the host and to it. */
bool measure_opencl(MachineProfile *machine, const ClusterDevice *device, Diagnostics *diagnostics);
/* Seconds of each kernel there. */
bool measure_kernels_on_opencl(const ClusterDevice *device, Kernel *const *kernels, int count, double *seconds,
                               Diagnostics *diagnostics);
/* From the operand's address to the end of the last element it touches. */
size_t measure_operand_bytes(const Kernel *kernel, const KernelOperand *operand);
/* The kernels of which gflops and bandwidth_Bps are measured. A product of the next size does eight times as much; sums
 * grow no further than MEASURE_USUAL, which is what a processor is measured with. */
enum { MEASURE_USUAL = 2, MEASURE_LARGEST = 4 };
void measure_describe_product(Kernel *kernel, int size);
void measure_describe_sum(Kernel *kernel, int size);

/* Whether the profile has all kernels of the stage. */
bool stage_is_measured(const MachineProfile *machine, const SkyStage *stage);
/* What other devices of the cluster do on a host while one of them computes there: `count` processors are at work for
 * `share` of the time. They slow each other down: they share caches, memory, and often cores. */
typedef struct MeasureCompany {
    int count;
    double share;
} MeasureCompany;
/* Of the CPUs with so many threads, on average, on hosts of so many processors. */
MeasureCompany measure_company(const Cluster *cluster, int threads, int processors);

/* What all layers read and write in caches, which decides what a layer finds there when its turn comes: bytes. */
typedef struct LayerTraffic {
    size_t microbatch_bytes, update_bytes;
} LayerTraffic;
void layer_traffic_add(LayerTraffic *traffic, const SkyStage *stage);

/* Runs the only stage of the first execution, whose inputs are set, for some micro-batches, with caches as layers leave
 * them that have such traffic, and appends what its kernels took: the median of each. Over buffers of their
 * own that stay warm they would seem a fifth faster than they are. company.count more executions of the same program
 * follow, each for a thread that keeps a processor busy. False, after reporting, as execution_run. */
bool measure_stage(MachineProfile *machine, Arena *arena, Execution *executions, LayerTraffic traffic,
                   MeasureCompany company, Diagnostics *diagnostics);

/* The same measured several times: processors are faster in some seconds than in others. */
typedef struct MeasurePasses {
    MachineProfile mean; /* of each kernel; in the arena */
    int count;
    double mean_total, squares; /* of all kernels together: seconds, and of the deviations from their mean */
} MeasurePasses;
void measure_passes_add(MeasurePasses *passes, Arena *arena, const MachineProfile *pass);
/* The standard deviation of a pass, as a share of the mean. */
double measure_passes_spread(const MeasurePasses *passes);
/* Whether more of them would hardly change the mean, or there are so many that they do not help. */
bool measure_passes_are_enough(const MeasurePasses *passes);

/* What the calls of a model's stages are known by, in order: one entry a wave. Free `hash`. */
typedef struct StageWorks {
    Hash *hash, structure; /* structure: how many of them each list has */
    size_t count;
} StageWorks;
void stage_works_append(StageWorks *works, const SkyStage *stage);
/* Adds what `works` of a micro-batch of `rows` rows take to the machine, between the times of the same model with fewer
 * and with more rows. False if its calls are not the same, one by one. */
bool stage_works_interpolate(MachineProfile *machine, Arena *arena, const StageWorks *works, double rows,
                             const StageWorks *fewer, double fewer_rows, const StageWorks *more, double more_rows);

/* Seconds on the clock that counts for so many threads. */
double measure_now_s(int threads);

#endif
