/* DIR/SITE/gateway: started by DIR/SITE/train, next to the site's ranks, and ends when it does. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/file.h"
#include "base/options.h"
#include "runtime/wire/gateway.h"

typedef struct GatewayCommand {
    const char *site, *key, *local, *place, *bind, *audit, *why;
    double site_timeout;
    bool help;
} GatewayCommand;

#define FIELD(field) OPTION_FIELD(GatewayCommand, field)

enum { GATEWAY = 1 };

static const Option rows[] = {
    {"site", 0, "FILE", GATEWAY, OPTION_FILE, FIELD(site), .required = GATEWAY, .help = "site.json of the site"},
    {"key", 0, "FILE", GATEWAY, OPTION_FILE, FIELD(key), .required = GATEWAY, .help = "the site's secret key"},
    {"local", 0, "PLACE", GATEWAY, OPTION_TEXT, FIELD(local), .required = GATEWAY,
     .help = "where the site's ranks connect: ipc://PATH, tcp://HOST:PORT, tcp://HOST:FIRST-LAST or tcp://HOST:*"},
    {"place", 0, "FILE", GATEWAY, OPTION_FILE, FIELD(place),
     .help = "write there where ranks connect, once all is well"},
    {"bind", 0, "ADDRESS:PORT", GATEWAY, OPTION_TEXT, FIELD(bind),
     .help = "where to listen for other sites: ADDRESS:PORT (default: the port of the site's address)"},
    {"site-timeout", 0, "SECONDS", GATEWAY, OPTION_NUMBER, 0, 1e9, FIELD(site_timeout), .initial = "0",
     .help = "how long to wait for a site that is away; 0: for ever"},
    {"audit", 0, "FILE", GATEWAY, OPTION_FILE, FIELD(audit), .help = "write what crossed between sites, go on with it"},
    {"why", 0, "FILE", GATEWAY, OPTION_FILE, FIELD(why), .help = "where it is written why ranks ended without a word"},
    {"help", 'h', NULL, GATEWAY, OPTION_FLAG, FIELD(help), .help = "print this"},
};

static const OptionSet set = {rows, sizeof rows / sizeof *rows, GATEWAY, "gateway --help lists the options", NULL};

/* Readable once the gateway is to end. */
static int open_stop_signals(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL); /* before ZeroMQ's threads are there */
    int descriptor = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (descriptor < 0) memory_exhausted();
    return descriptor;
}

static bool serve(const GatewayCommand *command, int stop, Diagnostics *diagnostics)
{
    FREED_WITH(wire_site_file_free) WireSiteFile file = {0};
    WireKeys keys;
    if (!wire_site_file_read(&file, command->site, diagnostics) || !wire_keys_read(&keys, command->key, diagnostics))
        return false;
    const WireGatewayOptions options = {
        &file, &keys, command->local, command->bind, command->site_timeout, command->audit, command->why};
    WireGateway *gateway = wire_gateway_open(&options, diagnostics);
    bool ok = gateway != NULL;
    if (gateway && command->place) {
        const char *place = wire_gateway_ranks_place(gateway);
        ok = file_write_all(command->place, place, strlen(place), diagnostics);
    }
    if (ok) wire_gateway_run(gateway, stop);
    if (gateway) wire_gateway_close(gateway);
    wire_keys_forget(&keys);
    return ok;
}

int main(int argument_count, char **arguments)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    FREED_WITH(arena_free) Arena arena = {0};
    GatewayCommand command = {.help = false};
    pid_t parent = getppid();
    int stop = open_stop_signals();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) return EXIT_RUN_FAILED;
    signal(SIGPIPE, SIG_IGN);
    bool ok = options_parse(&set, argument_count, arguments, &command, &arena, &diagnostics);
    if (command.help) {
        puts("usage: gateway --site FILE --key FILE --local PLACE [options]\n");
        options_print_help(&set, true, stdout);
        return EXIT_OK;
    }
    ok = ok && serve(&command, stop, &diagnostics);
    diagnostics_print(&diagnostics, stderr);
    return ok ? EXIT_OK : diagnostics.exit_code;
}
