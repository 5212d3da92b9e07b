#include "codegen/link/launch.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/diagnostics.h"
#include "base/file.h"
#include "script_templates.h" /* template_train, ...: the texts, generated */

/* The shell scripts of an output directory, from the templates train.sh, run_sbatch.sh, network.sh and
 * environment.sh.
 *
 * @NAME@ in a template stands for a word. A line "#@ if NAME" begins lines for some runs only, up to "#@ else" or "#@
 * end"; "#@ include NAME" stands for another template. */

typedef struct ScriptWord {
    const char *name, *text;
} ScriptWord;

typedef struct ScriptCondition {
    const char *name;
    bool holds;
} ScriptCondition;

/* What templates may name; lists end with a name that is NULL. */
typedef struct ScriptTerms {
    const ScriptWord *words;
    const ScriptCondition *conditions;
} ScriptTerms;

static const ScriptWord templates[] = {{"train", template_train},
                                       {"run_sbatch", template_run_sbatch},
                                       {"network", template_network},
                                       {"environment", template_environment},
                                       {NULL, NULL}};

static bool is_name(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && strncmp(name, text, length) == 0;
}

static const char *find_word(const ScriptWord *words, const char *text, size_t length)
{
    for (; words->name; words++)
        if (is_name(words->name, text, length)) return words->text;
    bug("a script says '%.*s'", (int)length, text);
}

static bool find_condition(const ScriptCondition *conditions, const char *text, size_t length)
{
    for (; conditions->name; conditions++)
        if (is_name(conditions->name, text, length)) return conditions->holds;
    bug("a script asks for '%.*s'", (int)length, text);
}

/* A line with @NAME@ replaced; "$@" is no name. */
static void print_line(Buffer *text, const char *line, size_t length, const ScriptTerms *terms)
{
    const char *end = line + length;
    while (line < end) {
        const char *mark = memchr(line, '@', (size_t)(end - line));
        if (!mark) break;
        size_t name = strspn(mark + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        bool is_mark = name && mark[name + 1] == '@';
        buffer_append(text, line, (size_t)(mark - line) + !is_mark);
        if (is_mark) buffer_print(text, "%s", find_word(terms->words, mark + 1, name));
        line = mark + (is_mark ? name + 2 : 1);
    }
    buffer_append(text, line, (size_t)(end - line));
}

static bool begins(const char *line, const char *word) { return strncmp(line, word, strlen(word)) == 0; }

/* Appends the template of this name; a name or term that is unknown is a bug. */
static void script_print(Buffer *text, const char *name, const ScriptTerms *terms)
{
    static const char when[] = "#@ if ", otherwise[] = "#@ else", end[] = "#@ end", include[] = "#@ include ";
    int depth = 0, hidden = 0; /* conditions around this line; the depth of the one that leaves it out, 0: none does */
    const char *line = find_word(templates, name, strlen(name));
    for (size_t length; *line; line += length) {
        length = strcspn(line, "\n") + 1;
        if (begins(line, when)) {
            const char *condition = line + strlen(when);
            depth++;
            if (!hidden && !find_condition(terms->conditions, condition, strcspn(condition, "\n"))) hidden = depth;
        } else if (begins(line, otherwise)) {
            hidden = hidden == depth ? 0 : hidden ? hidden : depth;
        } else if (begins(line, end)) {
            if (hidden == depth) hidden = 0;
            depth--;
        } else if (hidden) {
            continue;
        } else if (begins(line, include)) {
            char included[32];
            snprintf(included, sizeof included, "%.*s", (int)(length - 1 - strlen(include)), line + strlen(include));
            script_print(text, included, terms);
        } else {
            print_line(text, line, length, terms);
        }
    }
}

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
                                     "is not a host name that a launcher understands");
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
        buffer_print(text, "%s%s%s", r ? separator : "", host_of(&plan->ranks[r]), count);
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

/* ---- Scripts ---- */

static void print_programs(Buffer *text, const LaunchPlan *plan)
{
    for (int r = 0; r < plan->rank_count; r++) {
        buffer_print(text, "%s \\\n        -n 1%s", r ? " :" : "", any_elsewhere(plan) ? " -wdir /" : "");
        print_threads(text, &plan->ranks[r]);
        buffer_print(text, " ");
        print_prefix(text, &plan->ranks[r]);
        buffer_print(text, "\"$directory\"/%s \"$@\"", plan->ranks[r].program);
    }
}

/* A call of `ask` for every host, with its programs. */
static void print_questions(Buffer *text, const LaunchPlan *plan)
{
    for (int r = 0; r < plan->rank_count; r++) {
        const char *host = host_of(&plan->ranks[r]);
        int first = 0;
        while (strcmp(host_of(&plan->ranks[first]), host) != 0) first++;
        if (first < r) continue;
        buffer_print(text, "    ask %s", host);
        for (int other = r; other < plan->rank_count; other++)
            if (strcmp(host_of(&plan->ranks[other]), host) == 0)
                buffer_print(text, " '%s' \"$directory\"/%s", prefix_of(&plan->ranks[other]),
                             plan->ranks[other].program);
        buffer_print(text, "\n");
    }
}

/* Where the ranks of a site reach its gateway. */
static const char *gateway_place(Arena *arena, const LaunchPlan *plan)
{
    if (!is_apart(plan)) return "ipc://$meeting/gateway";
    if (!plan->network.first_port) return "tcp://$own_address:*";
    return arena_format(arena, "tcp://$own_address:%d-%d", plan->network.first_port, plan->network.last_port);
}

static const char *hosts_text(Arena *arena, const LaunchPlan *plan, const char *separator, const char *count)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    print_hosts(&text, plan, separator, count);
    return arena_string(arena, buffer_text(&text));
}

/* Names of sites and hosts are plain words, so that a script may have them unquoted. */
static void print_script(Buffer *text, const char *name, const LaunchPlan *plan)
{
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(buffer_free) Buffer programs = {0}, questions = {0};
    const ClusterNetwork *network = &plan->network;
    const char *interface = network->interface, *number = "%d";
    bool elsewhere = any_elsewhere(plan), apart = plan->site && is_apart(plan);
    bool subnet = interface && strchr(interface, '/');
    print_programs(&programs, plan);
    print_questions(&questions, plan);
    const ScriptWord words[] = {
        {"FIRST", arena_format(&arena, "%s%s\"$directory\"/%s", prefix_of(&plan->ranks[0]),
                               *prefix_of(&plan->ranks[0]) ? " " : "", plan->ranks[0].program)},
        {"RANKS", arena_format(&arena, number, plan->rank_count)},
        {"SITE", plan->site},
        {"HOSTS", hosts_text(&arena, plan, " ", "")},
        {"HOST_LIST", hosts_text(&arena, plan, ",", ":1")},
        {"NODE_LIST", plan->site && !apart ? host_of(&plan->ranks[0]) : hosts_text(&arena, plan, ",", "")},
        {"PROGRAMS", buffer_text(&programs)},
        {"QUESTIONS", buffer_text(&questions)},
        {"GATEWAY_PLACE", gateway_place(&arena, plan)},
        {"THREADS", threads_are_known(plan) ? arena_format(&arena, number, most_threads(plan)) : "$(nproc)"},
        {"MOST_THREADS", arena_format(&arena, number, most_threads(plan))},
        {"INTERFACE", interface},
        {"INTERFACE_IS", subnet ? "to" : "dev"}, /* for `ip address show` */
        {"FIRST_PORT", arena_format(&arena, number, network->first_port)},
        {"LAST_PORT", arena_format(&arena, number, network->last_port)},
        {NULL, NULL}};
    const ScriptCondition conditions[] = {{"site", plan->site},
                                          {"apart", apart},
                                          {"elsewhere", elsewhere},
                                          {"node_list", elsewhere || apart},
                                          {"ports", network->first_port},
                                          {"interface", interface},
                                          {"subnet", subnet},
                                          {NULL, false}};
    script_print(text, name, &(ScriptTerms){words, conditions});
}

static void print_train(Buffer *text, const LaunchPlan *plan) { print_script(text, "train", plan); }

static void print_slurm_script(Buffer *text, const LaunchPlan *plan) { print_script(text, "run_sbatch", plan); }

/* ---- Files that launchers read ---- */

static void print_network_options(Buffer *text, const ClusterNetwork *network)
{
    buffer_print(text, "-genv UCX_RNDV_THRESH inf ");
    if (network->first_port)
        buffer_print(text, "-genv UCX_TCP_PORT_RANGE %d-%d ", network->first_port, network->last_port);
    if (network->interface)
        buffer_print(text, "-genv %s %s ", strchr(network->interface, '/') ? "SKYCC_SUBNET" : "UCX_NET_DEVICES",
                     network->interface);
}

/* One line per rank. Programs stand last, so that options can be appended. */
static void print_config(Buffer *text, const LaunchPlan *plan)
{
    if (any_elsewhere(plan)) {
        print_network_options(text, &plan->network);
        buffer_print(text, "-hosts ");
        print_hosts(text, plan, ",", ":1");
        buffer_print(text, " ");
    }
    for (int r = 0; r < plan->rank_count; r++) {
        buffer_print(text, "-n 1");
        print_threads(text, &plan->ranks[r]);
        buffer_print(text, " ");
        print_prefix(text, &plan->ranks[r]);
        buffer_print(text, "./%s\n", plan->ranks[r].program);
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

typedef void Printer(Buffer *text, const LaunchPlan *plan);

static bool write_file(const LaunchPlan *plan, const char *directory, const char *name, Printer *print, mode_t mode,
                       Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer text = {0}, path = {0};
    print(&text, plan);
    buffer_print(&path, "%s/%s", directory, name);
    bool ok = file_write_all(path.bytes, text.bytes, text.size, diagnostics);
    if (ok && chmod(path.bytes, mode) != 0)
        ok = input_error(diagnostics, path.bytes, NULL, "cannot set its mode: %s", strerror(errno));
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
