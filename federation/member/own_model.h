/* Files of a site that hold what the federation's model holds. */
#ifndef FEDERATION_MEMBER_OWN_MODEL_H
#define FEDERATION_MEMBER_OWN_MODEL_H

#include "federation/federation.h"
#include "federation/global_model.h"

/* Opens such a file of this federation, or of the one that it follows, whose model is the same: the site goes on with
 * what it has, under the new name. Errors as global_model_open_file has them; free the model in any case. */
bool own_model_open(GlobalModel *model, const FederationCompiled *compiled, const char *path, Diagnostics *diagnostics);

#endif
