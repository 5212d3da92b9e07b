/* The commands: what each does once its options are read. Each returns skycc's exit code; what it reports through
 * `diagnostics` its caller prints. */
#ifndef DRIVER_COMMANDS_COMMANDS_H
#define DRIVER_COMMANDS_COMMANDS_H

#include "driver/options/options.h"

typedef int RunCommand(const Options *options, Diagnostics *diagnostics);

RunCommand check_command, bert_command, compile_command, probe_command, plan_command, explain_command, diff_command,
    verify_command, plot_command, run_command, export_command, tokenize_command, import_command, head_command,
    predict_command, key_command, federate_command, coordinate_command, deploy_command;
/* Of probe --site. */
RunCommand probe_sites_command;

#endif
