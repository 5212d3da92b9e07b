/* Which parameters are trained is decided by how they are used, not by their shape: exporters leave the scale of
 * attention, rotary tables, masks and sinusoids as float tensors among the weights. */
#ifndef GRAPH_ANALYSIS_CHOOSE_TRAINED_H
#define GRAPH_ANALYSIS_CHOOSE_TRAINED_H

#include "graph/graph.h"

typedef struct TrainedChoice {
    bool trained;
    bool unsure;     /* nothing in the graph says it for certain: worth a warning */
    bool matrix;     /* a factor of a matrix product, in two dimensions */
    bool copies;     /* it would be trained, but holds copies of one parameter, which would be trained apart */
    bool activation; /* it would be trained, but has the form of heads of activations: [1, heads, rows, width] */
    bool mask;       /* it would be trained if it held other numbers than 0 and one more */
    bool by_numbers; /* it would be trained if it held other numbers, or were not an angle */
    const char *why; /* a phrase: "a factor of a matrix product"; static */
} TrainedChoice;

/* What the uses of `parameter` (ROLE_PARAMETER, of a float type), and where those leave it open its elements, say about
 * it. The graph is the imported one: outputs named, no loss yet. */
typedef struct UseSurvey UseSurvey;
UseSurvey *use_survey_create(const Graph *graph);
TrainedChoice choose_trained(UseSurvey *survey, ValueId parameter);
void use_survey_free(UseSurvey *survey);

/* Whether the elements [..., positions, width] are sines and cosines: every column, along positions, of one frequency,
 * whatever its phase and amplitude. At least four positions are needed to tell. `data` may be NULL: then they are
 * not. */
bool elements_are_sinusoids(DType dtype, const Shape *shape, const void *data);
/* Whether they are a mask: nothing but 0 and one number that is very low, or 0 and 1 with some pattern that is a
 * triangle or a band. */
bool elements_are_mask(DType dtype, const Shape *shape, const void *data);
/* Whether the elements along the last axis are linear in positions, or in distances from one of them, as ALiBi's are
 * (Press et al. 2022), but for those that a mask hides. */
bool elements_are_linear(const Value *value);

#endif
