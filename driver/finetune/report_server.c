#include "driver/finetune/report_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "driver/finetune/run_report.h"

enum { MOST_REQUEST = 8192, WAIT_SECONDS = 5, MOST_NAME = 64, MOST_SERVED = 32 };

/* ---- What may be read ---- */

static const struct {
    const char *suffix, *type;
} types[] = {{".html", "text/html; charset=utf-8"},
             {".csv", "text/csv; charset=utf-8"},
             {".svg", "image/svg+xml"},
             {".png", "image/png"}};

static const char *type_of(const char *name)
{
    const char *suffix = strrchr(name, '.');
    for (size_t i = 0; suffix && i < sizeof types / sizeof *types; i++)
        if (strcmp(suffix, types[i].suffix) == 0) return types[i].type;
    return NULL;
}

/* Whether it is the name of a picture in RUN: nothing that could lead out of it. */
static bool is_picture(const char *name)
{
    const char *type = type_of(name);
    return type && strncmp(type, "image/", 6) == 0 && name[0] != '.' && strlen(name) < MOST_NAME &&
           !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")];
}

/* The file of RUN that the target of a request names; NULL: none that may be read. */
static const char *file_of(const char *target)
{
    static const char *const names[] = {"report.html", "log.csv", "programs/report.html"};
    if (strcmp(target, "/") == 0) return names[0];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(target + 1, names[i]) == 0) return names[i];
    return target[0] == '/' && is_picture(target + 1) ? target + 1 : NULL;
}

/* A regular file inside RUN: links out of it are not followed. */
static bool read_file(const char *run, const char *name, Buffer *content)
{
    FREED char *path = NULL, *whole = realpath(run, NULL);
    char chunk[1 << 16];
    struct stat status;
    if (asprintf(&path, "%s/%s", run, name) < 0) memory_exhausted();
    FREED char *resolved = realpath(path, NULL);
    bool inside = whole && resolved && strncmp(resolved, whole, strlen(whole)) == 0 && resolved[strlen(whole)] == '/';
    int descriptor = inside ? open(resolved, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    bool ok = descriptor >= 0 && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    for (ssize_t count; ok && (count = read(descriptor, chunk, sizeof chunk)) != 0;) {
        ok = count > 0;
        if (ok) buffer_append(content, chunk, (size_t)count);
    }
    if (descriptor >= 0) close(descriptor);
    return ok;
}

/* ---- Requests ---- */

static void answer(int connection, const char *status, const char *type, const Buffer *content, bool body)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    buffer_print(&text,
                 "HTTP/1.0 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                 "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
                 "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; "
                 "script-src '" RUN_REPORT_SCRIPT "'\r\n"
                 "Connection: close\r\n\r\n",
                 status, type, content->size);
    if (body) buffer_append(&text, buffer_text(content), content->size);
    for (size_t done = 0; done < text.size;) {
        ssize_t count = send(connection, text.bytes + done, text.size - done, MSG_NOSIGNAL);
        if (count <= 0 && errno != EINTR) break;
        if (count > 0) done += (size_t)count;
    }
}

/* Reads until the empty line that ends the head of a request, which becomes a string. */
static bool read_request(int connection, char request[static MOST_REQUEST])
{
    size_t size = 0;
    for (;;) {
        ssize_t count = recv(connection, request + size, MOST_REQUEST - 1 - size, 0);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        size += (size_t)count;
        request[size] = '\0';
        if (strstr(request, "\r\n\r\n") || strstr(request, "\n\n")) return true;
        if (size + 1 == MOST_REQUEST) return false;
    }
}

/* Whether the line "Host:" is there and names this machine. */
static bool is_for_here(const char *request)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *host = strcasestr(request, "\nhost:");
    if (!host) return false;
    host += strlen("\nhost:");
    host += strspn(host, " \t");
    size_t length = strcspn(host, "\r\n"), name = length;
    while (name && host[name - 1] >= '0' && host[name - 1] <= '9') name--;
    name = name && host[name - 1] == ':' ? name - 1 : length;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == name && strncasecmp(host, names[i], name) == 0) return true;
    return false;
}

static void take_request(int connection, const char *run)
{
    char request[MOST_REQUEST], method[8], target[MOST_NAME + 1];
    FREED_WITH(buffer_free) Buffer content = {0};
    if (!read_request(connection, request)) return;
    const char *status = "400 Bad Request", *type = "text/plain", *name = NULL;
    bool head = false;
    if (sscanf(request, "%7s %64s HTTP/", method, target) == 2) {
        head = strcmp(method, "HEAD") == 0;
        target[strcspn(target, "?")] = '\0';
        name = target[0] == '/' ? file_of(target) : NULL;
        if (!head && strcmp(method, "GET") != 0)
            status = "405 Method Not Allowed";
        else if (!is_for_here(request))
            status = "403 Forbidden";
        else if (!name || !read_file(run, name, &content))
            status = "404 Not Found";
        else
            status = "200 OK", type = type_of(name);
    }
    if (strcmp(status, "200 OK") != 0) content.size = 0, buffer_print(&content, "%s\n", status);
    answer(connection, status, type, &content, !head);
}

/* ---- The process ---- */

_Noreturn static void serve(int listener, const char *run, pid_t parent)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    /* Not the command's own handlers, which remove what it has not finished. Ctrl-C is for the command. */
    for (int i = 0; i < 3; i++) signal(signals[i], SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++) dup2(null, i);
    for (int served = 0; getppid() == parent;) {
        int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        while (served && waitpid(-1, NULL, WNOHANG) > 0) served--;
        pid_t child = connection >= 0 && served < MOST_SERVED ? fork() : -1;
        if (child == 0) { /* who says or takes nothing holds up nobody else, and not for long */
            close(listener);
            alarm(WAIT_SECONDS);
            take_request(connection, run);
            _exit(0);
        }
        served += child > 0;
        if (connection >= 0) close(connection);
    }
    _exit(0);
}

static int listen_at(int port, int *bound)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener >= 0) setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (listener >= 0 && bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 8) == 0 &&
        getsockname(listener, (struct sockaddr *)&address, &length) == 0) {
        *bound = ntohs(address.sin_port);
        return listener;
    }
    int error = errno;
    if (listener >= 0) close(listener);
    errno = error;
    return -1;
}

bool report_server_start(ReportServer *server, const char *run, int port, Diagnostics *diagnostics)
{
    *server = (ReportServer){0};
    int listener = listen_at(port, &server->port);
    if (listener < 0)
        return usage_error(diagnostics, "choose another port, or leave it out for a free one",
                           "--serve cannot listen at 127.0.0.1:%d: %s", port, strerror(errno));
    pid_t parent = getpid();
    fflush(NULL);
    server->process = fork();
    if (server->process == 0) serve(listener, run, parent);
    close(listener);
    if (server->process > 0) return true;
    server->process = 0;
    return usage_error(diagnostics, NULL, "--serve cannot start a process: %s", strerror(errno));
}

void report_server_end(ReportServer *server)
{
    if (server->process <= 0) return;
    kill(server->process, SIGKILL);
    waitpid(server->process, NULL, 0);
    server->process = 0;
}
