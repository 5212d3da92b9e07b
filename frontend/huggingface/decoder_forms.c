/* The kinds of decoders, and of encoders of their form, as rows of names, defaults and traits. */
#include "frontend/huggingface/config_types.h"

#define SIZES                                                                                                          \
    .hidden = "hidden_size", .layers = "num_hidden_layers", .heads = "num_attention_heads",                            \
    .intermediate = "intermediate_size", .positions = "max_position_embeddings"
#define ROOT_MEAN_SQUARES .epsilon = "rms_norm_eps", .norm_epsilon = 1e-6
#define LLAMA_NAMES                                                                                                    \
    SIZES, .embeddings = "embed_tokens", .layer = "layers", .last_norm = "norm", .lm_head = "lm_head",                 \
           .token_classifier = "score", .attention = "self_attn", .input_norm = "input_layernorm", .mlp = "mlp",       \
           .output = "o_proj", .down = "down_proj"
#define SPLIT_NAMES                                                                                                    \
    LLAMA_NAMES, .query = "q_proj", .key = "k_proj", .value = "v_proj", .gate = "gate_proj", .up = "up_proj",          \
                 .query_norm = "q_norm", .key_norm = "k_norm"
#define LLAMA SPLIT_NAMES, ROOT_MEAN_SQUARES, .mlp_norm = "post_attention_layernorm", .activation = "hidden_act"

const DecoderForm decoder_llama = {LLAMA, .theta = 1e4, .traits = KEY_HEADS | HAS_ATTENTION_BIAS | HAS_MLP_BIAS};

const DecoderForm decoder_qwen2 = {LLAMA, .theta = 1e4, .traits = KEY_HEADS | BIASED_INPUTS, .windows = WINDOW_UPPER,
                                   .key_heads = 32};

const DecoderForm decoder_qwen3 = {LLAMA,
                                   .theta = 1e4,
                                   .traits = KEY_HEADS | HAS_ATTENTION_BIAS | NORMS_OF_HEADS,
                                   .windows = WINDOW_UPPER,
                                   .key_heads = 32,
                                   .head_width = 128};

const DecoderForm decoder_mistral = {LLAMA,          .theta = 1e4,  .traits = KEY_HEADS, .windows = WINDOW_ALWAYS,
                                     .window = 4096, .key_heads = 8};

const DecoderForm decoder_smollm3 = {LLAMA, .theta = 2e6,
                                     .traits = KEY_HEADS | HAS_ATTENTION_BIAS | HAS_MLP_BIAS | TIES,
                                     .windows = WINDOW_UNROTATED, .key_heads = 4};

#define GEMMA                                                                                                          \
    SPLIT_NAMES, ROOT_MEAN_SQUARES,                                                                                    \
        .activation = "hidden_activation", .usual_activation = "gelu_pytorch_tanh",                                    \
        .attended_norm = "post_attention_layernorm", .mlp_norm = "pre_feedforward_layernorm",                          \
        .mlp_after_norm = "post_feedforward_layernorm", .window = 4096, .key_heads = 4, .head_width = 256,             \
        .windows = WINDOW_PERIOD
#define GEMMA_TRAITS                                                                                                   \
    KEY_HEADS | HAS_ATTENTION_BIAS | GAINS_ABOVE_ONE | NORMS_AROUND | SCALED_EMBEDDINGS | HAS_CAPS | TIES

const DecoderForm decoder_gemma2 = {GEMMA, .theta = 1e4, .traits = GEMMA_TRAITS, .period = 2};

const DecoderForm decoder_gemma3 = {GEMMA,
                                    .theta = 1e6,
                                    .local_theta = 1e4,
                                    .traits = GEMMA_TRAITS | NORMS_OF_HEADS,
                                    .period = 6,
                                    .lm_class = "Gemma3ForCausalLM"};

const DecoderForm decoder_phi3 = {LLAMA_NAMES,
                                  .epsilon = "rms_norm_eps",
                                  .norm_epsilon = 1e-5,
                                  .theta = 1e4,
                                  .partial = 1,
                                  .activation = "hidden_act",
                                  .mlp_norm = "post_attention_layernorm",
                                  .query = "qkv_proj",
                                  .up = "gate_up_proj",
                                  .traits = KEY_HEADS | FUSED_PARTS | FUSED_GATE,
                                  .windows = WINDOW_ALWAYS,
                                  .original = 4096};

const DecoderForm decoder_gpt2 = {.hidden = "n_embd",
                                  .layers = "n_layer",
                                  .heads = "n_head",
                                  .intermediate = "n_inner",
                                  .positions = "n_positions",
                                  .activation = "activation_function",
                                  .usual_activation = "gelu_new",
                                  .epsilon = "layer_norm_epsilon",
                                  .norm_epsilon = 1e-5,
                                  .embeddings = "wte",
                                  .position_table = "wpe",
                                  .layer = "h",
                                  .last_norm = "ln_f",
                                  .lm_head = "lm_head",
                                  .token_classifier = "classifier",
                                  .attention = "attn",
                                  .input_norm = "ln_1",
                                  .mlp = "mlp",
                                  .mlp_norm = "ln_2",
                                  .query = "c_attn",
                                  .output = "c_proj",
                                  .up = "c_fc",
                                  .down = "c_proj",
                                  .lm_class = "GPT2LMHeadModel",
                                  .traits = LAYER_NORMS | FUSED_PARTS | WITHOUT_GATE | TRANSPOSED | BIASED |
                                            POSITION_TABLE | TIES};

const DecoderForm decoder_gpt_neox = {SIZES,
                                      .theta = 1e4,
                                      .partial = 0.25,
                                      .activation = "hidden_act",
                                      .usual_activation = "gelu",
                                      .epsilon = "layer_norm_eps",
                                      .norm_epsilon = 1e-5,
                                      .embeddings = "embed_in",
                                      .layer = "layers",
                                      .last_norm = "final_layer_norm",
                                      .lm_head = "embed_out",
                                      .token_classifier = "classifier",
                                      .attention = "attention",
                                      .input_norm = "input_layernorm",
                                      .mlp = "mlp",
                                      .mlp_norm = "post_attention_layernorm",
                                      .query = "query_key_value",
                                      .output = "dense",
                                      .up = "dense_h_to_4h",
                                      .down = "dense_4h_to_h",
                                      .traits = LAYER_NORMS | FUSED_HEADS | WITHOUT_GATE | BIASED | PARALLEL};

/* ---- ModernBERT (Warner et al., "Smarter, better, faster, longer", 2024), and its decoder ---- */

#define MODERNBERT                                                                                                     \
    SIZES, .epsilon = "norm_eps", .norm_epsilon = 1e-5, .activation = "hidden_activation", .usual_activation = "gelu", \
           .most_positions = 8192, .theta = 160000, .local_theta = 10000, .windows = WINDOW_MODERNBERT, .period = 3,   \
           .window = 128, .embeddings = "embeddings.tok_embeddings", .embedded_norm = "embeddings.norm",               \
           .layer = "layers", .last_norm = "final_norm", .lm_head = "decoder", .token_classifier = "classifier",       \
           .attention = "attn", .input_norm = "attn_norm", .output = "Wo", .mlp = "mlp", .mlp_norm = "mlp_norm",       \
           .up = "Wi", .down = "Wo"
#define MODERNBERT_TRAITS                                                                                              \
    LAYER_NORMS | FUSED_GATE | FIRST_BARE | HAS_NORM_BIAS | HAS_ATTENTION_BIAS | HAS_MLP_BIAS | PREDICTION_HEAD | TIES

const DecoderForm encoder_modernbert = {MODERNBERT, .query = "Wqkv",
                                        .traits = MODERNBERT_TRAITS | SEES_ALL | FUSED_PARTS};

const DecoderForm decoder_modernbert = {MODERNBERT, .query = "q_proj", .key = "k_proj", .value = "v_proj",
                                        .traits = MODERNBERT_TRAITS};

/* ---- Encoders ---- */

const DecoderForm encoder_eurobert = {SPLIT_NAMES,
                                      .epsilon = "rms_norm_eps",
                                      .norm_epsilon = 1e-5,
                                      .activation = "hidden_act",
                                      .mlp_norm = "post_attention_layernorm",
                                      .theta = 1e4,
                                      .most_positions = 8192,
                                      .traits = SEES_ALL | KEY_HEADS | HAS_ATTENTION_BIAS | HAS_MLP_BIAS};

/* Rotary positions in blocks of BERT's order. */
#define ROTARY_BERT                                                                                                    \
    SIZES, .epsilon = "layer_norm_eps", .activation = "hidden_act", .embeddings = "embeddings.word_embeddings",        \
           .mlp = "mlp"
#define ROTARY_BERT_TRAITS SEES_ALL | LAYER_NORMS | NORMS_AFTER | TYPED | FUSED_PARTS | TIES

/* As flash-attn calls the parts of BERT. */
#define FLASH_NAMES                                                                                                    \
    ROTARY_BERT, .embedded_norm = "emb_ln", .layer = "encoder.layers", .attended_norm = "norm1",                       \
                 .mlp_after_norm = "norm2", .query = "Wqkv", .output = "out_proj", .down = "fc2"

const DecoderForm encoder_nomic = {FLASH_NAMES,  .norm_epsilon = 1e-12,  .width = "head_dim",
                                   .theta = 1e3, .most_positions = 2048, .attention = "attn",
                                   .up = "fc11", .gate = "fc12",         .traits = ROTARY_BERT_TRAITS};

const DecoderForm encoder_jina = {FLASH_NAMES,
                                  .norm_epsilon = 1e-5,
                                  .usual_activation = "gelu",
                                  .theta = 2e4,
                                  .most_positions = 8194,
                                  .attention = "mixer",
                                  .up = "fc1",
                                  .traits = ROTARY_BERT_TRAITS | BIASED | WITHOUT_GATE};

const DecoderForm encoder_gte = {ROTARY_BERT,
                                 .norm_epsilon = 1e-12,
                                 .usual_activation = "gelu",
                                 .theta = 160000,
                                 .most_positions = 8192,
                                 .embedded_norm = "embeddings.LayerNorm",
                                 .layer = "encoder.layer",
                                 .attention = "attention",
                                 .attended_norm = "attn_ln",
                                 .mlp_after_norm = "mlp_ln",
                                 .query = "qkv_proj",
                                 .output = "o_proj",
                                 .up = "up_gate_proj",
                                 .down = "down_proj",
                                 .traits = ROTARY_BERT_TRAITS | BIASED | BIASED_DOWN | FUSED_GATE | GATE_LAST};

const DecoderForm encoder_esm = {SIZES,
                                 .epsilon = "layer_norm_eps",
                                 .norm_epsilon = 1e-12,
                                 .activation = "hidden_act",
                                 .usual_activation = "gelu",
                                 .most_positions = 1026,
                                 .theta = 1e4,
                                 .embeddings = "embeddings.word_embeddings",
                                 .embedded_norm = "embeddings.layer_norm",
                                 .layer = "encoder.layer",
                                 .last_norm = "encoder.emb_layer_norm_after",
                                 .attention = "attention",
                                 .input_norm = "attention.LayerNorm",
                                 .mlp_norm = "LayerNorm",
                                 .query = "self.query",
                                 .key = "self.key",
                                 .value = "self.value",
                                 .output = "output.dense",
                                 .up = "intermediate.dense",
                                 .down = "output.dense",
                                 .traits = SEES_ALL | LAYER_NORMS | BIASED | WITHOUT_GATE | CHOOSES_POSITIONS | TIES};

/* T5 (Raffel et al., "Exploring the limits of transfer learning", 2020): its encoder. */
#define T5                                                                                                             \
    .hidden = "d_model", .layers = "num_layers", .heads = "num_heads", .intermediate = "d_ff", .positions = "n_ctx",   \
    .most_positions = 4096, .width = "d_kv", .epsilon = "layer_norm_epsilon", .norm_epsilon = 1e-6,                    \
    .activation = "feed_forward_proj", .embeddings = "shared", .layer = "encoder.block",                               \
    .last_norm = "encoder.final_layer_norm", .attention = "layer.0.SelfAttention", .input_norm = "layer.0.layer_norm", \
    .mlp = "layer.1.DenseReluDense", .mlp_norm = "layer.1.layer_norm", .query = "q", .key = "k", .value = "v",         \
    .output = "o", .gate = "wi_0", .up = "wi_1", .up_alone = "wi", .down = "wo", .head_width = 64

const DecoderForm encoder_t5 = {T5, .usual_activation = "relu", .traits = SEES_ALL | BUCKETS | TIES};
const DecoderForm encoder_mt5 = {T5, .usual_activation = "gated-gelu", .traits = SEES_ALL | BUCKETS | TIES};
const DecoderForm encoder_umt5 = {T5, .usual_activation = "gated-gelu",
                                  .traits = SEES_ALL | BUCKETS | BUCKETS_OF_LAYER | TIES};
