/* The kinds of decoders, as rows of names, defaults and traits. */
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
    SPLIT_NAMES, ROOT_MEAN_SQUARES, .activation = "hidden_activation", .attended_norm = "post_attention_layernorm",    \
                                    .mlp_norm = "pre_feedforward_layernorm",                                           \
                                    .mlp_after_norm = "post_feedforward_layernorm", .window = 4096, .key_heads = 4,    \
                                    .head_width = 256, .windows = WINDOW_PERIOD
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
                                      .activation = "hidden_act",
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
