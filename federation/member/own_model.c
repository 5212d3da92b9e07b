#include "federation/member/own_model.h"

bool own_model_open(GlobalModel *model, const FederationCompiled *compiled, const char *path, Diagnostics *diagnostics)
{
    Diagnostics unsaid = {0};
    bool former = !hash_equal(compiled->follows, (Hash){0, 0}) &&
                  global_model_open_file(model, compiled->follows, path, false, &unsaid);
    diagnostics_free(&unsaid);
    if (former) {
        model->identity = compiled->identity;
        return true;
    }
    if (!hash_equal(compiled->follows, (Hash){0, 0})) global_model_free(model);
    return global_model_open_file(model, compiled->identity, path, false, diagnostics);
}
