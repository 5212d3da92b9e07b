#include "runtime/train/doorbell.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void doorbell_name(char name[DOORBELL_NAME])
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, DOORBELL_NAME, "/skycc-%ld-%lld-%ld", (long)getpid(), (long long)now.tv_sec, now.tv_nsec);
}

Bell *doorbell_map(const char *name, int count, bool create)
{
    size_t size = (size_t)count * sizeof(Bell);
    int descriptor = shm_open(name, create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
    if (descriptor < 0) return NULL;
    void *bells = MAP_FAILED;
    if (!create || ftruncate(descriptor, (off_t)size) == 0)
        bells = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (bells != MAP_FAILED) return bells;
    if (create) shm_unlink(name);
    return NULL;
}

void doorbell_unlink(const char *name) { shm_unlink(name); }

void doorbell_unmap(Bell *bells, int count)
{
    if (bells) munmap(bells, (size_t)count * sizeof(Bell));
}

void doorbell_ring(Bell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    if (atomic_load(&bell->sleeping)) syscall(SYS_futex, &bell->rings, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void doorbell_sleep(Bell *bell, uint32_t seen, double seconds)
{
    struct timespec limit = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    atomic_store(&bell->sleeping, 1); /* before the kernel compares `rings`, so that no ring is missed */
    syscall(SYS_futex, &bell->rings, FUTEX_WAIT, seen, &limit, NULL, 0);
    atomic_store(&bell->sleeping, 0);
}
