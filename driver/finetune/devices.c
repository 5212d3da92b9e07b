/* The devices of a run: this machine, or those of a cluster file. */
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/parts.h"
#include "cluster/cluster.h"
#include "driver/finetune/decide.h"

const char *finetune_this_machine(Settings *settings)
{
    cpu_set_t set_of_cpus;
    int threads = sched_getaffinity(0, sizeof set_of_cpus, &set_of_cpus) == 0 ? CPU_COUNT(&set_of_cpus) : 1;
    long long kilobytes = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    char line[256];
    while (file && fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %lld kB", &kilobytes) != 1) continue;
    if (file) fclose(file);
    if (kilobytes < 1024) kilobytes = 4LL << 20;
    return arena_format(&settings->arena, "devices: [{name: here, threads: %d, memory: %lldMiB}]\n", threads,
                        kilobytes / 1024 * 9 / 10);
}

/* Hosts other than this one, a line each. */
static const char *other_hosts(Settings *settings, const Cluster *cluster)
{
    char own[256] = "";
    const char *list = "";
    gethostname(own, sizeof own - 1);
    for (int d = 0; d < cluster->device_count; d++) {
        const char *host = cluster->devices[d].host;
        if (strcmp(host, "localhost") == 0 || strcmp(host, own) == 0 || text_has_part(list, host, LIST_SEPARATOR))
            continue;
        list = arena_format(&settings->arena, "%s%s%s", list, *list ? LIST_SEPARATOR : "", host);
    }
    return list;
}

bool finetune_decide_devices(Settings *settings, const char *path, const TextList *without, Diagnostics *diagnostics)
{
    FREED_WITH(cluster_free) Cluster cluster = {.device_count = 0};
    bool ok = !path || cluster_read(&cluster, path, diagnostics);
    if (ok && cluster.site_count)
        ok = usage_error(diagnostics,
                         "skycc finetune ... --dry-run prints the single commands; docs/sites.md has the rest",
                         "%s names sites, whose keys and data are their own", path);
    if (ok) {
        settings_set(settings, SETTING_CLUSTER, path ? settings_path(settings, path) : SETTING_THIS_MACHINE,
                     path ? NULL : "name other devices with -d CLUSTER.yaml");
        settings_set(settings, SETTING_HOSTS, other_hosts(settings, &cluster), "skycc deploy copies what they need");
        settings_set(settings, SETTING_WITHOUT, settings_list(settings, without->items, without->count), NULL);
    }
    return ok;
}
