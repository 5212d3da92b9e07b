/* What crosses cuts, coded and not. */
#include "profiler/costs/costs.h"

int64_t costs_output_bytes(const LayerCost *layer, int direction)
{
    return direction && layer->output_backward_bytes ? layer->output_backward_bytes : layer->output_bytes;
}

int64_t costs_wire_bytes(const LayerCost *layer, int direction, Codec codec)
{
    int64_t bytes = costs_output_bytes(layer, direction);
    if (codec == CODEC_NONE) return bytes;
    if (layer->wire_bytes[direction][codec]) return layer->wire_bytes[direction][codec];
    return bytes / 4 / CODEC_TILE * codec_row_bytes(codec, CODEC_TILE) + codec_row_bytes(codec, bytes / 4 % CODEC_TILE);
}

double costs_coding_s(const Costs *costs, int region, const LayerCost *layer, int direction, Codec codec, int decodes)
{
    double slowest = 0;
    for (int d = 0; codec != CODEC_NONE && d < costs->device_count; d++) {
        const DeviceCost *device = &costs->devices[d];
        if (region >= 0 && device->region != region) continue;
        double own = device->coding_s[codec][decodes];
        if (own == 0) own = device->slowdown * costs->coding_s[codec][decodes];
        if (own > slowest) slowest = own;
    }
    return slowest * (double)costs_output_bytes(layer, direction);
}

int64_t costs_coded_bytes(const Costs *costs, const LayerCost *layer)
{
    int64_t alignment = 64, pieces = 8, bytes = 0;
    for (int direction = 0; direction < 2; direction++) {
        int64_t most = 0;
        for (int codec = 1; codec < CODEC_COUNT; codec++)
            if (costs->codecs >> codec & 1 && costs_wire_bytes(layer, direction, (Codec)codec) > most)
                most = costs_wire_bytes(layer, direction, (Codec)codec);
        bytes += most;
    }
    return bytes + alignment * pieces;
}
