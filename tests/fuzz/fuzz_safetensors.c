/* A safetensors file, read as such and as training data. */
#include "base/safetensors.h"
#include "tests/fuzz/fuzz.h"

/* Reads every byte that the file says there is. */
static void touch(const SafeTensor *tensor)
{
    static volatile unsigned char last;
    const unsigned char *bytes = tensor->data;
    if ((uintptr_t)bytes % dtype_size(tensor->dtype) != 0) bug("tensor '%s' is not aligned", tensor->name);
    for (size_t i = 0; i < tensor->bytes; i++) last = bytes[i];
    (void)last;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    Diagnostics diagnostics = {0};
    SafeTensors file;
    fuzz_file("fuzz.safetensors", data, size);
    bool ok = safetensors_open(&file, "fuzz.safetensors", &diagnostics);
    if (ok) {
        for (size_t i = 0; i < file.count; i++) {
            touch(&file.tensors[i]);
            if (safetensors_find(&file, file.tensors[i].name) != &file.tensors[i]) bug("a tensor is not found");
        }
        if (file.metadata_count && !safetensors_metadata(&file, file.metadata[0])) bug("metadata is not found");
        safetensors_close(&file);
    }
    fuzz_end(ok, &diagnostics);
    return 0;
}
