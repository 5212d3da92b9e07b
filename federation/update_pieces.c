#include "federation/update_pieces.h"

#include <stdlib.h>
#include <unistd.h>

#include "federation/coded_row.h"
#include "federation/coded_update.h"
#include "federation/messages.h"

static const char wrong_size[] = "sent an update of the wrong size";

/* One piece as words of the sum. */
typedef struct Words {
    uint32_t *words;
    size_t first, values, count; /* values: without the words of the weight; count: with them */
    bool is_last;
} Words;

static ArrivalState refuse_piece(SumProblem *problem, int site, const char *text)
{
    *problem = (SumProblem){site, text};
    return ARRIVAL_REFUSED;
}

size_t update_piece_most_bytes(const Federation *federation)
{
    return UPDATE_PIECE_HEAD + 4 * (update_piece_values(federation) + FIXED_POINT_TAIL_WORDS);
}

void arriving_drop(ArrivingUpdate *update)
{
    if (update->has_file) close(update->file);
    *update = (ArrivingUpdate){0};
}

static Words place_of(const Federation *federation, const SumRound *round, size_t number)
{
    size_t count = round->word_count - FIXED_POINT_TAIL_WORDS, piece = update_piece_values(federation);
    Words words = {.first = number * piece, .is_last = number + 1 == update_pieces(count, piece)};
    words.values = words.is_last ? count - words.first : piece;
    words.count = words.values + (words.is_last ? FIXED_POINT_TAIL_WORDS : 0);
    return words;
}

/* ---- What a piece says ---- */

static size_t coded_bytes(const Federation *federation, const Words *words)
{
    return coded_update_bytes(federation->codec, words->values);
}

/* Of the piece's bytes, without its number. */
static size_t bytes_of(const Federation *federation, const Words *words)
{
    if (federation->codec == CODEC_NONE) return words->count * sizeof *words->words;
    return coded_bytes(federation, words) + (words->is_last ? 4 * (size_t)FIXED_POINT_EVALUATION_WORDS : 0);
}

/* A row from the wire as the codec makes it, with what is before and after it. False: it is none. */
static bool unfold_piece(const Federation *federation, const Words *words, const unsigned char *bytes, size_t size,
                         Buffer *message)
{
    size_t head = coded_update_bytes(federation->codec, 0),
           tail = bytes_of(federation, words) - coded_bytes(federation, words);
    if (size < head + tail) return false;
    buffer_append(message, bytes, head);
    bool ok = coded_row_take(row_rule_up(federation), bytes + head, size - head - tail, words->values, message);
    buffer_append(message, bytes + size - tail, tail);
    return ok;
}

/* The piece's words, for which there is room. False: it is no piece of an update. */
static bool read_words(const Federation *federation, const SumRound *round, const Words *words,
                       const unsigned char *bytes)
{
    bool plain = federation->codec == CODEC_NONE;
    size_t coded = plain ? 0 : coded_bytes(federation, words);
    size_t done = plain ? 0 : words->values + FIXED_POINT_WEIGHT_WORDS;
    for (size_t i = done; i < words->count; i++) words->words[i] = get_u32(bytes + coded + 4 * (i - done));
    return plain || coded_update_read(federation->codec, bytes, coded, words->values, round->exponent, round->keeps,
                                      round->sites, words->words);
}

static ArrivalState read_piece(const ArrivingUpdate *update, const Federation *federation, const SumRound *round,
                               int site, const Words *words, const unsigned char *bytes, size_t size,
                               SumProblem *problem)
{
    if (size != bytes_of(federation, words)) return refuse_piece(problem, site, wrong_size);
    if (!read_words(federation, round, words, bytes))
        return refuse_piece(problem, site, "sent an update that the codec does not make, or beyond its scale");
    if (federation->codec != CODEC_NONE && update->pieces && coded_update_weight(bytes) != update->weight)
        return refuse_piece(problem, site, "sent pieces of one update with several weights");
    return ARRIVAL_GOES_ON;
}

/* ---- What waits on disk ---- */

static bool open_file(ArrivingUpdate *update, const char *path)
{
    FREED_WITH(buffer_free) Buffer name = {0};
    buffer_print(&name, "%s.arriving-XXXXXX", path);
    update->file = mkstemp(name.bytes);
    update->has_file = update->file >= 0;
    if (update->has_file) unlink(name.bytes);
    return update->has_file;
}

/* Where a piece lies: all pieces but the last have one size. */
static off_t place_on_disk(const Federation *federation, const SumRound *round, size_t number)
{
    Words first = place_of(federation, round, 0);
    return (off_t)(number * bytes_of(federation, &first));
}

static bool store(const ArrivingUpdate *update, const unsigned char *from, size_t bytes, off_t at)
{
    for (ssize_t done; bytes > 0; from += done, at += done, bytes -= (size_t)done)
        if ((done = pwrite(update->file, from, bytes, at)) <= 0) return false;
    return true;
}

static bool load(const ArrivingUpdate *update, unsigned char *to, size_t bytes, off_t at)
{
    for (ssize_t done; bytes > 0; to += done, at += done, bytes -= (size_t)done)
        if ((done = pread(update->file, to, bytes, at)) <= 0) return false;
    return true;
}

/* Room for the words of any piece. */
static uint32_t *room_for_words(const Federation *federation)
{
    return memory_allocate((update_piece_values(federation) + FIXED_POINT_TAIL_WORDS) * sizeof(uint32_t));
}

bool arriving_take_back(ArrivingUpdate *update, const Federation *federation, SumRound *round)
{
    FREED unsigned char *bytes = update->pieces ? memory_allocate(update_piece_most_bytes(federation)) : NULL;
    FREED uint32_t *words = update->pieces ? room_for_words(federation) : NULL;
    bool ok = true;
    for (size_t number = 0; number < update->pieces && ok; number++) {
        Words piece = place_of(federation, round, number);
        piece.words = words;
        ok = load(update, bytes, bytes_of(federation, &piece), place_on_disk(federation, round, number)) &&
             read_words(federation, round, &piece, bytes);
        if (ok) sum_round_subtract(round, words, piece.first, piece.values);
    }
    arriving_drop(update);
    return ok;
}

/* Adds a piece that was read. All but the last wait on disk, too. */
static ArrivalState keep(ArrivingUpdate *update, const Federation *federation, SumRound *round, int site,
                         const char *path, const Words *words, const unsigned char *bytes, size_t size)
{
    if (!words->is_last && ((!update->has_file && !open_file(update, path)) ||
                            !store(update, bytes, size, place_on_disk(federation, round, update->pieces))))
        return ARRIVAL_NO_ROOM;
    if (update->pieces++ == 0 && federation->codec != CODEC_NONE) update->weight = coded_update_weight(bytes);
    sum_round_add(round, site, words->words, words->first, words->count);
    if (!words->is_last) return ARRIVAL_GOES_ON;
    arriving_drop(update);
    sum_round_count(round, site);
    return ARRIVAL_WHOLE;
}

/* `bytes` are those of the piece without its number. */
static ArrivalState take_piece(ArrivingUpdate *update, const Federation *federation, SumRound *round, int site,
                               const char *path, Words *words, const unsigned char *bytes, size_t size,
                               SumProblem *problem)
{
    FREED uint32_t *room = room_for_words(federation);
    words->words = room;
    ArrivalState state = read_piece(update, federation, round, site, words, bytes, size, problem);
    return state == ARRIVAL_GOES_ON ? keep(update, federation, round, site, path, words, bytes, size) : state;
}

ArrivalState arriving_take(ArrivingUpdate *update, const Federation *federation, SumRound *round, int site,
                           const char *path, const unsigned char *bytes, size_t size, SumProblem *problem)
{
    if (size < UPDATE_PIECE_HEAD) return refuse_piece(problem, site, wrong_size);
    uint64_t number = get_u64(bytes);
    if (number < update->pieces) return refuse_piece(problem, site, "has sent this piece of its update before");
    if (number > update->pieces) return refuse_piece(problem, site, "left out a piece of its update");
    Words words = place_of(federation, round, number);
    bytes += UPDATE_PIECE_HEAD;
    size -= UPDATE_PIECE_HEAD;
    if (federation->codec == CODEC_NONE)
        return take_piece(update, federation, round, site, path, &words, bytes, size, problem);
    FREED_WITH(buffer_free) Buffer message = {0};
    ArrivalState state = ARRIVAL_REFUSED;
    if (unfold_piece(federation, &words, bytes, size, &message))
        state = take_piece(update, federation, round, site, path, &words, (const unsigned char *)message.bytes,
                           message.size, problem);
    else
        refuse_piece(problem, site, wrong_size);
    return state;
}
