/* federation.yaml as people write it and as skycc federate does; what is printed of it is read again as it was. */
#include <string.h>

#include "federation/federation.h"
#include "tests/fuzz/fuzz.h"

static void print_and_read(const Federation *federation)
{
    Federation again;
    Buffer text = {0}, same = {0};
    Diagnostics diagnostics = {0};
    federation_print(federation, &text);
    fuzz_file("again.yaml", (const uint8_t *)text.bytes, text.size);
    if (!federation_read_compiled(&again, "again.yaml", &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        bug("what was printed is not read: %s", buffer_text(&text));
    }
    federation_print(&again, &same);
    if (strcmp(buffer_text(&text), buffer_text(&same)) != 0) bug("printed again it differs");
    federation_free(&again);
    buffer_free(&text);
    buffer_free(&same);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_file("federation.yaml", data, size);
    for (int compiled = 0; compiled < 2; compiled++) {
        Federation federation;
        Diagnostics diagnostics = {0};
        fuzz_begin();
        bool ok = compiled ? federation_read_compiled(&federation, "federation.yaml", &diagnostics)
                           : federation_read(&federation, "federation.yaml", NULL, &diagnostics);
        if (ok && compiled) print_and_read(&federation);
        if (ok) federation_free(&federation);
        fuzz_end(ok, &diagnostics);
    }
    return 0;
}
