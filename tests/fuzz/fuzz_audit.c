/* An audit: it is read, and what is written of it is read again as the same. */
#include "runtime/wire/audit.h"

#include <string.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Diagnostics diagnostics = {0};
    WireAudit audit, again;
    fuzz_begin();
    fuzz_file("audit", data, size);
    bool ok = wire_audit_read(&audit, "audit", &diagnostics);
    if (ok) {
        Buffer first = {0}, second = {0};
        wire_audit_print(&audit, &first);
        fuzz_file("again", (const uint8_t *)first.bytes, first.size);
        if (!wire_audit_read(&again, "again", &diagnostics)) bug("a written audit is not read");
        wire_audit_print(&again, &second);
        if (strcmp(buffer_text(&first), buffer_text(&second)) != 0) bug("an audit changed by being written and read");
        buffer_free(&first);
        buffer_free(&second);
        wire_audit_free(&audit);
        wire_audit_free(&again);
    }
    fuzz_end(ok, &diagnostics);
    return 0;
}
