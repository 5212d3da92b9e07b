/* Children that become other programs. */
#ifndef BASE_CHILD_H
#define BASE_CHILD_H

#include <sys/types.h>

/* fork() for a child that calls exec: no handler of this process runs in it, which would swallow a signal that is meant
 * for the program. Signals have their default actions there, or stay ignored. */
pid_t child_fork(void);

#endif
