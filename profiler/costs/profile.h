/* What `skycc probe` measured ("skycc.profile/1"): how long kernels take on machines, how fast machines are, and the
 * links between them.
 *
 * The reference machine is the one that probed, with one thread; a device without measurements of its own is that
 * machine times its slowdown. Where mpiexec started one probe per device, every device has its own. */
#ifndef PROFILER_COSTS_PROFILE_H
#define PROFILER_COSTS_PROFILE_H

#include "base/arena.h"
#include "base/diagnostics.h"
#include "base/hash.h"
#include "runtime/program/program.h"

typedef struct KernelTime {
    Hash kernel; /* or wave of kernels: profile_work */
    double seconds;
} KernelTime;

typedef struct MachineProfile {
    const char *device;   /* in the cluster file; NULL: the reference machine */
    const char *target;   /* the CPU that kernels were compiled for */
    int threads;          /* all times are with so many */
    int processors;       /* that the reference machine's processes share; 0: not known */
    double gflops;        /* 1e9 float32 operations per second of a matrix product; 0: not measured */
    double bandwidth_Bps; /* bytes per second, read and written, of an elementwise kernel; 0: not measured */
    /* Of an OpenCL device; 0: it is none. Copies from the host and to it: bytes per second; what the smallest takes. */
    int64_t memory_bytes;
    double copy_Bps[2], copy_latency_s;
    KernelTime *kernels; /* sorted by hash; none where no model was probed */
    size_t kernel_count;
} MachineProfile;

/* Measured in one direction and taken for both. */
typedef struct LinkProfile {
    const char *between[2]; /* devices */
    double latency_s;       /* one way */
    double bandwidth_Bps;
} LinkProfile;

typedef struct Profile {
    Arena arena;
    MachineProfile reference;
    MachineProfile *devices;
    size_t device_count;
    LinkProfile *links;
    size_t link_count;
} Profile;

/* On failure nothing remains to be freed. */
bool profile_read(Profile *profile, const char *path, Diagnostics *diagnostics);
bool profile_write(const Profile *profile, const char *path, Diagnostics *diagnostics);
void profile_free(Profile *profile);

void machine_profile_sort(MachineProfile *machine);
/* Adds the kernels that it lacks. */
void machine_profile_merge(MachineProfile *machine, Arena *arena, const MachineProfile *more);
/* What a call, or the wave that begins with it (runtime/program/program.h), is known by: its kernel's hash, or all of
 * theirs. */
Hash profile_work(const SkyCall *call);
/* Seconds that such work takes; < 0: it was not measured. */
double machine_profile_seconds(const MachineProfile *machine, Hash work);
/* The device's own measurements; NULL: there are none. */
const MachineProfile *profile_device(const Profile *profile, const char *device);

#endif
