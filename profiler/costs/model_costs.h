/* Costs of a model's layers on the devices of a cluster: memory as it is laid out, times measured or estimated.
 *
 * Times come from a profile where there is one: kernel times measured on the device itself, else on the reference
 * machine, multiplied by the device's slowdown. A kernel that was not measured, and without a profile every kernel,
 * takes the longer of its floating-point operations at the machine's speed and its bytes at the machine's memory
 * bandwidth (the roofline model, Williams et al. 2009), plus the time it takes to start one; speeds are those measured,
 * else those of the device's specification. Measured links replace those of the cluster file between the same
 * regions.
 *
 * Small micro-batches are inefficient: a matrix product packs its operands and fills its registers before it runs at
 * full speed. By bench_kernels on a Zen 4 core (6 layers of 384; 16, 32, 64, 128, 256, 512 tokens), forward and
 * backward take 2.17, 1.38, 1.21, 1.08, 1.03 and 1.01 times what many tokens take per token, and with bf16 products
 * 2.98, 1.78, 1.33, 1.10, 1.04 and 1.01 times. Both follow from the time of 12 more float32 multiply-adds along the
 * shortest extent of each product. bench/gemm has the same of single products. Products of bf16
 * that keep their weights for a step (kept_costs.h) do without 8 of these, counted along their rows. */
#ifndef PROFILER_COSTS_MODEL_COSTS_H
#define PROFILER_COSTS_MODEL_COSTS_H

#include "cluster/cluster.h"
#include "codegen/stage/stage.h"
#include "profiler/costs/costs.h"
#include "profiler/costs/profile.h"

/* Fills `costs`, called `name` (free with costs_free), for a graph whose layers are assigned. `profile` may be NULL.
 * `codecs`: what links may use (base/codec.h); what these make of what crosses, and what coding takes, is filled in
 * too. `in_flight`: how many of the micro-batches a stage has in flight at most. `norm_bytes`: Costs'; updates include
 * squares of gradients where it is not 0. Warns when the profile was made with a model but lacks kernels of this
 * one. */
bool model_costs(Costs *costs, Graph *graph, ProductPrecision precision, const Cluster *cluster, const Profile *profile,
                 const char *name, const char *model_hash, int microbatches, int in_flight, unsigned codecs,
                 int64_t norm_bytes, Diagnostics *diagnostics);

/* Has them expect such rows: times are from now on those of a micro-batch with as many lines as it has on average. */
void model_costs_expect_rows(Costs *costs, const RowSamples *rows);

#endif
