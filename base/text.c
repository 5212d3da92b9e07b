#include "base/text.h"

int32_t text_character(const char *text, size_t size, size_t *used)
{
    static const int32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    size_t length = bytes[0] < 0x80 ? 1 : bytes[0] < 0xc0 ? 0 : bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
    *used = 1;
    if (length == 1) return bytes[0];
    if (length == 0 || length > size || bytes[0] > 0xf4) return -1;
    int32_t character = bytes[0] & (0x7f >> length);
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) return -1;
        character = character << 6 | (bytes[i] & 0x3f);
    }
    bool surrogate = character >= 0xd800 && character <= 0xdfff;
    if (character < smallest[length] || character > 0x10ffff || surrogate) return -1;
    *used = length;
    return character;
}

bool text_is_control(int32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}
