/* The cluster: devices, the links between them and the targets to compile for, from cluster.yaml.
 *
 * Devices that links treat alike form a zone: those of one region (or without region, of one site) that no link names
 * for themselves. Links stand in a matrix over zones, so that a thousand devices in ten regions are ten by ten links.
 */
#ifndef CLUSTER_CLUSTER_H
#define CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/diagnostics.h"
#include "base/link_rate.h"

enum {
    CLUSTER_MAX_DEVICES = 1 << 14,
    CLUSTER_MAX_ZONES = 1 << 10,
    CLUSTER_MAX_THREADS = 1 << 12,
    CLUSTER_MAX_SITES = 1 << 8
};

#define CLUSTER_NO_LIMIT INT64_MAX
#define CLUSTER_RESERVE_PROCESS (-1)
#define CLUSTER_MEMORY_OF_DEVICE (-1)

/* What a device's programs are compiled for. Strings are "" where the file says nothing. */
typedef struct ClusterTarget {
    const char *name;
    const char *triple;   /* LLVM target triple; "" means this machine's */
    const char *cpu;      /* LLVM CPU name; "" means this machine's own, or the triple's generic one */
    const char *features; /* LLVM feature string, such as "+neon,-sve" */
    const char *linker;   /* command that links a stage program */
    const char *sysroot;  /* directory */
    const char *runtime;  /* path of libskyrt.a for this target */
    const char *launch;   /* command put in front of a program to run it, such as "qemu-aarch64-static" */
} ClusterTarget;

typedef struct ClusterDevice {
    const char *name; /* unique; letters, digits, '.', '_' and '-' only */
    const char *host; /* for mpiexec or srun; "localhost" by default */
    int target;       /* index into targets; 0 is "native" */
    /* `target: opencl`: which of the host's OpenCL devices computes, its process being one for "native". Patterns for
     * the names of platform and device, or the device's number. Else NULL. */
    const char *opencl_platform, *opencl_device;
    int threads;           /* at least 1; 1 by default */
    int64_t memory_bytes;  /* the device's; CLUSTER_NO_LIMIT if not given; CLUSTER_MEMORY_OF_DEVICE: what OpenCL says,
                              which only costs know */
    int64_t reserve_bytes; /* of it, for no stage; CLUSTER_RESERVE_PROCESS: as much as process_bytes of costs.h */
    double gflops;         /* 1e9 float32 operations per second, all threads together; 0: not given */
    double bandwidth_Bps;  /* memory bandwidth, bytes per second, all threads together; 0: not given */
    double slowdown;       /* at least 1: how many times slower than this machine the device is emulated; 1: as it is */
    const char *region;    /* NULL: none */
    int site;              /* index into sites; -1: the file names none */
    int zone;              /* index into zone_names */
} ClusterDevice;

/* One organisation's devices: started by itself, trusting the others only as far as their keys. */
typedef struct ClusterSite {
    const char *name;    /* unique; plain, as device names are */
    const char *address; /* HOST:PORT, where the others reach it; NULL: it only connects outward */
    const char *key;     /* its public key */
} ClusterSite;

typedef LinkRate ClusterLink;

/* What processes of one run of mpiexec use to reach each other, where they are on several hosts. */
typedef struct ClusterNetwork {
    const char *interface;     /* its name, or the IPv4 subnet that it is in, such as "10.1.0.0/16"; NULL: any */
    int first_port, last_port; /* where they listen; 0: anywhere */
} ClusterNetwork;

typedef struct Cluster {
    Arena arena;
    ClusterTarget *targets; /* targets[0] is "native" */
    int target_count;
    ClusterDevice *devices; /* in file order, `count` expanded: "edge-1" becomes "edge-1.0", "edge-1.1" ... */
    int device_count;       /* at least 1 */
    ClusterSite *sites;     /* in file order */
    int site_count;         /* 0: all devices trust each other, in one run of mpiexec */
    ClusterNetwork network;
    bool has_links;          /* false: the file names no link at all, communication is free */
    const char **zone_names; /* unique: a region, or a device or group that a link names; for devices without region
                                their site, or "" */
    int zone_count;
    ClusterLink *links;           /* [zone_count][zone_count], symmetric; the diagonal is the inside of a zone */
    int keep_inputs, keep_labels; /* the device that raw tensors must not leave; -1: none */
    int keep_inputs_site, keep_labels_site; /* the same of a site with several devices; -1: none */
} Cluster;

/* Reads cluster.yaml ("-": standard input). Every error that can be found is reported, with line and column: unknown,
 * repeated and missing keys, repeated names, unknown regions, devices and targets, bad units, ranges. On failure
 * *cluster is freed.
 *
 * Which link joins two devices: the most specific that names them or their regions (a device before a group with
 * `count`, a group before a region, a region before a site; of equally specific ones the last), else default_link, else
 * none: free. A link of a region or site with itself joins its devices among each other.
 *
 * Where there are sites, every device is in one, no region is in two, and of any two sites one has an address. */
bool cluster_read(Cluster *cluster, const char *path, Diagnostics *diagnostics);
/* The same, and `count` devices more from the command line (see device_spec.h): what is wrong with those is
 * EXIT_USAGE. */
bool cluster_read_with(Cluster *cluster, const char *path, const char *const *added, int count,
                       Diagnostics *diagnostics);
void cluster_free(Cluster *cluster);

/* How many blocks of a group (SkyCall), such as heads of attention, the device computes at once, each with memory of
 * its own: one per thread; by OpenCL so many that they fill a large device. */
enum { CLUSTER_OPENCL_BLOCKS = 64 };
static inline int cluster_blocks(const ClusterDevice *device)
{
    return device->opencl_device ? CLUSTER_OPENCL_BLOCKS : device->threads;
}

int cluster_find_device(const Cluster *cluster, const char *name); /* -1 if absent */
int cluster_find_site(const Cluster *cluster, const char *name);
/* How many devices with `memory: auto` have this one's host and the same words for which OpenCL device it is. */
int cluster_memory_sharers(const Cluster *cluster, const ClusterDevice *device);

#endif
