/* A site's state, for all files of a member. Nothing here calls the others. */
#include <stdarg.h>
#include <unistd.h>

#include "base/text.h"
#include "federation/member/member.h"

enum { LONGEST_PAUSE_MS = 1000 };

const char *member_end_path(Member *member)
{
    return arena_format(&member->arena, "%s/end.safetensors", member->options->checkpoint);
}

bool member_has_end(const Member *member)
{
    return member->federation.overlap > 0 && member->end_round == member->start.round;
}

bool member_is_coded(const Member *member) { return member->federation.codec != CODEC_NONE; }

void member_pause(int *milliseconds)
{
    usleep((useconds_t)*milliseconds * 1000);
    *milliseconds = *milliseconds * 2 < LONGEST_PAUSE_MS ? *milliseconds * 2 : LONGEST_PAUSE_MS;
}

void member_say(const Member *member, const char *format, ...)
{
    const Federation *federation = &member->federation;
    char text[512];
    va_list arguments;
    if (member->options->quiet) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    text_print(stderr, "%s: %s\n", federation->sites[federation->compiled.site].name, text);
}
