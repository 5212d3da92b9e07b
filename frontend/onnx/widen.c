#include "frontend/onnx/importer.h"

static bool is_half(DType dtype) { return dtype == DTYPE_F16 || dtype == DTYPE_BF16; }

void choose_widening(Importer *importer)
{
    const Onnx__GraphProto *graph = importer->proto;
    size_t count = 0;
    DType dtype = DTYPE_NONE;
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const Onnx__TensorProto *tensor = graph->initializer[i];
        const Symbol *symbol = &importer->symbols[*string_map_find(&importer->names, tensor->name)];
        if (!is_half(onnx_dtype(tensor->data_type)) || !symbol->trained || tensor->n_dims < 1) continue;
        dtype = onnx_dtype(tensor->data_type);
        count++;
    }
    importer->widens = count > 0;
    /* skycc import says so itself, and what was trained is exported as float32. */
    if (count && !onnx_model_is_distinct(&importer->model->onnx))
        diagnostics_warning(importer->diagnostics, PLACE_FILE(importer->graph->file), NULL,
                            "holds %zu weights in %s: they are trained as float32, and exported in their own type",
                            count, dtype_name(dtype));
}

DType imported_dtype(const Importer *importer, int32_t data_type)
{
    DType dtype = onnx_dtype(data_type);
    return importer->widens && is_half(dtype) ? DTYPE_F32 : dtype;
}

void widen_tensor(const Importer *importer, OnnxTensor *tensor)
{
    if (!importer->widens || !is_half(tensor->dtype)) return;
    int64_t elements = shape_elements(&tensor->shape);
    if (tensor->data) {
        float *wide = arena_new_array(&importer->model->arena, float, (size_t)elements);
        for (int64_t i = 0; i < elements; i++) wide[i] = (float)element_as_double(tensor->dtype, tensor->data, i);
        tensor->data = wide;
    }
    tensor->dtype = DTYPE_F32;
    tensor->bytes = (size_t)elements * sizeof(float);
    tensor->file = NULL;
}
