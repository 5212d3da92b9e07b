#include "frontend/numpy/npy.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "base/parts.h"
#include "base/string_map.h"

enum {
    MOST_HEADER_BYTES = 10000, /* as NumPy itself reads them */
    DEFLATE_RATIO = 1032       /* deflate cannot shrink further: a larger claim is a lie */
};

typedef struct Header {
    DType dtype;
    bool swap; /* the bytes are in the other order than this machine's (little-endian, as all targets are) */
    bool fortran_order;
    Shape shape;
} Header;

/* An element type as NumPy writes it ("<f4"); DTYPE_NONE if it is not supported. */
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

/* The header is a literal dictionary of Python. In JSON the quotes, round brackets, capital letters and last commas
 * differ: they are changed, and jansson reads the rest. NULL if it cannot. */
static json_t *parse_dictionary(const char *text, size_t length)
{
    FREED char *json = memory_allocate(length + 1);
    char quote = '\0';
    size_t size = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (quote) {
            if (c == quote) c = '"', quote = '\0';
        } else if (c == '\'' || c == '"') {
            quote = c;
            c = '"';
        } else if (c == '}' || c == ']' || c == ')') {
            while (size && json[size - 1] == ' ') size--;
            if (size && json[size - 1] == ',') size--;
            if (c == ')') c = ']';
        } else {
            c = c == '(' ? '[' : (char)tolower((unsigned char)c);
        }
        json[size++] = c;
    }
    return json_loadb(json, size, JSON_REJECT_DUPLICATES, NULL);
}

static bool parse_header(const char *text, size_t length, Header *header)
{
    const char *descr;
    int fortran_order;
    json_t *shape, *dictionary = length <= MOST_HEADER_BYTES ? parse_dictionary(text, length) : NULL;
    bool ok = dictionary &&
              json_unpack(dictionary, "{s:s, s:b, s:o!}", "descr", &descr, "fortran_order", &fortran_order, "shape",
                          &shape) == 0 &&
              json_is_array(shape) && json_array_size(shape) <= MAX_RANK;
    if (ok) {
        header->dtype = parse_descr(descr, &header->swap);
        header->fortran_order = fortran_order;
        header->shape.rank = (int)json_array_size(shape);
        for (int i = 0; i < header->shape.rank; i++) {
            const json_t *dimension = json_array_get(shape, (size_t)i);
            ok &= json_is_integer(dimension);
            header->shape.dim[i] = json_integer_value(dimension);
        }
    }
    json_decref(dictionary);
    return ok && shape_elements(&header->shape) >= 0;
}

/* Copies elements, from column-major to row-major order if asked for, swapping bytes if asked for. */
static void copy_elements(unsigned char *to, const unsigned char *from, const Header *header, size_t size)
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
        for (size_t b = 0; b < size; b++) to[i * size + b] = from[source * size + (header->swap ? size - 1 - b : b)];
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
        return refuse(path, array->name, diagnostics, "is not a NumPy array");
    size_t start = bytes[6] == 1 ? 10 : 12, length = 0; /* the length has two bytes in version 1, else four */
    for (size_t i = start; i-- > 8;) length = length << 8 | bytes[i];
    if (length > size - start) return refuse(path, array->name, diagnostics, "was cut off inside its header");
    Header header = {0};
    const char *text = (const char *)bytes + start;
    if (!parse_header(text, length, &header))
        return refuse(path, array->name, diagnostics, "has a header that is damaged or not supported");
    array->dtype = header.dtype;
    if (array->dtype == DTYPE_NONE)
        return refuse(path, array->name, diagnostics, "has an element type that is not supported");
    array->shape = header.shape;
    size_t element = dtype_size(array->dtype), expected = (size_t)shape_elements(&array->shape) * element;
    if (expected != size - start - length)
        return refuse(path, array->name, diagnostics, "has more or fewer bytes than its shape and type say");
    unsigned char *data = arena_allocate(arena, expected);
    copy_elements(data, bytes + start + length, &header, element);
    if (array->dtype == DTYPE_BOOL)
        for (size_t i = 0; i < expected; i++)
            if (data[i] > 1) return refuse(path, array->name, diagnostics, "has a truth value that is neither 0 nor 1");
    array->data = data;
    return true;
}

/* The bytes of an entry, which libzip checks against its checksum. NULL after reporting. */
static const unsigned char *read_entry(zip_t *zip, const zip_stat_t *entry, const char *path, Arena *arena,
                                       Diagnostics *diagnostics)
{
    if (entry->encryption_method != ZIP_EM_NONE) return refuse(path, entry->name, diagnostics, "is encrypted"), NULL;
    if (entry->comp_method != ZIP_CM_STORE && entry->comp_method != ZIP_CM_DEFLATE)
        return refuse(path, entry->name, diagnostics, "is compressed in a way that is not supported"), NULL;
    unsigned char *bytes = arena_allocate(arena, entry->size);
    zip_file_t *file = zip_fopen_index(zip, entry->index, 0);
    size_t size = 0;
    zip_int64_t got = file ? 1 : -1;
    while (size < entry->size && (got = zip_fread(file, bytes + size, entry->size - size)) > 0) size += (size_t)got;
    if (got > 0) got = zip_fread(file, (char[1]){0}, 1); /* at its end the checksum is compared */
    if (file) zip_fclose(file);
    if (got == 0 && size == entry->size) return bytes;
    return refuse(path, entry->name, diagnostics, "is damaged: it does not decompress, or its checksum is wrong"), NULL;
}

/* `budget` is what the archive has left: entries that share bytes would make a small file large. */
static bool read_member(zip_t *zip, zip_uint64_t index, const char *path, size_t *budget, NpyArray *array,
                        StringMap *names, Arena *arena, Diagnostics *diagnostics)
{
    enum { NEEDED = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD };
    zip_stat_t entry;
    if (zip_stat_index(zip, index, ZIP_FL_ENC_RAW, &entry) != 0 || (entry.valid & NEEDED) != NEEDED)
        return refuse(path, NULL, diagnostics, "has a damaged directory");
    if (entry.comp_size > *budget || entry.size / DEFLATE_RATIO > entry.comp_size)
        return refuse(path, entry.name, diagnostics, "claims more bytes than the archive can hold");
    *budget -= entry.comp_size;
    array->name = arena_string_n(arena, entry.name, text_stem(entry.name, ".npy"));
    if (!string_map_add(names, array->name, 0))
        return refuse(path, array->name, diagnostics, "is in the archive twice");
    FREED_WITH(arena_free) Arena scratch = {0};
    const unsigned char *bytes = read_entry(zip, &entry, path, &scratch, diagnostics);
    return bytes && read_array(path, array, bytes, entry.size, arena, diagnostics);
}

/* NULL if the bytes are no archive; libzip would take none at all for an empty one. */
static zip_t *open_archive(const MappedFile *file)
{
    zip_source_t *source = file->size ? zip_source_buffer_create(file->bytes, file->size, 0, NULL) : NULL;
    zip_t *zip = source ? zip_open_from_source(source, ZIP_RDONLY, NULL) : NULL;
    if (!zip) zip_source_free(source);
    return zip;
}

static bool read_archive(const char *path, const MappedFile *file, Arena *arena, NpyArray **arrays, size_t *count,
                         Diagnostics *diagnostics)
{
    zip_t *zip = open_archive(file);
    if (!zip) return refuse(path, NULL, diagnostics, "is not a ZIP archive, or was cut off");
    size_t entries = (size_t)zip_get_num_entries(zip, 0), budget = file->size;
    FREED_WITH(string_map_free) StringMap names = {0};
    bool ok = true;
    *arrays = arena_new_array(arena, NpyArray, entries);
    for (*count = 0; *count < entries && ok; ++*count)
        ok = read_member(zip, *count, path, &budget, &(*arrays)[*count], &names, arena, diagnostics);
    zip_discard(zip);
    return ok;
}

bool npy_read(const char *path, Arena *arena, NpyArray **arrays, size_t *count, Diagnostics *diagnostics)
{
    FREED_WITH(file_unmap) MappedFile file = {0};
    if (!file_map(&file, path, diagnostics)) return false;
    if (text_ends_with(path, ".npz")) return read_archive(path, &file, arena, arrays, count, diagnostics);
    *arrays = arena_new(arena, NpyArray);
    *count = 1;
    return read_array(path, *arrays, file.bytes, file.size, arena, diagnostics);
}
