#include "federation/update_pieces.h"

#include <stdlib.h>
#include <unistd.h>

#include "federation/coded_update.h"
#include "federation/messages.h"

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

static bool read_plain(Words *words, const unsigned char *bytes, size_t size)
{
    if (size != words->count * sizeof *words->words) return false;
    for (size_t i = 0; i < words->count; i++) words->words[i] = get_u32(bytes + 4 * i);
    return true;
}

static ArrivalState read_piece(const ArrivingUpdate *update, const Federation *federation, const SumRound *round,
                               int site, Words *words, const unsigned char *bytes, size_t size, SumProblem *problem)
{
    if (federation->codec == CODEC_NONE)
        return read_plain(words, bytes, size) ? ARRIVAL_GOES_ON
                                              : refuse_piece(problem, site, "sent an update of the wrong size");
    size_t coded = coded_update_bytes(federation->codec, words->values);
    int further = words->is_last ? FIXED_POINT_EVALUATION_WORDS : 0;
    if (size != coded + 4 * (size_t)further) return refuse_piece(problem, site, "sent an update of the wrong size");
    for (int i = 0; i < further; i++)
        words->words[words->values + FIXED_POINT_WEIGHT_WORDS + (size_t)i] = get_u32(bytes + coded + 4 * i);
    if (!coded_update_read(federation->codec, bytes, coded, words->values, round->exponent, round->sites, words->words))
        return refuse_piece(problem, site, "sent an update that the codec does not make, or beyond its scale");
    if (update->pieces && fixed_point_get_weight(words->words + words->values) != update->weight)
        return refuse_piece(problem, site, "sent pieces of one update with several weights");
    return ARRIVAL_GOES_ON;
}

/* ---- What waits on disk ---- */

static bool open_file(ArrivingUpdate *update, const char *path)
{
    Buffer name = {0};
    buffer_print(&name, "%s.arriving-XXXXXX", path);
    update->file = mkstemp(name.bytes);
    update->has_file = update->file >= 0;
    if (update->has_file) unlink(name.bytes);
    buffer_free(&name);
    return update->has_file;
}

static bool store(ArrivingUpdate *update, const Words *words)
{
    const char *from = (const char *)words->words;
    size_t bytes = words->count * sizeof *words->words;
    off_t at = (off_t)(words->first * sizeof *words->words);
    for (ssize_t done; bytes > 0; from += done, at += done, bytes -= (size_t)done)
        if ((done = pwrite(update->file, from, bytes, at)) <= 0) return false;
    return true;
}

static bool load(const ArrivingUpdate *update, Words *words)
{
    char *to = (char *)words->words;
    size_t bytes = words->count * sizeof *words->words;
    off_t at = (off_t)(words->first * sizeof *words->words);
    for (ssize_t done; bytes > 0; to += done, at += done, bytes -= (size_t)done)
        if ((done = pread(update->file, to, bytes, at)) <= 0) return false;
    return true;
}

/* `words` is room for any piece. */
static ArrivalState add_all(ArrivingUpdate *update, const Federation *federation, SumRound *round, int site,
                            uint32_t *words)
{
    bool ok = true;
    for (size_t number = 0; number < update->pieces && ok; number++) {
        Words piece = place_of(federation, round, number);
        piece.words = words;
        ok = load(update, &piece);
        if (ok) sum_round_add(round, site, piece.words, piece.first, piece.count);
    }
    arriving_drop(update);
    if (ok) sum_round_count(round, site);
    return ok ? ARRIVAL_WHOLE : ARRIVAL_SPOILT;
}

static ArrivalState keep(ArrivingUpdate *update, const Federation *federation, SumRound *round, int site,
                         const char *path, const Words *words)
{
    if (words->is_last && update->pieces == 0) {
        sum_round_add(round, site, words->words, words->first, words->count);
        sum_round_count(round, site);
        return ARRIVAL_WHOLE;
    }
    if ((!update->has_file && !open_file(update, path)) || !store(update, words)) return ARRIVAL_NO_ROOM;
    if (update->pieces++ == 0 && federation->codec != CODEC_NONE)
        update->weight = fixed_point_get_weight(words->words + words->values);
    return words->is_last ? add_all(update, federation, round, site, words->words) : ARRIVAL_GOES_ON;
}

ArrivalState arriving_take(ArrivingUpdate *update, const Federation *federation, SumRound *round, int site,
                           const char *path, const unsigned char *bytes, size_t size, SumProblem *problem)
{
    if (size < UPDATE_PIECE_HEAD) return refuse_piece(problem, site, "sent an update of the wrong size");
    uint64_t number = get_u64(bytes);
    if (number < update->pieces) return refuse_piece(problem, site, "has sent this piece of its update before");
    if (number > update->pieces) return refuse_piece(problem, site, "left out a piece of its update");
    Words words = place_of(federation, round, number);
    words.words = memory_allocate((update_piece_values(federation) + FIXED_POINT_TAIL_WORDS) * sizeof *words.words);
    ArrivalState state = read_piece(update, federation, round, site, &words, bytes + UPDATE_PIECE_HEAD,
                                    size - UPDATE_PIECE_HEAD, problem);
    if (state == ARRIVAL_GOES_ON) state = keep(update, federation, round, site, path, &words);
    free(words.words);
    return state;
}
