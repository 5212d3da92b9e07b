/* Files that start the programs of an output directory: `train` (a script, for mpiexec), `run.mpi` (an mpiexec
 * -configfile), `run.sbatch` and `run.conf` (Slurm). */
#ifndef CODEGEN_LINK_LAUNCH_H
#define CODEGEN_LINK_LAUNCH_H

#include "base/diagnostics.h"
#include "cluster/cluster.h"

typedef struct LaunchRank {
    const char *program; /* file name in the directory: "stage-00" */
    const char *host;    /* NULL or "localhost": where mpiexec runs */
    int threads;         /* 0: as many as there are processors */
    const char *prefix;  /* a command that runs the program, such as "qemu-aarch64-static"; NULL or "": none */
} LaunchRank;

typedef struct LaunchPlan {
    const LaunchRank *ranks; /* in order */
    int rank_count;
    const char
        *site; /* whose ranks these are; a gateway, started by `train`, joins them with other sites; NULL: none */
    ClusterNetwork network; /* where they are on several hosts */
} LaunchPlan;

/* Whether it is a name that launchers, and ssh, take for a host and for nothing else. */
bool launch_host_is_valid(const char *host);
/* Whether it is the host that the launcher runs on, by its name: NULL or "localhost". */
bool launch_host_is_here(const char *host);

/* Writes the files into `directory`; they name programs relative to where they lie. Errors: a host or prefix that a
 * configuration file cannot hold; I/O. */
bool launch_files_write(const LaunchPlan *plan, const char *directory, Diagnostics *diagnostics);

#endif
