/* Outputs of one command that appear together or not at all. */
#ifndef BASE_OUTPUTS_H
#define BASE_OUTPUTS_H

#include "base/diagnostics.h"

/* From now on, file_commit and directory_commit finish outputs but keep them under their temporary names. Standard
 * output, special files and what is in an unfinished directory take no part. */
void outputs_hold(void);

/* Gives them their names, in the order of their commits, if `ok`; otherwise removes them. Returns whether all are in
 * place: a failure leaves those that came before it. */
bool outputs_release(bool ok, Diagnostics *diagnostics);

/* For file.c and directory.c: renames a finished output, or reports and removes it. Frees `temporary`. */
typedef bool PlaceOutput(const char *path, char *temporary, bool keep_others, Diagnostics *diagnostics);

/* Calls `place`, now or in outputs_release. */
bool outputs_place(PlaceOutput *place, const char *path, char *temporary, bool keep_others, Diagnostics *diagnostics);

#endif
