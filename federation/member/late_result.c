#include "federation/member/late_result.h"

#include <stdlib.h>

bool round_end_write(const char *path, const char *checkpoint, int64_t step, const Federation *federation,
                     const GlobalModel *start, Diagnostics *diagnostics)
{
    GlobalModel end = *start;
    end.step = step;
    end.met = NULL; /* those of all tensors are where the round ended */
    end.values = memory_allocate(start->elements * sizeof *end.values);
    bool ok = site_checkpoint_read(checkpoint, step, false, federation, start, false, end.values, diagnostics) &&
              global_model_write(&end, path, diagnostics);
    free(end.values);
    return ok;
}

bool late_result_take(const char *checkpoint, int64_t step, const Federation *federation, const GlobalModel *model,
                      GlobalModel *end, FragmentRange part, const TiedNames *tied, Diagnostics *diagnostics)
{
    if (site_checkpoint_has_model(checkpoint, step, model)) return true; /* written before a kill */
    FREED float *local = memory_allocate(model->elements * sizeof *local);
    bool ok = site_checkpoint_read(checkpoint, step, false, federation, model, false, local, diagnostics);
    for (size_t i = part.first; i < part.end && ok; i++)
        end->values[i] = (float)((double)model->values[i] + ((double)local[i] - (double)end->values[i]));
    end->round = model->round;
    end->branch = model->branch;
    return ok && site_checkpoint_exchange(checkpoint, step, end, part, tied, diagnostics);
}
