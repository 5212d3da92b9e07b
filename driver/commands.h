/* The subcommands: one file each, one row each in main.c. Each takes its own argc and argv (argv[0] is its name) and
 * returns skycc's exit code. */
#ifndef DRIVER_COMMANDS_H
#define DRIVER_COMMANDS_H

int check_main(int argc, char **argv);
int compile_main(int argc, char **argv);
int plan_main(int argc, char **argv);
int export_main(int argc, char **argv);
int probe_main(int argc, char **argv);
int bert_main(int argc, char **argv);
int run_main(int argc, char **argv);
int tokenize_main(int argc, char **argv);
int diff_main(int argc, char **argv);
int explain_main(int argc, char **argv);
int plot_main(int argc, char **argv);
int verify_main(int argc, char **argv);

#endif
