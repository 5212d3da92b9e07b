#include "frontend/onnx/head_names.h"

#include <string.h>

size_t head_name_length(const char *name)
{
    static const char *const heads[] = {"classifier", "score", "qa_outputs"};
    for (const char *component = name; *component; component += *component == '.') {
        size_t length = strcspn(component, ".");
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
            size_t end = strlen(heads[i]);
            if (length >= end && memcmp(component + length - end, heads[i], end) == 0)
                return (size_t)(component - name) + length;
        }
        component += length;
    }
    return 0;
}
