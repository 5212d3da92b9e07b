#include "runtime/wire/zap.h"

#include <string.h>

#include "runtime/wire/sockets.h"

enum { KEY_BYTES = 32, PART_BYTES = 256 };

void *wire_zap_open(void *context)
{
    void *zap = wire_socket(context, ZMQ_REP);
    if (zmq_bind(zap, "inproc://zeromq.zap.01") == 0) return zap;
    zmq_close(zap);
    return NULL;
}

typedef struct Part {
    char bytes[PART_BYTES];
    size_t size; /* at most PART_BYTES: what is longer is cut, and then equals nothing that is known */
} Part;

/* In this order: version, request, domain, address, routing id, mechanism, credentials. */
enum { VERSION, REQUEST, DOMAIN, ADDRESS, ROUTE, MECHANISM, CREDENTIALS, PARTS };

static bool part_is(const Part *part, const char *text)
{
    return part->size == strlen(text) && memcmp(part->bytes, text, part->size) == 0;
}

/* The number of parts of the next request; 0: there is none. */
static int read_request(void *zap, Part *parts)
{
    int count = 0, more = 1;
    for (size_t size = sizeof more; more; count++) {
        Part rest, *part = count < PARTS ? &parts[count] : &rest;
        int got = zmq_recv(zap, part->bytes, sizeof part->bytes, ZMQ_DONTWAIT);
        if (got < 0) return 0;
        part->size = (size_t)got < sizeof part->bytes ? (size_t)got : sizeof part->bytes;
        zmq_getsockopt(zap, ZMQ_RCVMORE, &more, &size);
    }
    return count;
}

/* The site whose key it is and that may connect there; -1: none. */
static int find_site(const WireSiteFile *file, const Part *parts)
{
    bool own = part_is(&parts[DOMAIN], WIRE_ZAP_RANKS);
    if (!own && !part_is(&parts[DOMAIN], WIRE_ZAP_SITES)) return -1;
    if (!part_is(&parts[MECHANISM], "CURVE") || parts[CREDENTIALS].size != KEY_BYTES) return -1;
    for (int s = 0; s < file->site_count; s++) {
        uint8_t key[KEY_BYTES];
        if ((s == file->site) != own || !zmq_z85_decode(key, file->sites[s].key)) continue;
        if (memcmp(key, parts[CREDENTIALS].bytes, KEY_BYTES) == 0) return s;
    }
    return -1;
}

void wire_zap_answer(void *zap, const WireSiteFile *file)
{
    Part parts[PARTS];
    for (int count; (count = read_request(zap, parts)) > 0;) {
        char user[16] = "";
        int site = count == PARTS && part_is(&parts[VERSION], "1.0") ? find_site(file, parts) : -1;
        if (site >= 0) snprintf(user, sizeof user, "%d", site);
        zmq_send(zap, "1.0", 3, ZMQ_SNDMORE);
        zmq_send(zap, parts[REQUEST].bytes, count > REQUEST ? parts[REQUEST].size : 0, ZMQ_SNDMORE);
        zmq_send(zap, site >= 0 ? "200" : "400", 3, ZMQ_SNDMORE);
        zmq_send(zap, "", 0, ZMQ_SNDMORE);
        zmq_send(zap, user, strlen(user), ZMQ_SNDMORE);
        zmq_send(zap, "", 0, 0);
    }
}
