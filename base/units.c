#include "base/units.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct Unit {
    const char *name;
    double factor;
    double divisor; /* 0: none. Dividing by 1e3 rounds once, multiplying by 1e-3 twice. */
} Unit;

static const Unit byte_units[] = {
    {"B", 1, 0},    {"KiB", 0x1p10, 0}, {"MiB", 0x1p20, 0}, {"GiB", 0x1p30, 0}, {"TiB", 0x1p40, 0},
    {"kB", 1e3, 0}, {"KB", 1e3, 0},     {"MB", 1e6, 0},     {"GB", 1e9, 0},     {"TB", 1e12, 0},
};
static const Unit bit_units[] = {
    {"bit", 1, 0}, {"kbit", 1e3, 0}, {"Mbit", 1e6, 0}, {"Gbit", 1e9, 0}, {"Tbit", 1e12, 0},
    {"bps", 1, 0}, {"kbps", 1e3, 0}, {"Mbps", 1e6, 0}, {"Gbps", 1e9, 0}, {"Tbps", 1e12, 0},
};
static const Unit second_units[] = {{"s", 1, 0}, {"ms", 1, 1e3}, {"us", 1, 1e6}, {"ns", 1, 1e9}};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The number at the start of `text`; *rest is what follows it. strtod alone would take "inf", "nan", "0x1p3" and
 * leading spaces. */
static bool split_number(const char *text, double *value, const char **rest)
{
    size_t length = strspn(text, "0123456789.");
    bool negative = *text == '-';
    if (negative) length = 1 + strspn(text + 1, "0123456789.");
    if (length == (size_t)negative) return false;
    if (text[length] == 'e' || text[length] == 'E') {
        size_t sign = text[length + 1] == '+' || text[length + 1] == '-';
        size_t digits = strspn(text + length + 1 + sign, "0123456789");
        if (digits) length += 1 + sign + digits;
    }
    char *end;
    double number = strtod(text, &end);
    if (end != text + length || !isfinite(number)) return false;
    *value = number;
    *rest = end;
    return true;
}

/* Number and unit; `suffix` may follow the unit and is required if `suffix_required`. */
static bool parse(const char *text, const Unit *units, size_t count, const char *suffix, bool suffix_required,
                  double *value)
{
    double number;
    const char *unit;
    if (!split_number(text, &number, &unit) || number < 0) return false;
    unit += strspn(unit, " ");
    size_t length = strlen(unit), suffix_length = strlen(suffix);
    if (suffix_length && length > suffix_length && strcmp(unit + length - suffix_length, suffix) == 0)
        length -= suffix_length;
    else if (suffix_required)
        return false;
    for (size_t i = 0; i < count; i++)
        if (strlen(units[i].name) == length && strncmp(unit, units[i].name, length) == 0) {
            *value = number * units[i].factor;
            if (units[i].divisor > 0) *value /= units[i].divisor;
            return isfinite(*value);
        }
    return false;
}

bool units_parse_number(const char *text, double *value)
{
    const char *rest;
    double number;
    if (!split_number(text, &number, &rest) || *rest) return false;
    *value = number;
    return true;
}

bool units_parse_bytes(const char *text, int64_t *bytes)
{
    double value;
    bool bare = units_parse_number(text, &value) && value >= 0 && value == floor(value);
    if (!bare && !parse(text, byte_units, COUNT(byte_units), "", false, &value)) return false;
    if (value >= 0x1p63) return false;
    *bytes = (int64_t)value;
    return true;
}

bool units_parse_bandwidth(const char *text, double *bytes_per_second)
{
    double value;
    if (parse(text, byte_units, COUNT(byte_units), "/s", true, &value)) {
    } else if (parse(text, bit_units, COUNT(bit_units), "/s", false, &value)) {
        value /= 8;
    } else {
        return false;
    }
    if (!(value > 0)) return false;
    *bytes_per_second = value;
    return true;
}

bool units_parse_seconds(const char *text, double *seconds)
{
    double value;
    bool zero = units_parse_number(text, &value) && value == 0;
    if (!zero && !parse(text, second_units, COUNT(second_units), "", false, &value)) return false;
    *seconds = zero ? 0 : value;
    return true;
}
