/* deploy.json: it is read, and what is printed of it is read again as the same. */
#include "driver/deploy/deploy_list.h"

#include <string.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Diagnostics diagnostics = {0};
    DeployList list, again;
    fuzz_begin();
    fuzz_file("folder/" DEPLOY_LIST_FILE, data, size);
    bool ok = deploy_list_read(&list, "folder", &diagnostics);
    if (ok) {
        Buffer first = {0}, second = {0};
        deploy_list_print(&list, &first);
        fuzz_file("again/" DEPLOY_LIST_FILE, (const uint8_t *)first.bytes, first.size);
        if (!deploy_list_read(&again, "again", &diagnostics)) {
            diagnostics_print(&diagnostics, stderr);
            bug("a printed list is not read");
        }
        deploy_list_print(&again, &second);
        if (strcmp(buffer_text(&first), buffer_text(&second)) != 0) bug("a list changed by being printed and read");
        deploy_list_free(&again);
        buffer_free(&first);
        buffer_free(&second);
    }
    deploy_list_free(&list);
    fuzz_end(ok, &diagnostics);
    return 0;
}
