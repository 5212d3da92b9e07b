#include "base/npy.h"

#include <stdlib.h>
#include <string.h>

#include "base/zip.h"

/* The header: a Python dictionary with these three entries. */
typedef struct Header {
    char descr[8];
    bool fortran_order;
    Shape shape;
} Header;

typedef struct Cursor {
    const char *at, *end;
} Cursor;

static bool take(Cursor *cursor, char c)
{
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\n')) cursor->at++;
    if (cursor->at == cursor->end || *cursor->at != c) return false;
    cursor->at++;
    return true;
}

static bool take_word(Cursor *cursor, const char *word)
{
    size_t length = strlen(word);
    take(cursor, ' ');
    if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, word, length) != 0) return false;
    cursor->at += length;
    return true;
}

/* A quoted string shorter than `size`. */
static bool take_string(Cursor *cursor, char *text, size_t size)
{
    char quote = take(cursor, '\'') ? '\'' : '"';
    if (quote == '"' && !take(cursor, '"')) return false;
    for (size_t length = 0; cursor->at < cursor->end && length + 1 < size; length++) {
        char c = *cursor->at++;
        text[length] = c == quote ? '\0' : c;
        if (c == quote) return true;
    }
    return false;
}

static bool take_dimension(Cursor *cursor, int64_t *dimension)
{
    const char *start = cursor->at;
    for (*dimension = 0; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; cursor->at++)
        if (__builtin_mul_overflow(*dimension, 10, dimension) ||
            __builtin_add_overflow(*dimension, *cursor->at - '0', dimension))
            return false;
    return cursor->at > start;
}

static bool take_shape(Cursor *cursor, Shape *shape)
{
    if (!take(cursor, '(')) return false;
    for (shape->rank = 0; !take(cursor, ')'); shape->rank++) {
        take(cursor, ' ');
        if (shape->rank == MAX_RANK || !take_dimension(cursor, &shape->dim[shape->rank])) return false;
        if (take(cursor, ',')) continue;
        if (!take(cursor, ')')) return false;
        shape->rank++;
        break;
    }
    return shape_elements(shape) >= 0;
}

static bool parse_header(Cursor cursor, Header *header)
{
    bool descr = false, order = false, shape = false;
    char key[16];
    if (!take(&cursor, '{')) return false;
    while (!take(&cursor, '}')) {
        if (!take_string(&cursor, key, sizeof key) || !take(&cursor, ':')) return false;
        if (strcmp(key, "descr") == 0) {
            descr = take_string(&cursor, header->descr, sizeof header->descr);
            if (!descr) return false;
        } else if (strcmp(key, "fortran_order") == 0) {
            header->fortran_order = take_word(&cursor, "True");
            order = header->fortran_order || take_word(&cursor, "False");
            if (!order) return false;
        } else if (strcmp(key, "shape") == 0) {
            shape = take_shape(&cursor, &header->shape);
            if (!shape) return false;
        } else {
            return false;
        }
        if (take(&cursor, ',')) continue;
        if (!take(&cursor, '}')) return false;
        break;
    }
    return descr && order && shape;
}

/* *swap: the bytes are in the other order than this machine's (little-endian, as all targets are). */
static DType parse_descr(const char *descr, bool *swap)
{
    static const struct {
        const char *name;
        DType dtype;
    } types[] = {{"f2", DTYPE_F16}, {"f4", DTYPE_F32}, {"f8", DTYPE_F64}, {"i1", DTYPE_I8},
                 {"i2", DTYPE_I16}, {"i4", DTYPE_I32}, {"i8", DTYPE_I64}, {"u1", DTYPE_U8},
                 {"u2", DTYPE_U16}, {"u4", DTYPE_U32}, {"u8", DTYPE_U64}, {"b1", DTYPE_BOOL}};
    *swap = *descr == '>';
    if (!*descr || !strchr("<>|=", *descr)) return DTYPE_NONE;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(descr + 1, types[i].name) == 0) return types[i].dtype;
    return DTYPE_NONE;
}

/* Copies elements, from column-major to row-major order if asked for, swapping bytes if asked for. */
static void copy_elements(unsigned char *to, const unsigned char *from, const Header *header, size_t size, bool swap)
{
    const Shape *shape = &header->shape;
    size_t count = (size_t)shape_elements(shape);
    int64_t index[MAX_RANK] = {0};
    for (size_t i = 0; i < count; i++) {
        size_t source = i;
        if (header->fortran_order) {
            source = 0;
            for (int d = shape->rank; d-- > 0;) source = source * (size_t)shape->dim[d] + (size_t)index[d];
            for (int d = shape->rank; d-- > 0 && ++index[d] == shape->dim[d];) index[d] = 0;
        }
        for (size_t b = 0; b < size; b++) to[i * size + b] = from[source * size + (swap ? size - 1 - b : b)];
    }
}

static bool refuse(const char *path, const char *name, Diagnostics *diagnostics, const char *problem)
{
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = path, .object = name}, NULL, "%s", problem);
}

static bool read_array(const char *path, NpyArray *array, const unsigned char *bytes, size_t size, Arena *arena,
                       Diagnostics *diagnostics)
{
    enum { MAGIC_BYTES = 6 };
    if (size < MAGIC_BYTES + 6 || memcmp(bytes, "\x93NUMPY", MAGIC_BYTES) != 0 || bytes[6] < 1 || bytes[6] > 3)
        return refuse(path, array->name, diagnostics, "is no NumPy array");
    size_t start = bytes[6] == 1 ? 10 : 12, length = 0; /* the length has two bytes in version 1, else four */
    for (size_t i = start; i-- > 8;) length = length << 8 | bytes[i];
    if (length > size - start) return refuse(path, array->name, diagnostics, "was cut off inside its header");
    Header header = {0};
    const char *text = (const char *)bytes + start;
    if (!parse_header((Cursor){text, text + length}, &header))
        return refuse(path, array->name, diagnostics, "has a header that is damaged or not supported");
    bool swap;
    array->dtype = parse_descr(header.descr, &swap);
    if (array->dtype == DTYPE_NONE)
        return refuse(path, array->name, diagnostics, "has an element type that is not supported");
    array->shape = header.shape;
    size_t element = dtype_size(array->dtype), expected = (size_t)shape_elements(&array->shape) * element;
    if (expected != size - start - length)
        return refuse(path, array->name, diagnostics, "has more or fewer bytes than its shape and type say");
    unsigned char *data = arena_allocate(arena, expected);
    copy_elements(data, bytes + start + length, &header, element, swap);
    if (array->dtype == DTYPE_BOOL)
        for (size_t i = 0; i < expected; i++)
            if (data[i] > 1) return refuse(path, array->name, diagnostics, "has a truth value that is neither 0 nor 1");
    array->data = data;
    return true;
}

static bool read_archive(const char *path, Arena *arena, NpyArray **arrays, size_t *count, Diagnostics *diagnostics)
{
    ZipFile zip;
    if (!zip_open(&zip, path, diagnostics)) return false;
    bool ok = true;
    *arrays = arena_new_array(arena, NpyArray, zip.count);
    for (*count = 0; *count < zip.count && ok; ++*count) {
        const ZipEntry *entry = &zip.entries[*count];
        NpyArray *array = &(*arrays)[*count];
        size_t length = strlen(entry->name);
        if (length > 4 && strcmp(entry->name + length - 4, ".npy") == 0) length -= 4;
        array->name = arena_string_n(arena, entry->name, length);
        Arena scratch = {0};
        const unsigned char *bytes = zip_read(&zip, entry, &scratch, diagnostics);
        ok = bytes && read_array(path, array, bytes, entry->size, arena, diagnostics);
        arena_free(&scratch);
    }
    zip_close(&zip);
    return ok;
}

bool npy_read(const char *path, Arena *arena, NpyArray **arrays, size_t *count, Diagnostics *diagnostics)
{
    size_t length = strlen(path);
    if (length > 4 && strcmp(path + length - 4, ".npz") == 0)
        return read_archive(path, arena, arrays, count, diagnostics);
    MappedFile file;
    if (!file_map(&file, path, diagnostics)) return false;
    *arrays = arena_new(arena, NpyArray);
    *count = 1;
    bool ok = read_array(path, *arrays, file.bytes, file.size, arena, diagnostics);
    file_unmap(&file);
    return ok;
}
