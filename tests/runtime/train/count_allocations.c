/* Preloaded into stage programs: counts what is allocated, by the library or program that asked for it, and adds a line
 * "NAME COUNT" each to the file that COUNT_ALLOCATIONS names when the process ends, and "resident:PROGRAM BYTES", the
 * most memory that it had. Calls inside the C library count for who called it. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

enum { MOST_OBJECTS = 64, MOST_FRAMES = 32 };

static struct Object {
    const void *base;
    const char *path;
    _Atomic long count;
} objects[MOST_OBJECTS];
static _Atomic int object_count;
static _Atomic bool active; /* while this is a program that counts */
static __thread bool inside __attribute__((tls_model("initial-exec")));
static const void *own_base, *libc_base;

static void add(const Dl_info *info)
{
    int known = object_count;
    for (int i = 0; i < known; i++)
        if (objects[i].base == info->dli_fbase) {
            objects[i].count++;
            return;
        }
    if (known == MOST_OBJECTS) abort();
    objects[known].base = info->dli_fbase; /* a race of threads counts one object twice: harmless */
    objects[known].path = info->dli_fname;
    objects[known].count = 1;
    object_count = known + 1;
}

static void count(void)
{
    if (!active || inside) return;
    inside = true;
    void *frames[MOST_FRAMES];
    Dl_info info = {0};
    int depth = backtrace(frames, MOST_FRAMES);
    for (int i = 0; i < depth; i++) {
        if (!dladdr(frames[i], &info) || info.dli_fbase == own_base || info.dli_fbase == libc_base) continue;
        add(&info);
        break;
    }
    inside = false;
}

void *malloc(size_t size)
{
    count();
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
    count();
    return __libc_calloc(number, size);
}

void *realloc(void *memory, size_t size)
{
    count();
    return __libc_realloc(memory, size);
}

void *memalign(size_t alignment, size_t size);
void *memalign(size_t alignment, size_t size)
{
    count();
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    count();
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    count();
    *memory = __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    count();
    return (void *)syscall(SYS_mmap, address, size, protection, flags, file, offset);
}

__attribute__((constructor)) static void begin(void)
{
    if (!getenv("COUNT_ALLOCATIONS") || strncmp(program_invocation_short_name, "stage-", 6) != 0) return;
    Dl_info info;
    void *frames[1];
    backtrace(frames, 1); /* loads what it needs */
    if (dladdr((void *)begin, &info)) own_base = info.dli_fbase;
    if (dladdr(dlsym(RTLD_NEXT, "fopen"), &info)) libc_base = info.dli_fbase;
    active = true;
}

__attribute__((destructor)) static void end(void)
{
    if (!active) return;
    active = false;
    char text[16384];
    int length = 0;
    for (int i = 0; i < object_count; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%s %ld\n", objects[i].path, objects[i].count);
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) abort();
    length += snprintf(text + length, sizeof text - (size_t)length, "resident:%s %ld\n", program_invocation_short_name,
                       usage.ru_maxrss * 1024);
    int file = open(getenv("COUNT_ALLOCATIONS"), O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (file < 0 || write(file, text, (size_t)length) != length) abort();
}
