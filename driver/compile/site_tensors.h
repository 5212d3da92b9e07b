/* Maps messages between sites to the tensors in the plan, so that gateways can count them. */
#ifndef DRIVER_COMPILE_SITE_TENSORS_H
#define DRIVER_COMPILE_SITE_TENSORS_H

#include "base/json_writer.h"
#include "driver/compile/stage_programs.h"

/* The members "plan" and "tensors" of site.json (runtime/wire/site_file.h). */
void site_tensors_add(const StagePrograms *pipeline, const Plan *plan, JsonWriter *json);

#endif
