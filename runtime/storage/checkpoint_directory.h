/* The directory of a run's checkpoints: which steps there are, room for another, removal of old ones. A step without
 * MANIFEST.json does not exist. */
#ifndef RUNTIME_STORAGE_CHECKPOINT_DIRECTORY_H
#define RUNTIME_STORAGE_CHECKPOINT_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diagnostics.h"

/* "DIR/step-00000100"; free() it. */
char *checkpoint_path(const char *directory, int64_t step);
/* "DIR/step-00000100/MANIFEST.json"; free() it. */
char *checkpoint_manifest_path(const char *directory, int64_t step);
/* The newest step that has a manifest; -1 if there is none. */
int64_t checkpoint_newest(const char *directory);
/* The complete steps, newest first; free() them. */
int64_t *checkpoint_newest_steps(const char *directory, size_t *count);

/* Creates the directory if it is missing; an error if nothing can be written there. */
bool checkpoint_check_directory(const char *directory, Diagnostics *diagnostics);
/* Locks the directory under this name until the process ends, however it ends. The lock is a file DIRECTORY/.lock-NAME,
 * which stays and says nothing by itself. CHECKPOINT_LOCK_HELD: another process has it, on this host or, if the file
 * system shares locks (NFS does), on another. Warns of file systems without locks. *descriptor (may be NULL) becomes
 * what holds the lock, -1 if nothing does; a child that inherits it keeps the lock. */
typedef enum CheckpointLock { CHECKPOINT_LOCKED, CHECKPOINT_LOCK_HELD, CHECKPOINT_LOCK_FAILED } CheckpointLock;
CheckpointLock checkpoint_lock(const char *directory, const char *name, int *descriptor, Diagnostics *diagnostics);
/* Creates the directory and that of the step, if they are missing. */
bool checkpoint_make_step(const char *directory, int64_t step, Diagnostics *diagnostics);
/* Reports if a file that this process reads lies where the checkpoints of `directory` are written and removed. To be
 * asked before a checkpoint is read. */
bool checkpoints_spare_inputs(const char *directory, Diagnostics *diagnostics);
/* Makes room for a step: creates its directory, or empties what an interrupted run left there. */
bool checkpoint_prepare(const char *directory, int64_t step, Diagnostics *diagnostics);

/* Removes steps older than kept[0], the newest, that are not in `kept`. `spare_complete`: but none that has a manifest.
 * Hosts with directories of their own have no manifest there. `retires`: their files wait to be overwritten by those of
 * further steps. */
void checkpoint_prune(const char *directory, const int64_t *kept, size_t count, bool spare_complete, bool retires);
/* Brings such a file to where file_create_again looks for it: true. */
bool checkpoint_bring_retired(const char *directory, const char *path);
/* Removes those that wait. */
void checkpoint_drop_retired(const char *directory);

/* Removes every step but this one. */
void checkpoint_remove_others(const char *directory, int64_t step);

#endif
