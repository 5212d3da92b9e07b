/* Files and directories under temporary names, which exit() and interrupts remove. For file.c and directory.c. */
#ifndef BASE_PENDING_H
#define BASE_PENDING_H

#include <stdbool.h>

/* A temporary name is the final name, this mark, the process and a number. */
#define PENDING_MARK ".partial-"

/* Makes something under a name that nothing has yet, for what will be at `path`; below 0, with errno set, if it cannot.
 */
typedef int CreateEntry(const char *temporary, const char *path);

/* Makes a file or directory next to `path`, which exit() removes unless pending_drop was called. Returns its name, and
 * in *descriptor what `create` returned; NULL, with errno set, if it cannot be made. Removes what killed processes of
 * this user left there under temporary names of `path`. */
char *pending_create(const char *path, CreateEntry *create, int *descriptor);
void pending_drop(char *temporary); /* frees the name */
/* Whether the path is in a directory that still has a temporary name. */
bool pending_holds(const char *path);

/* Between these calls no other thread makes, drops or removes a temporary name. */
void pending_hold(void);
void pending_release(void);
void pending_remove_all(void);

void remove_tree(const char *path);
/* Makes a rename durable: writes the directory of `path` to disk. */
void sync_parent(const char *path);

#endif
