/* What a host has of what a run needs, found by one shell script that changes nothing. */
#ifndef DRIVER_DEPLOY_SURVEY_H
#define DRIVER_DEPLOY_SURVEY_H

#include "driver/deploy/deploy_list.h"
#include "driver/deploy/remote.h"

/* The data set, in addition to the list. */
typedef struct DeployData {
    const char *path;  /* here; NULL: there is none */
    const char *there; /* absolute path on the hosts */
    DeployFile file;   /* its name has no meaning */
} DeployData;

/* What is asked of every host. */
typedef struct Deployment {
    const DeployList *list;
    const char *directory;   /* here, absolute */
    const char *destination; /* there, absolute; the same on every host */
    DeployData data;
    Remote remote;
} Deployment;

typedef struct SurveyFile {
    const DeployFile *file;
    const char *here, *there; /* absolute paths */
    const char *partial;      /* there: what an interrupted transfer left */
    bool is_right;            /* it is there, with the right hash and mode */
    bool is_other;            /* something else is there under its name */
    uint64_t partial_bytes;
} SurveyFile;

typedef struct Survey {
    Arena arena;
    const DeployHost *host;
    bool answered;
    const char *silence; /* what ssh said of one that did not answer; may be NULL */
    SurveyFile *files;
    int file_count;
    const char **absent; /* weights outside the folder that are not there */
    size_t absent_count;
    const char *mpi; /* version of mpiexec; NULL: it is not installed */
    const char *architecture, *flags;
    const char *lacks;      /* libraries that programs do not find there, or "" */
    const char **no_launch; /* commands in front of programs that are not there */
    size_t no_launch_count;
    uint64_t memory_bytes, room_bytes; /* available; UINT64_MAX: it does not say */
    bool read_only;                    /* the folder cannot be made, or written to */
    bool has_sha256;                   /* it has sha256sum */
    int *ports;                        /* that something listens on */
    size_t port_count;
    double clock_least, clock_most; /* seconds that its clock is ahead of this one: between these */
} Survey;

/* Fills `survey`, also for a host that does not answer. Errors (EXIT_RUN_FAILED): ssh cannot be started. Free with
 * survey_free. */
bool survey_take(Survey *survey, const Deployment *deployment, const DeployHost *host, Diagnostics *diagnostics);
void survey_free(Survey *survey);

/* How long the slowest host may take to hash so many bytes. */
int survey_work_ms(uint64_t bytes);
/* The bytes that must still be sent. */
uint64_t survey_missing_bytes(const Survey *survey);
/* Reports that a host did not answer (EXIT_RUN_FAILED); false. */
bool survey_refuse_silence(const Survey *survey, Diagnostics *diagnostics);

/* mpiexec's version here; NULL: it is not installed. In the arena. */
const char *survey_own_mpi(Arena *arena, Diagnostics *diagnostics);

#endif
