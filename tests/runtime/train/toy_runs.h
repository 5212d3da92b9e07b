/* Runs of the toy program of toy_program.c under mpiexec, in a scratch folder with the file `data`. */
#ifndef TESTS_RUNTIME_TRAIN_TOY_RUNS_H
#define TESTS_RUNTIME_TRAIN_TOY_RUNS_H

#include <stdbool.h>
#include <stdint.h>

enum { ROWS = 43, LENGTH = 6, VOCABULARY = 50, CLASSES = 3 };

/* Set-up for cmocka, with scratch_folder_leave as its counterpart: an empty folder with `data`. */
int toy_set_up(void **state);

int rank_count(const char *stages);
/* Trains with stage i on rank stages[i]; `environment` holds further settings of the toy. Returns the exit code. */
int train(const char *stages, const char *environment, const char *options);

/* The first three columns of a log: what must not depend on the plan. free() it. */
char *losses(const char *log);
void assert_losses(const char *log, const char *expected);
/* Those of a run on one rank with these options. */
char *reference(const char *environment, const char *options);

typedef struct Data {
    int64_t rows, label_rows, length;
    int32_t bad_id, bad_label; /* 0: none; else put into one row */
    int32_t bad_everywhere;    /* not 0: every id */
    int unlabelled;            /* rows, from the first on, whose label does not count */
    bool without_labels, wide; /* wide: in 64 bits */
} Data;

void write_data(const char *name, Data data);

/* A folder like those that the compiler writes, of two ranks on hosts that may be NULL. */
void write_launch_files(const char *name, const char *first_host, const char *second_host);

#endif
