/* deploy.json ("skycc.deploy/1"), which skycc compile leaves next to the programs: the hosts of a folder's ranks,
 * and what each host needs. */
#ifndef DRIVER_DEPLOY_DEPLOY_LIST_H
#define DRIVER_DEPLOY_DEPLOY_LIST_H

#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/diagnostics.h"
#include "driver/deploy/sha256.h"

#define DEPLOY_LIST_FILE "deploy.json"

typedef struct DeployFile {
    const char *name; /* in the folder: no directories */
    uint64_t bytes;
    Sha256Text sha256;
    bool executable;
} DeployFile;

/* What a program was compiled for. Of equal ones the list has one. */
typedef struct DeployProcessor {
    const char *architecture; /* as uname -m has it */
    const char *cpu;          /* as LLVM calls it */
    const char *flags;        /* that it must have, as Linux calls them, with blanks between; "": not known */
    const char *launch;       /* command in front of the program, such as qemu-aarch64-static; "": none */
} DeployProcessor;

typedef struct DeployRank {
    int rank;
    const char *device;
    const char *program; /* name of a file */
    int processor;       /* index */
    uint64_t memory_bytes;
} DeployRank;

typedef struct DeployHost {
    const char *name; /* as launch_host_is_valid wants it; "localhost": the one that train is started on */
    DeployRank *ranks;
    int rank_count;
    int *files; /* indices */
    int file_count;
    const char **outside; /* weights in the model's own files, relative to the folder; of "localhost" alone */
    int outside_count;
} DeployHost;

typedef struct DeployList {
    Arena arena;
    int first_port, last_port; /* where ranks and mpiexec listen; 0: anywhere */
    int gateway_port;          /* where the site's gateway listens; 0: none does */
    DeployFile *files;
    int file_count;
    DeployProcessor *processors;
    int processor_count;
    DeployHost *hosts;
    int host_count;
} DeployList;

void deploy_list_print(const DeployList *list, Buffer *text);
/* Reads DIRECTORY/deploy.json. Errors (EXIT_BAD_INPUT): whatever is not as it must be, such as names that lead out of
 * the folder or are no hosts'. Free with deploy_list_free, also after an error. */
bool deploy_list_read(DeployList *list, const char *directory, Diagnostics *diagnostics);
void deploy_list_free(DeployList *list);

#endif
