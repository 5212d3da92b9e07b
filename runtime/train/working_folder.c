#include "runtime/train/working_folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool working_folder_enter(Diagnostics *diagnostics)
{
    const char *folder = getenv("SKYCC_FOLDER");
    char host[256] = "";
    if (!folder || chdir(folder) == 0) return true;
    const char *why = strerror(errno);
    gethostname(host, sizeof host - 1);
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(folder),
                             "start it in a folder that all hosts have, such as that of train",
                             "train was started here, where host %s cannot go: %s", host, why);
}
