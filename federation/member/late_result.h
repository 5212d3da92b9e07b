/* Rounds whose result comes while training goes on: a site's update says what its steps made up to the round's end, and
 * some steps later, always as many, its checkpoint becomes the federation's model plus what those steps made of it. So
 * the result does not depend on when it arrives, and no step is lost (delayed application: Streaming DiLoCo, arXiv
 * 2501.18512, which mixes both models instead).
 *
 * Where the round's steps ended lies on the site's disk, from before the next ones are made until another round ends.
 * */
#ifndef FEDERATION_MEMBER_LATE_RESULT_H
#define FEDERATION_MEMBER_LATE_RESULT_H

#include "federation/member/site_checkpoint.h"

/* Writes the values of the checkpoint of `step` to `path`, as the end of start->round. */
bool round_end_write(const char *path, const char *checkpoint, int64_t step, const Federation *federation,
                     const GlobalModel *start, Diagnostics *diagnostics);
/* Adds to the model's elements `part`, in the checkpoint of `step`, what was made since *end; does nothing where that
 * has been done. *end is used up. */
bool late_result_take(const char *checkpoint, int64_t step, const Federation *federation, const GlobalModel *model,
                      GlobalModel *end, FragmentRange part, const TiedNames *tied, Diagnostics *diagnostics);

#endif
