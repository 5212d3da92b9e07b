/* AMX tile registers: Linux hands them out to processes that ask. */
#ifndef RUNTIME_PROGRAM_TILES_H
#define RUNTIME_PROGRAM_TILES_H

#include <stdbool.h>

/* Asks for them, for all threads of the process. False where the processor or the system has none. */
bool tiles_request(void);

#endif
