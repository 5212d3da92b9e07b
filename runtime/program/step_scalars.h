/* The scalars that change from step to step: the runtime sets them before every step, kernels read them. The first row
 * changes from micro-batch to micro-batch: it is set before every forward and backward. */
#ifndef RUNTIME_PROGRAM_STEP_SCALARS_H
#define RUNTIME_PROGRAM_STEP_SCALARS_H

#include <stdint.h>

typedef enum SkyOptimizerKind {
    SKY_SGD,
    SKY_MOMENTUM,
    SKY_ADAM,
    SKY_ADAMW,
    SKY_LAMB,
    SKY_OPTIMIZER_COUNT
} SkyOptimizerKind;

/* Doubles, as options of training are: the same number gives the same bits wherever it was given. */
typedef struct SkyOptimizer {
    uint32_t kind; /* SkyOptimizerKind */
    uint32_t reserved;
    double learning_rate, beta1 /* or momentum */, beta2, epsilon, weight_decay;
} SkyOptimizer;

/* Elements of the step space: two groups of the same layout, for parameters that decay and for those that do not. Calls
 * name element 0; update calls get a copy of the group that is theirs, with their own learning rate. */
enum {
    SKY_STEP_LOSS_SCALE, /* 1 / weight of the batch's labels; of the first label input, see loss_scale_element */
    SKY_STEP_LEARNING_RATE,
    SKY_STEP_BETA1, /* also momentum */
    SKY_STEP_BETA2,
    SKY_STEP_EPSILON,
    SKY_STEP_WEIGHT_DECAY,
    SKY_STEP_CORRECTION1,     /* 1 / (1 - beta1^t), t counted from 1; 1 without bias correction */
    SKY_STEP_CORRECTION2,     /* 1 / (1 - beta2^t) */
    SKY_STEP_GRADIENT_SCALE,  /* from gradient clipping; 1 without */
    SKY_STEP_DROPOUT = 9,     /* 1 where elements are dropped: in training; 0: every one is kept */
    SKY_STEP_RANDOM_KEY = 10, /* an int64, in the place of two: of the random numbers of this step */
    SKY_STEP_FIRST_ROW = 12,  /* likewise: which row of the batch the micro-batch that is being computed begins with */
    SKY_STEP_ROWS = 14,       /* and how many rows it has: the others are padding */
    SKY_STEP_ROW_SHARE = 15,  /* 1 / rows of the batch */
    SKY_STEP_GROUP = 16,      /* the second group starts here, with the same layout */
    SKY_STEP_SHARE = 25,      /* in its unused part: 1 / micro-batches */
    SKY_STEP_FURTHER_LOSS_SCALES = 26, /* ... and the loss scales of further label inputs */
    SKY_STEP_WEIGHTS_KEPT = 30,        /* not 0: products have kept the step's weights (codegen/stage/stage_kept.h) */
    SKY_STEP_SCALARS = 32,
    SKY_MOST_LABELS = 4 /* ways in which one model reads label inputs */
};

/* What label inputs hold. */
typedef enum SkyLabelKind {
    SKY_LABELS_CLASSES,      /* integers: numbers of classes, or an ignore index */
    SKY_LABELS_NUMBERS,      /* anything finite; NaN counts for nothing */
    SKY_LABELS_PROBABILITIES /* 0 ... 1; NaN and an ignore index count for nothing */
} SkyLabelKind;

/* Where the loss scale of label input number `labels` stands. */
static inline int loss_scale_element(int labels)
{
    return labels ? SKY_STEP_FURTHER_LOSS_SCALES + labels - 1 : SKY_STEP_LOSS_SCALE;
}

#endif
