/* The program that runs kernels under emulation: cases on standard input, operands afterwards on standard output. For
 * every case: ForeignCase, the bytes of each operand, its data. `foreign_kernels` is generated. */
#include "tests/codegen/kernels/foreign_runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void Kernel(void *const *operand, int64_t begin, int64_t end, void *scratch, int64_t limit);
extern Kernel *const foreign_kernels[];

static void *allocate(size_t bytes)
{
    void *data = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!data) exit(2);
    return data;
}

static void receive(void *data, size_t bytes)
{
    if (fread(data, 1, bytes, stdin) != bytes) exit(2);
}

static void run_case(const ForeignCase *header)
{
    uint64_t bytes[FOREIGN_MAX_OPERANDS];
    void *whole[FOREIGN_MAX_OPERANDS], *pieces[FOREIGN_MAX_OPERANDS], *scratch = allocate(header->scratch_bytes);
    receive(bytes, header->operands * sizeof bytes[0]);
    for (uint64_t i = 0; i < header->operands; i++) {
        whole[i] = allocate(bytes[i]);
        pieces[i] = allocate(bytes[i]);
        receive(whole[i], bytes[i]);
        memcpy(pieces[i], whole[i], bytes[i]);
    }
    Kernel *kernel = foreign_kernels[header->kernel];
    kernel(whole, 0, header->units, scratch, INT64_MAX);
    for (int64_t end = header->units, size = 1; end > 0; end -= size, size = size % 7 + 1)
        kernel(pieces, end > size ? end - size : 0, end, scratch, INT64_MAX);
    for (uint64_t i = 0; i < header->operands; i++) {
        if (memcmp(whole[i], pieces[i], bytes[i]) != 0) exit(3);
        if (fwrite(whole[i], 1, bytes[i], stdout) != bytes[i]) exit(2);
        free(whole[i]);
        free(pieces[i]);
    }
    free(scratch);
}

int main(void)
{
    ForeignCase header;
    while (fread(&header, sizeof header, 1, stdin) == 1) run_case(&header);
    return 0;
}
