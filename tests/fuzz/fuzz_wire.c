/* Input from another site: site.json, a zero byte, and the frames that its gateway sends, each after its size in two
 * bytes. Each frame goes to a peer twice: as it is, and with a valid header that keeps only the frame's ranks, tag and
 * sizes. */
#include <string.h>

#include "runtime/wire/peer.h"
#include "runtime/wire/site_file.h"
#include "tests/fuzz/fuzz.h"

enum { RANKS = 4, LARGEST = 3 * WIRE_CHUNK };

static const int rank_sites[RANKS] = {0, 1, 0, 1};
static const Hash run = {1, 2};
static uint64_t delivered;

static bool send_nowhere(void *context, int site, WireChunk *chunk)
{
    (void)context, (void)site;
    wire_chunk_release(chunk);
    return true;
}

static void deliver(void *context, int site, const WireFrame *message)
{
    (void)context;
    if (message->size > LARGEST || rank_sites[message->from] != site) bug("a message that is none");
    if (message->to != WIRE_GATEWAY && rank_sites[message->to] == site) bug("a message for another site");
    for (size_t i = 0; i < message->size; i++) delivered += ((const uint8_t *)message->payload)[i];
}

static void take(WirePeer *peer, const uint8_t *bytes, size_t size)
{
    WireFrame frame;
    wire_peer_take(peer, bytes, size, true);
    if (!wire_frame_read(&frame, bytes, size)) return;
    frame.run = run;
    frame.incarnation = peer->bound ? peer->bound : frame.incarnation;
    if (frame.kind == WIRE_DATA) frame.sequence = peer->expected;
    WireChunk *chunk = wire_chunk_make(&frame);
    wire_peer_take(peer, chunk->bytes, chunk->size, true);
    wire_chunk_release(chunk);
}

static void take_all(const uint8_t *data, size_t size)
{
    const WirePeerPlace place = {.site = 1,
                                 .run = run,
                                 .incarnation = 11,
                                 .largest_message = LARGEST,
                                 .rank_count = RANKS,
                                 .rank_sites = rank_sites,
                                 .own_site = 0,
                                 .send = send_nowhere,
                                 .deliver = deliver};
    WirePeer peer;
    wire_peer_open(&peer, &place);
    while (size > 2) {
        size_t length = (size_t)data[0] << 8 | data[1];
        length = length < size - 2 ? length : size - 2;
        take(&peer, data + 2, length);
        wire_peer_send(&peer, 0, 1, 5, data, 2); /* something to be acknowledged */
        data += 2 + length;
        size -= 2 + length;
    }
    wire_peer_close(&peer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzPart text = fuzz_part(&data, &size);
    Diagnostics diagnostics = {0};
    WireSiteFile file;
    fuzz_begin();
    fuzz_file("site.json", text.data, text.size);
    bool ok = wire_site_file_read(&file, "site.json", &diagnostics);
    if (ok) {
        for (int s = 0; s < file.site_count; s++)
            if (s != file.site && wire_listens(&file, s, file.site) == wire_listens(&file, file.site, s))
                bug("two sites that both listen, or neither does");
        wire_site_file_free(&file);
    }
    take_all(data, size);
    fuzz_end(ok, &diagnostics);
    return 0;
}
