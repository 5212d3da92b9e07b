#!/usr/bin/env python3
"""Tiny folders of every kind of decoder that `skycc import` reads, and what the Hugging Face library makes of them.

    make_decoders.py OUT [NAME...]       (needs torch and transformers; made with torch 2.15 and transformers 5.24)

Each folder holds config.json and model.safetensors of the language model, with the tensors of a classifier next to it.
`reference.safetensors` holds inputs (`in/*`, one row padded), and the library's results in float32: logits of the
language model (`lm/logits`) and of the classifier of sequences (`seqcls/logits`), the language model's loss before each
of ten steps of AdamW and after the last (`lm/losses`; float64). Weights are random, biases and gains too.
"""
import json
import os
import sys

import torch
import transformers as t
from safetensors.torch import load_file, save_file

BATCH, LENGTH, VOCABULARY = 2, 10, 31
SIZES = dict(vocab_size=VOCABULARY, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
             max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, num_labels=3)
KEYS = dict(num_key_value_heads=1)


def rope(kind, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=10000.0, **more))


FAMILIES = {
    "llama": ("Llama", dict(**SIZES, **KEYS)),
    "llama3": ("Llama", dict(**{**SIZES, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
                             **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                    original_max_position_embeddings=8))),
    "linear": ("Llama", dict(**SIZES, **KEYS, head_dim=6, **rope("linear", factor=3.0))),
    "dynamic": ("Llama", dict(**{**SIZES, "max_position_embeddings": 6}, **KEYS, head_dim=8,
                              **rope("dynamic", factor=2.0))),
    "yarn": ("Qwen2", dict(**SIZES, **KEYS, **rope("yarn", factor=4.0, original_max_position_embeddings=8))),
    "qwen2": ("Qwen2", dict(**SIZES, **KEYS, use_sliding_window=True, sliding_window=4, max_window_layers=1)),
    "qwen3": ("Qwen3", dict(**SIZES, **KEYS, head_dim=8, tie_word_embeddings=True)),
    "mistral": ("Mistral", dict(**SIZES, **KEYS, sliding_window=4)),
    "gemma2": ("Gemma2", dict(**SIZES, **KEYS, head_dim=8, query_pre_attn_scalar=12, sliding_window=4,
                              attn_logit_softcapping=5.0, final_logit_softcapping=3.0)),
    "gemma3": ("Gemma3Text", dict(**SIZES, **KEYS, head_dim=8, query_pre_attn_scalar=8, sliding_window=4,
                                  layer_types=["sliding_attention", "full_attention"],
                                  rope_parameters={"full_attention": dict(rope_type="linear", factor=4.0,
                                                                          rope_theta=1e6),
                                                   "sliding_attention": dict(rope_type="default", rope_theta=1e4)})),
    "phi3": ("Phi3", dict(**SIZES, **KEYS, sliding_window=5,
                          rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))),
    "longrope": ("Phi3", dict(**SIZES, **KEYS, original_max_position_embeddings=8,
                              rope_parameters=dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.0, 1.1],
                                                   long_factor=[1.5, 3.0], partial_rotary_factor=1.0))),
    "gpt2": ("GPT2", dict(vocab_size=VOCABULARY, n_embd=8, n_layer=2, n_head=2, n_positions=32, pad_token_id=0,
                          num_labels=3, scale_attn_by_inverse_layer_idx=True)),
    "gpt_neox": ("GPTNeoX", dict(**SIZES, rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                                              partial_rotary_factor=0.5))),
    "gpt_neox-serial": ("GPTNeoX", dict(**{**SIZES, "num_attention_heads": 1}, use_parallel_residual=False,
                                        attention_bias=False)),
    "modernbert": ("ModernBertDecoder", dict(**SIZES, local_attention=6, global_attn_every_n_layers=2, cls_token_id=1,
                                             sep_token_id=2, classifier_bias=True, norm_bias=True)),
    "smollm3": ("SmolLM3", dict(**SIZES, **KEYS, no_rope_layers=[1, 0], use_sliding_window=True, sliding_window=4)),
}
CLASS_OF_LM = {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}


def draw(model):
    for key, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, std=0.3 if "embed_tokens" in key or "wte" in key or "tok_emb" in key else 0.15)
        if ("norm" in key.lower() or "ln_" in key) and key.endswith("weight") and not "Gemma" in type(model).__name__:
            parameter.data += 1


def losses_of(folder, kind, given, labels):
    """Of ten steps of AdamW in float64, with labels where the mask is. ModernBERT's softmax is of float32, to which the
    mask of float64 is infinite: a token that sees padding only is no number."""
    dtype = torch.float32 if "ModernBert" in kind.__name__ else torch.float64
    model = kind.from_pretrained(folder, attn_implementation="eager", dtype=dtype)
    model.eval()  # without dropout
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    losses = []
    for _ in range(11):
        loss = model(**given, labels=labels).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64)


def main(out, names):
    for name, (prefix, options) in FAMILIES.items():
        if names and name not in names:
            continue
        torch.manual_seed(1)
        folder = os.path.join(out, name)
        config = getattr(t, prefix + "Config")(**options)
        kinds = {"lm": getattr(t, CLASS_OF_LM.get(prefix, prefix + "ForCausalLM")),
                 "seqcls": getattr(t, prefix + "ForSequenceClassification")}
        tensors = {}
        for kind in reversed(kinds.values()):
            model = kind(config)
            draw(model)
            model.save_pretrained(folder)
            tensors.update(load_file(os.path.join(folder, "model.safetensors")))
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        generator = torch.Generator().manual_seed(7)
        ids = torch.randint(5, VOCABULARY, (BATCH, LENGTH), generator=generator)
        mask = torch.ones_like(ids)
        ids[1, 7:], mask[1, 7:] = 0, 0
        labels = torch.where(mask == 1, ids, -100)
        given = {"input_ids": ids, "attention_mask": mask}
        reference = {"in/" + key: value.to(torch.int32) for key, value in {**given, "labels": labels}.items()}
        for head, kind in kinds.items():
            model, info = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32,
                                               output_loading_info=True)
            if info["missing_keys"]:
                print(name, head, "missing", info["missing_keys"])
            with torch.no_grad():
                reference[head + "/logits"] = model.eval()(**given).logits.contiguous()
        reference["lm/losses"] = losses_of(folder, kinds["lm"], given, labels)
        save_file(reference, os.path.join(folder, "reference.safetensors"))
        for junk in os.listdir(folder):
            if junk not in ("config.json", "model.safetensors", "reference.safetensors"):
                os.remove(os.path.join(folder, junk))
        print(name, sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder)), len(tensors))


main(sys.argv[1], sys.argv[2:])
