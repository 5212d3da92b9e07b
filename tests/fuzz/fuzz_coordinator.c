/* Messages to the coordinator of a federation. Of each: a byte that says the site, whether a right head is to stand in
 * front of it, its kind and phase; two bytes of length; the message, or what follows the head. */
#include <stdlib.h>
#include <string.h>

#include "federation/coordinator.h"
#include "tests/fuzz/fuzz.h"

enum { SITES = 3 };

static void send_one(Coordinator *coordinator, int site, unsigned how, const uint8_t *data, size_t size, double now)
{
    Buffer message = {0}, reply = {0};
    Reply read;
    bool has_head = how & 0x80;
    if (has_head) {
        Request request = {.kind = (how >> 2 & 7) % REQUEST_KINDS,
                           .phase = (how >> 4 & 7) % (SUM_DONE + 1),
                           .federation = coordinator->federation->compiled.identity,
                           .round = (uint64_t)coordinator->model.round,
                           .payload = data,
                           .size = size};
        memcpy(request.session, coordinator->sum.session, SESSION_BYTES);
        request_put(&message, &request);
    } else {
        buffer_append(&message, data, size);
    }
    coordinator_handle(coordinator, site, (const unsigned char *)message.bytes, message.size, now, &reply);
    unsigned char *bytes = (unsigned char *)reply.bytes;
    if (message_is_of_another_version((const unsigned char *)message.bytes, message.size)) {
        if (!message_is_of_another_version(bytes, reply.size)) bug("a reply that the program cannot read");
    } else if (!reply_get(&read, bytes, reply.size)) {
        bug("a reply that is none");
    }
    coordinator_tick(coordinator, now);
    buffer_free(&message);
    buffer_free(&reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"a", "b"};
    static const Shape shapes[] = {{1, {5}}, {0, {0}}};
    FederationSite sites[SITES] = {{.name = "x"}, {.name = "y"}, {.name = "z"}};
    Federation federation = {.site_count = SITES,
                             .sites = sites,
                             .rounds = 3,
                             .local_steps = 1,
                             .secure = size % 2,
                             .outer = outer_rule_default(OUTER_NESTEROV),
                             .least = size % 2 ? 3 : 1,
                             .fragments = 2,
                             .codec = size % 4 ? CODEC_NONE : CODEC_Q4, /* none with masks */
                             .model_codec = CODEC_Q6,
                             .round_timeout_s = 5,
                             .compiled = {.identity = {1, 2}, .site = -1}};
    Diagnostics diagnostics = {0};
    GlobalModel model;
    Coordinator coordinator;
    fuzz_begin();
    global_model_open(&model, federation.compiled.identity, names, shapes, 2, true);
    coordinator_begin(&coordinator, &federation, &model, "/dev/null", NULL, NULL); /* where no model can be written */
    double now = 0;
    while (size >= 3) {
        unsigned how = data[0];
        size_t length = data[1] | (size_t)data[2] << 8;
        data += 3, size -= 3;
        if (length > size) length = size;
        send_one(&coordinator, (int)(how & 3) % SITES, how, data, length, now += 1);
        data += length, size -= length;
    }
    if (coordinator.model.round > 1) bug("a round after a model that was not written");
    coordinator_free(&coordinator);
    fuzz_end(true, &diagnostics);
    return 0;
}
