#include "frontend/text/token_frame.h"

#include "base/diagnostics.h"

size_t token_frame_specials(const TokenFrame *frame)
{
    size_t count = 0;
    for (size_t i = 0; i < frame->count; i++) count += frame->pieces[i].text < 0;
    return count;
}

static void cut_as_bert(size_t counts[2], size_t room)
{
    while (counts[0] + counts[1] > room) counts[counts[0] > counts[1] ? 0 : 1]--;
}

static void cut_as_hugging_face(size_t counts[2], size_t room)
{
    int shorter = counts[0] > counts[1], longer = !shorter;
    size_t least = counts[shorter];
    counts[longer] = least <= room && room - least > least ? room - least : least;
    if (counts[0] + counts[1] <= room) return;
    counts[shorter] = room / 2;
    counts[longer] = room / 2 + room % 2;
}

static bool cut_one(size_t counts[2], int which, size_t room)
{
    if (counts[!which] >= room) return false;
    counts[which] = room - counts[!which];
    return true;
}

static void cut_pair(size_t counts[2], FrameCut way, size_t room)
{
    if (way == FRAME_CUT_BERT)
        cut_as_bert(counts, room);
    else if (way == FRAME_CUT_HUGGING_FACE || !cut_one(counts, way == FRAME_CUT_SECOND, room))
        cut_as_hugging_face(counts, room);
}

size_t token_frame_write(const TokenFrame *frame, FrameCut way, const TokenIds texts[2], int32_t pad,
                         const TokenRow *row, bool *cut)
{
    size_t specials = token_frame_specials(frame), counts[2] = {0, 0}, n = 0;
    if (specials > row->length) bug("a frame of %zu tokens in a row of %zu", specials, row->length);
    bool used[2] = {false, false};
    for (size_t i = 0; i < frame->count; i++)
        if (frame->pieces[i].text >= 0) used[frame->pieces[i].text] = true;
    for (int t = 0; t < 2; t++) counts[t] = used[t] ? texts[t].count : 0;
    size_t room = row->length - specials;
    *cut = counts[0] + counts[1] > room;
    if (*cut && !(used[0] && used[1]))
        counts[used[1]] = room;
    else if (*cut)
        cut_pair(counts, way, room);
    for (size_t p = 0; p < frame->count; p++) {
        const FramePiece *piece = &frame->pieces[p];
        size_t count = piece->text < 0 ? 1 : counts[piece->text];
        for (size_t i = 0; i < count; i++, n++) {
            row->ids[n] = piece->text < 0 ? piece->id : texts[piece->text].items[i];
            row->types[n] = piece->type;
            if (row->is_text) row->is_text[n] = piece->text >= 0;
        }
    }
    for (size_t i = 0; i < row->length; i++) {
        row->mask[i] = i < n;
        if (i < n) continue;
        row->ids[i] = pad;
        row->types[i] = 0;
        if (row->is_text) row->is_text[i] = false;
    }
    return n;
}
