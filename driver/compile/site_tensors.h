/* Which messages between sites are the tensors that the plan lists: what gateways count them by. */
#ifndef DRIVER_COMPILE_SITE_TENSORS_H
#define DRIVER_COMPILE_SITE_TENSORS_H

#include "driver/compile/stage_programs.h"

/* The members "plan" and "tensors" of site.json (runtime/wire/site_file.h), without a comma in front. */
void site_tensors_print(const StagePrograms *pipeline, const Plan *plan, Buffer *text);

#endif
