#include "codegen/link/launch.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/file.h"
#include "codegen/link/launch_internal.h"

bool launch_host_is_here(const char *host) { return !host || strcmp(host, "localhost") == 0; }

static bool is_elsewhere(const LaunchRank *rank) { return !launch_host_is_here(rank->host); }

static bool any_elsewhere(const LaunchPlan *plan)
{
    for (int r = 0; r < plan->rank_count; r++)
        if (is_elsewhere(&plan->ranks[r])) return true;
    return false;
}

static const char *host_of(const LaunchRank *rank) { return rank->host ? rank->host : "localhost"; }

/* Whether ranks of a site reach its gateway by network. */
static bool is_apart(const LaunchPlan *plan)
{
    for (int r = 1; r < plan->rank_count; r++)
        if (strcmp(host_of(&plan->ranks[r]), host_of(&plan->ranks[0])) != 0) return true;
    return false;
}

static const char *prefix_of(const LaunchRank *rank) { return rank->prefix ? rank->prefix : ""; }

/* mpiexec's and Slurm's files know no quoting that both a shell and they understand: only plain words are let through.
 */
static bool is_plain(const char *text, const char *also)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    for (; *text; text++)
        if (!strchr(plain, *text) && !strchr(also, *text)) return false;
    return true;
}

bool launch_host_is_valid(const char *host) { return *host && *host != '-' && is_plain(host, ""); }

static bool check(const LaunchPlan *plan, Diagnostics *diagnostics)
{
    for (int r = 0; r < plan->rank_count; r++) {
        const LaunchRank *rank = &plan->ranks[r];
        if (rank->host && !launch_host_is_valid(rank->host))
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.object = rank->host}, NULL,
                                     "is no host name that a launcher understands");
        if (!is_plain(prefix_of(rank), "/ =,:+"))
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.object = rank->prefix}, NULL,
                                     "a launch command may hold only plain words, without quotes");
    }
    return true;
}

static void print_threads(Buffer *text, const LaunchRank *rank)
{
    if (rank->threads > 0) buffer_print(text, " -env OMP_NUM_THREADS %d", rank->threads);
}

static void print_prefix(Buffer *text, const LaunchRank *rank)
{
    if (*prefix_of(rank)) buffer_print(text, "%s ", prefix_of(rank));
}

static void print_hosts(Buffer *text, const LaunchPlan *plan, const char *separator, const char *count)
{
    for (int r = 0; r < plan->rank_count; r++)
        buffer_print(text, "%s%s%s", r ? separator : "", plan->ranks[r].host ? plan->ranks[r].host : "localhost",
                     count);
}

static int most_threads(const LaunchPlan *plan)
{
    int most = 1;
    for (int r = 0; r < plan->rank_count; r++)
        if (plan->ranks[r].threads > most) most = plan->ranks[r].threads;
    return most;
}

static bool threads_are_known(const LaunchPlan *plan)
{
    for (int r = 0; r < plan->rank_count; r++)
        if (plan->ranks[r].threads <= 0) return false;
    return true;
}

/* ---- train ---- */

static const char train_head[] =
    "#!/bin/sh\n"
    "# Trains on the devices that this directory was compiled for: train --data FILE [options]; --help lists them.\n"
    "directory=$(CDPATH='' cd -- \"$(dirname -- \"$0\")\" && pwd -P) || exit 6\n"
    "\n"
    "# The options that concern the launcher; the programs check all of them.\n"
    "retries=0 checkpoint='' insecure='' expected=''\n"
    "@SITE_DEFAULTS@"
    "for argument; do\n"
    "    case $expected in\n"
    "    retries) retries=$argument ;;\n"
    "    checkpoint) checkpoint=$argument ;;\n"
    "@SITE_EXPECTED@"
    "    esac\n"
    "    expected=''\n"
    "    case $argument in\n"
    "    --retries) expected=retries ;;\n"
    "    --retries=*) retries=${argument#*=} ;;\n"
    "    --checkpoint) expected=checkpoint ;;\n"
    "    --checkpoint=*) checkpoint=${argument#*=} ;;\n"
    "    --insecure) insecure=1 ;;\n"
    "@SITE_OPTIONS@"
    "    --help) exec \"$directory\"/@FIRST@ --help ;;\n"
    "    --join)\n"
    "        [ -x \"$directory/member\" ] && exec \"$directory\"/member \"$@\"\n"
    "        echo \"train: --join: there is no federation to join; skycc federate makes one\" >&2\n"
    "        exit 2 ;;\n"
    "    esac\n"
    "done\n"
    "case $retries in *[!0-9]* | '') retries=0 ;; esac\n"
    "\n"
    "mpiexec=${MPIEXEC:-mpiexec.mpich}\n"
    "command -v \"$mpiexec\" >/dev/null || {\n"
    "    echo \"train: $mpiexec is not installed (Debian: mpich); MPIEXEC may name another\" >&2\n"
    "    exit 6\n"
    "}\n"
    "if [ -t 1 ]; then SKYCC_TERMINAL=1; else SKYCC_TERMINAL=0; fi\n"
    "export SKYCC_TERMINAL\n";

/* All ranks here: bound to cores if there are enough, asleep while waiting if not. mpiexec counts cores from the first
 * on: only one run at a time binds (the lock lasts until the last of its processes ends), another one floats beside it.
 * MPICH's own shared memory is slower for large messages than UCX's. */
static const char train_local[] =
    "\n"
    "# Everything runs on this host. Ranks get cores of their own where there are enough and no other run has them;\n"
    "# SKYCC_BIND=core binds in any case, SKYCC_BIND=none never does.\n"
    "binds() {\n"
    "    case ${SKYCC_BIND:-} in core) return 0 ;; none) return 1 ;; esac\n"
    "    lock=${XDG_RUNTIME_DIR:-/tmp}/skycc-bind-$(id -u)\n"
    "    mkdir -m 700 \"$lock\" 2>/dev/null\n"
    "    # Nobody else can make a directory that belongs to this user, or replace it.\n"
    "    [ -d \"$lock\" ] && [ ! -L \"$lock\" ] && [ -O \"$lock\" ] && command -v flock >/dev/null || return 0\n"
    "    exec 9<\"$lock\"\n"
    "    flock -n 9\n"
    "}\n"
    "export MPIR_CVAR_NOLOCAL=\"${MPIR_CVAR_NOLOCAL:-1}\" UCX_TLS=\"${UCX_TLS:-sm,self}\"\n"
    "bind=''\n"
    "threads=@THREADS@\n"
    "if [ $((@RANKS@ * threads)) -le \"$(nproc)\" ]; then\n"
    "    if binds; then\n"
    "        bind=\"-bind-to core:$threads\"\n"
    "        export OMP_PROC_BIND=\"${OMP_PROC_BIND:-close}\"\n"
    "    fi\n"
    "else\n"
    "    export OMP_WAIT_POLICY=\"${OMP_WAIT_POLICY:-passive}\"\n"
    "fi\n";

/* wait is interrupted by signals that a trap takes: what runs has ended when it is no process any more. */
static const char train_tail[] =
    "\n"
    "# The launcher has a session of its own, so that Ctrl-C reaches it once, from here, and learns if this is "
    "killed.\n"
    "apart=''\n"
    "command -v setsid >/dev/null && apart=setsid\n"
    "setpriv --pdeathsig TERM true 2>/dev/null && apart=\"setpriv --pdeathsig TERM $apart\"\n"
    "@SITE_GATEWAY@"
    "\n"
    "# USR1 saves a checkpoint; TERM and the first INT save one and end; the second INT ends at once.\n"
    "running='' insisting='' ended='' interrupts=0\n"
    "pass() { if [ -n \"$running\" ]; then kill -\"$1\" \"$running\" 2>/dev/null; fi; }\n"
    "# mpiexec loses what it is sent before the programs run, or passes nothing on ever after: TERM, which may\n"
    "# come twice, is sent until they end, and to those on this host directly.\n"
    "insist() {\n"
    "    pass TERM\n"
    "    if [ -n \"$insisting\" ] || [ -z \"$running\" ]; then return; fi\n"
    "    while sleep 2 && kill -TERM \"$running\"; do\n"
    "        for proxy in $(pgrep -P \"$running\"); do pkill -TERM -P \"$proxy\"; done\n"
    "    done >/dev/null 2>&1 8<&- 9<&- &\n"
    "    insisting=$!\n"
    "}\n"
    "trap 'pass USR1' USR1\n"
    "trap 'ended=143; insist' TERM HUP\n"
    "trap 'ended=130; interrupts=$((interrupts + 1)); pass INT' INT\n"
    "\n"
    "# mpiexec passes on the end of its input, and fails if the programs have ended by then: here it never ends.\n"
    "exec 8</dev/null\n"
    "if silence=$(mktemp -d 2>/dev/null); then\n"
    "    mkfifo \"$silence/input\" && exec 8<>\"$silence/input\"\n"
    "    rm -rf \"$silence\"\n"
    "fi\n"
    "\n"
    "attempt=0\n"
    "while :; do\n"
    "@SITE_BEGIN@"
    "    if [ -n \"$ended\" ]; then exit \"$ended\"; fi\n"
    "    launch \"$@\" <&8 8<&- &\n"
    "    running=$!\n"
    "    if [ -n \"$ended\" ]; then insist; fi\n"
    "    while :; do\n"
    "        wait \"$running\"\n"
    "        code=$?\n"
    "        kill -0 \"$running\" 2>/dev/null || break\n"
    "    done\n"
    "    running=''\n"
    "    if [ -n \"$insisting\" ]; then kill \"$insisting\" 2>/dev/null; fi\n"
    "@SITE_END@"
    "    if [ $interrupts -gt 1 ]; then exit 130; fi\n"
    "    # Programs that cannot take a signal yet end by it, and mpiexec returns its number; having passed one\n"
    "    # on it may also forget what they ended with.\n"
    "    case $ended,$code in 143,15 | 130,2) exit $ended ;; esac\n"
    "    case $code in 0) exit ${ended:-0} ;; 1 | 2 | 7 | 70 | 130 | 143) exit $code ;; esac\n"
    "    if [ -n \"$ended\" ]; then exit 6; fi\n"
    "    attempt=$((attempt + 1))\n"
    "    if [ $attempt -gt \"$retries\" ]; then\n"
    "        echo \"train: the run failed\" >&2\n"
    "        exit 6\n"
    "    fi\n"
    "    echo \"train: the run failed; starting it again ($attempt of $retries)\" >&2\n"
    "    if [ -n \"$checkpoint\" ]; then set -- \"$@\" --resume; fi\n"
    "done\n";

static const char site_defaults[] = "key=${SKYCC_SITE_KEY:-@SITE@.key} site_timeout=0 audit=''\n";

static void print_mark(Buffer *text, const char *name, size_t length, const LaunchPlan *plan);

/* Appends a template, with marks @NAME@ replaced; "$@" is none. */
static void print_template(Buffer *text, const char *template, const LaunchPlan *plan)
{
    for (const char *mark; (mark = strchr(template, '@'));) {
        size_t length = strspn(mark + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        bool is_mark = length && mark[length + 1] == '@';
        buffer_append(text, template, (size_t)(mark - template) + !is_mark);
        template = mark + (is_mark ? length + 2 : 1);
        if (is_mark) print_mark(text, mark + 1, length, plan);
    }
    buffer_print(text, "%s", template);
}

static void print_gateway_place(Buffer *text, const LaunchPlan *plan)
{
    if (is_apart(plan))
        print_gateway_port(text, &plan->network);
    else
        buffer_print(text, "ipc://$meeting/gateway");
}

/* Names of sites are plain words, so that a script may have them unquoted. */
static void print_mark(Buffer *text, const char *name, size_t length, const LaunchPlan *plan)
{
    static const struct {
        const char *name, *part;
    } parts[] = {{"SITE_DEFAULTS", site_defaults},      {"SITE_EXPECTED", launch_site_expected},
                 {"SITE_OPTIONS", launch_site_options}, {"SITE_GATEWAY", launch_site_gateway},
                 {"SITE_BEGIN", launch_site_begin},     {"SITE_END", launch_site_end}};
    char word[32];
    snprintf(word, sizeof word, "%.*s", (int)length, name);
    if (strcmp(word, "FIRST") == 0) buffer_print(text, "%s", plan->ranks[0].program);
    if (strcmp(word, "RANKS") == 0) buffer_print(text, "%d", plan->rank_count);
    if (strcmp(word, "SITE") == 0) buffer_print(text, "%s", plan->site);
    if (strcmp(word, "HOSTS") == 0) print_hosts(text, plan, " ", "");
    if (strcmp(word, "GATEWAY_PLACE") == 0) print_gateway_place(text, plan);
    if (strcmp(word, "THREADS") == 0) {
        if (threads_are_known(plan))
            buffer_print(text, "%d", most_threads(plan));
        else
            buffer_print(text, "$(nproc)");
    }
    for (size_t i = 0; plan->site && i < sizeof parts / sizeof *parts; i++)
        if (strcmp(word, parts[i].name) == 0) print_template(text, parts[i].part, plan);
}

static void print_train(Buffer *text, const LaunchPlan *plan)
{
    bool elsewhere = any_elsewhere(plan);
    print_template(text, train_head, plan);
    if (elsewhere) {
        buffer_print(text, "bind=''\n");
        print_template(text, launch_network_check, plan);
        print_network_settings(text, &plan->network);
        print_own_address(text, &plan->network);
        if (plan->site && is_apart(plan)) print_template(text, launch_network_address, plan);
        buffer_print(text,
                     "# Ranks go there themselves: of hosts without this folder mpiexec would say nothing.\n"
                     "export SKYCC_FOLDER=\"$PWD\"\n%s",
                     launch_network_environment);
    } else {
        print_template(text, train_local, plan);
    }
    buffer_print(text, "\nlaunch() {\n%s%s    exec $apart \"$mpiexec\" $bind",
                 elsewhere ? "    forget_environment\n" : "",
                 plan->site && is_apart(plan) ? "    export SKYCC_SITE_KEY=\"$key\"\n" : "");
    if (elsewhere) {
        buffer_print(text, " -hosts ");
        print_hosts(text, plan, ",", ":1");
    }
    for (int r = 0; r < plan->rank_count; r++) {
        const LaunchRank *rank = &plan->ranks[r];
        buffer_print(text, "%s \\\n        -n 1%s", r ? " :" : "", elsewhere ? " -wdir /" : "");
        print_threads(text, rank);
        buffer_print(text, " ");
        print_prefix(text, rank);
        buffer_print(text, "\"$directory\"/%s \"$@\"", rank->program);
    }
    buffer_print(text, "\n}\n");
    print_template(text, train_tail, plan);
}

/* ---- Other launchers ---- */

/* One line per rank. Programs stand last, so that options can be appended. */
static void print_config(Buffer *text, const LaunchPlan *plan)
{
    for (int r = 0; r < plan->rank_count; r++) {
        const LaunchRank *rank = &plan->ranks[r];
        if (r == 0 && any_elsewhere(plan)) {
            print_network_options(text, &plan->network);
            buffer_print(text, "-hosts ");
            print_hosts(text, plan, ",", ":1");
            buffer_print(text, " ");
        }
        buffer_print(text, "-n 1");
        print_threads(text, rank);
        buffer_print(text, " ");
        print_prefix(text, rank);
        buffer_print(text, "./%s\n", rank->program);
    }
}

static void print_slurm_config(Buffer *text, const LaunchPlan *plan)
{
    for (int r = 0; r < plan->rank_count; r++) {
        buffer_print(text, "%d ", r);
        print_prefix(text, &plan->ranks[r]);
        buffer_print(text, "./%s\n", plan->ranks[r].program);
    }
}

static void print_node_list(Buffer *text, const LaunchPlan *plan)
{
    buffer_print(text, "#SBATCH --nodelist=");
    print_hosts(text, plan, ",", "");
    buffer_print(text, "\n");
}

/* `train` starts and ends the gateway of a site among others, so the job runs that. Ranks beside the gateway mpiexec starts
 * itself, whatever it knows of Slurm; on other nodes it has Slurm start them. */
static void print_slurm_site(Buffer *text, const LaunchPlan *plan)
{
    if (is_apart(plan)) {
        print_node_list(text, plan);
    } else {
        if (any_elsewhere(plan)) buffer_print(text, "#SBATCH --nodelist=%s\n", host_of(&plan->ranks[0]));
        buffer_print(text, "#SBATCH --nodes=1\n"
                           "export HYDRA_LAUNCHER=fork HYDRA_RMK=user\n");
    }
    buffer_print(text, "exec ./train \"$@\"\n");
}

static void print_slurm_script(Buffer *text, const LaunchPlan *plan)
{
    buffer_print(text,
                 "#!/bin/sh\n"
                 "# In this directory: sbatch run.sbatch --data FILE [options]\n"
                 "#SBATCH --job-name=skycc\n#SBATCH --ntasks=%d\n#SBATCH --cpus-per-task=%d\n",
                 plan->rank_count, most_threads(plan));
    if (plan->site) {
        print_slurm_site(text, plan);
        return;
    }
    if (any_elsewhere(plan)) print_node_list(text, plan);
    buffer_print(text, "if [ $# -gt 0 ]; then\n"
                       "    SKYCC_OPTIONS=$(printf '%%s\\n' \"$@\" '')\n"
                       "    export SKYCC_OPTIONS=\"$SKYCC_OPTIONS\n\"\n"
                       "fi\n");
    if (any_elsewhere(plan)) {
        print_network_settings(text, &plan->network);
        buffer_print(text, "%sforget_environment\n", launch_network_environment);
    }
    buffer_print(text, "exec srun --mpi=pmi2");
    if (any_elsewhere(plan)) {
        buffer_print(text, " --distribution=arbitrary --nodelist=");
        print_hosts(text, plan, ",", "");
    }
    buffer_print(text, " --multi-prog run.conf\n");
}

typedef void Printer(Buffer *text, const LaunchPlan *plan);

static bool write_file(const LaunchPlan *plan, const char *directory, const char *name, Printer *print, mode_t mode,
                       Diagnostics *diagnostics)
{
    Buffer text = {0}, path = {0};
    print(&text, plan);
    buffer_print(&path, "%s/%s", directory, name);
    bool ok = file_write_all(path.bytes, text.bytes, text.size, diagnostics);
    if (ok && chmod(path.bytes, mode) != 0)
        ok = diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path.bytes), NULL, "cannot set its mode: %s",
                               strerror(errno));
    buffer_free(&text);
    buffer_free(&path);
    return ok;
}

bool launch_files_write(const LaunchPlan *plan, const char *directory, Diagnostics *diagnostics)
{
    if (plan->rank_count < 1) bug("no ranks to launch");
    return check(plan, diagnostics) && write_file(plan, directory, "train", print_train, 0755, diagnostics) &&
           write_file(plan, directory, "run.mpi", print_config, 0644, diagnostics) &&
           write_file(plan, directory, "run.conf", print_slurm_config, 0644, diagnostics) &&
           write_file(plan, directory, "run.sbatch", print_slurm_script, 0755, diagnostics);
}
