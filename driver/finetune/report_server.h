/* Serves a run's report to browsers of this machine (--serve), from a process of its own, on 127.0.0.1 alone.
 *
 * It answers GET and HEAD of the report, the log, the plan's report and pictures in RUN, and nothing else: names are
 * compared, never joined to paths as they come. Requests that name another host are refused, so that a page from
 * elsewhere cannot read the report through a name that leads here. */
#ifndef DRIVER_FINETUNE_REPORT_SERVER_H
#define DRIVER_FINETUNE_REPORT_SERVER_H

#include <sys/types.h>

#include "base/diagnostics.h"

typedef struct ReportServer {
    pid_t process; /* 0: there is none */
    int port;
} ReportServer;

/* `port` 0: a free one. A port that is taken is an error. */
bool report_server_start(ReportServer *server, const char *run, int port, Diagnostics *diagnostics);
void report_server_end(ReportServer *server);

#endif
