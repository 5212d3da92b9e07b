/* A checkpoint's MANIFEST.json, as it is and with a hash that is right, and the rows that a run goes on with. */
#include <stdlib.h>
#include <string.h>

#include "runtime/storage/checkpoint_manifest.h"
#include "tests/fuzz/fuzz.h"

enum { STEP = 7, ROWS = 2, BATCHES = 3, MOST_ROWS = 1 << 16 };

static void draw_rows(CheckpointManifest *manifest)
{
    DataOrder order;
    uint32_t rows[ROWS];
    data_order_open(&order, manifest->seed, manifest->rows, ROWS, manifest->shuffled);
    for (int i = 0; i < BATCHES; i++) {
        data_order_next(&order, &manifest->cursor, rows);
        for (int r = 0; r < ROWS; r++)
            if (rows[r] >= manifest->rows) bug("row %u of %lld", rows[r], (long long)manifest->rows);
    }
    data_order_close(&order);
}

static void read_manifest(const void *bytes, size_t size)
{
    fuzz_begin();
    Diagnostics diagnostics = {0};
    CheckpointManifest manifest;
    fuzz_file("checkpoints/step-00000007/MANIFEST.json", bytes, size);
    bool ok = checkpoint_read_manifest(&manifest, "checkpoints", STEP, &diagnostics);
    if (ok) {
        for (int f = 0; f < manifest.file_count; f++)
            if (strchr(manifest.files[f].name, '/')) bug("a file that lies elsewhere: %s", manifest.files[f].name);
        if (manifest.rows >= ROWS && manifest.rows <= MOST_ROWS) draw_rows(&manifest);
        free(manifest.files);
    }
    fuzz_end(ok, &diagnostics);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char end[] = "\n}\n";
    enum { END = sizeof end - 1 };
    read_manifest(data, size);
    Buffer sealed = {0}; /* to reach the code after the check of the hash */
    buffer_append(&sealed, data, size >= END && memcmp(data + size - END, end, END) == 0 ? size - END : size);
    checkpoint_seal_manifest(&sealed);
    read_manifest(sealed.bytes, sealed.size);
    buffer_free(&sealed);
    return 0;
}
