#include "runtime/program/tiles.h"

#if defined __x86_64__ && defined __linux__

#include <sys/syscall.h>
#include <unistd.h>

/* From the kernel's asm/prctl.h and Documentation/arch/x86/xstate.rst, which older headers lack. */
enum { REQUEST_STATE_PERMISSION = 0x1023, STATE_TILE_DATA = 18 };

bool tiles_request(void) { return syscall(SYS_arch_prctl, REQUEST_STATE_PERMISSION, STATE_TILE_DATA) == 0; }

#else

bool tiles_request(void) { return false; }

#endif
