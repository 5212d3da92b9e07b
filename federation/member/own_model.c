#include "federation/member/own_model.h"

bool own_model_open(GlobalModel *model, const FederationCompiled *compiled, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(diagnostics_free) Diagnostics unsaid = {0};
    if (!hash_equal(compiled->follows, (Hash){0, 0})) {
        if (global_model_open_file(model, compiled->follows, path, false, &unsaid)) {
            model->identity = compiled->identity;
            return true;
        }
        global_model_free(model);
    }
    return global_model_open_file(model, compiled->identity, path, false, diagnostics);
}
