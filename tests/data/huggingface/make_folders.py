#!/usr/bin/env python3
"""Tiny folders of every architecture that `skycc import` reads, and what the Hugging Face library computes with them.

    make_folders.py OUT [NAME...]     (needs torch and transformers; made with torch 2.15 and transformers 5.23, the
                                      last ten with 5.24, those with distances with 4.57)

A folder holds the encoder and, side by side, the tensors of all its heads, which have names of their own or the same
shape. `reference.safetensors` holds the inputs (`in/*`) and, for each head, the outputs of the library's class for it
(`seqcls/logits` ...), of some also the loss of the sequence classifier and its gradients (`gradient/*`). Weights are
random, biases and gains too: what is swapped, transposed or left out shows.
"""
import json
import os
import sys

import torch
import transformers as t
from safetensors.torch import load_file, save_file

BATCH, LENGTH, VOCABULARY = 2, 11, 61
COMMON = dict(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
              max_position_embeddings=24)
NAMES = dict(id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})

FAMILIES = {
    "bert": ("Bert", t.BertConfig(**COMMON, **NAMES)),
    "roberta": ("Roberta", t.RobertaConfig(**COMMON, type_vocab_size=1, pad_token_id=1, **NAMES)),
    "xlm-roberta": ("XLMRoberta", t.XLMRobertaConfig(**COMMON, type_vocab_size=1, pad_token_id=1, **NAMES)),
    "camembert": ("Camembert", t.CamembertConfig(**COMMON, type_vocab_size=1, pad_token_id=1, **NAMES)),
    "xlm-roberta-xl": ("XLMRobertaXL", t.XLMRobertaXLConfig(**COMMON, type_vocab_size=1, pad_token_id=1, **NAMES)),
    "data2vec-text": ("Data2VecText", t.Data2VecTextConfig(**COMMON, pad_token_id=1, **NAMES)),
    "ernie": ("Ernie", t.ErnieConfig(**COMMON, **NAMES)),
    "distilbert": ("DistilBert",
                   t.DistilBertConfig(vocab_size=VOCABULARY, dim=16, n_layers=2, n_heads=2, hidden_dim=24,
                                      max_position_embeddings=24, **NAMES)),
    "electra": ("Electra", t.ElectraConfig(**COMMON, embedding_size=8, **NAMES)),
    "albert": ("Albert",
               t.AlbertConfig(**{**COMMON, "num_hidden_layers": 3}, embedding_size=8, inner_group_num=1,
                              hidden_act="gelu_new", **NAMES)),
    "mpnet": ("MPNet", t.MPNetConfig(**COMMON, **NAMES)),
    "modernbert": ("ModernBert",
                   t.ModernBertConfig(**{**COMMON, "num_hidden_layers": 4}, local_attention=8, pad_token_id=0,
                                      bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, **NAMES)),
    "deberta-v2": ("DebertaV2",
                   t.DebertaV2Config(**COMMON, type_vocab_size=0, relative_attention=True, position_buckets=4,
                                     norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"],
                                     position_biased_input=False, legacy=False, pad_token_id=0, **NAMES)),
    "deberta-v2-conv": ("DebertaV2",
                        t.DebertaV2Config(**COMMON, type_vocab_size=2, relative_attention=True,
                                          max_relative_positions=6, pos_att_type=["c2p", "p2c"], conv_kernel_size=3,
                                          conv_act="gelu", embedding_size=8, position_biased_input=True, pad_token_id=0,
                                          **NAMES)),
}
if t.__version__ < "5":  # later versions compute by absolute positions, whatever the configuration says
    DISTANCES = dict(**COMMON, **NAMES)
    FAMILIES = {
        "bert-distances": ("Bert", t.BertConfig(**DISTANCES, position_embedding_type="relative_key_query")),
        "roberta-distances": ("Roberta", t.RobertaConfig(**DISTANCES, type_vocab_size=1, pad_token_id=1,
                                                         position_embedding_type="relative_key")),
    }

ROTARY = dict(**COMMON, **NAMES)
T5 = dict(vocab_size=VOCABULARY, d_model=16, d_kv=6, d_ff=24, num_layers=2, num_heads=2,
          relative_attention_num_buckets=8, relative_attention_max_distance=10, pad_token_id=0, **NAMES)
FAMILIES |= {} if t.__version__ < "5" else {
    "eurobert": ("EuroBert", t.EuroBertConfig(**ROTARY, num_key_value_heads=1, mlp_bias=True, pad_token_id=0,
                                              bos_token_id=1, eos_token_id=2, mask_token_id=3)),
    "eurobert-mean": ("EuroBert", t.EuroBertConfig(**ROTARY, head_dim=6, classifier_pooling="mean", attention_bias=True,
                                                   tie_word_embeddings=True, pad_token_id=0, bos_token_id=1,
                                                   eos_token_id=2, mask_token_id=3)),
    "nomic_bert": ("NomicBert", t.NomicBertConfig(**ROTARY)),
    "gte": ("Gte", t.GteConfig(**ROTARY, pad_token_id=1)),
    "jina_embeddings_v3": ("JinaEmbeddingsV3", t.JinaEmbeddingsV3Config(**ROTARY, pad_token_id=1, type_vocab_size=2)),
    "esm": ("Esm", t.EsmConfig(**ROTARY, pad_token_id=1, mask_token_id=7, position_embedding_type="rotary",
                               token_dropout=True)),
    "esm-absolute": ("Esm", t.EsmConfig(**ROTARY, pad_token_id=1, mask_token_id=7, emb_layer_norm_before=True)),
    "t5": ("T5", t.T5Config(**T5)),
    "mt5": ("MT5", t.MT5Config(**T5)),
    "umt5": ("UMT5", t.UMT5Config(**T5, feed_forward_proj="gated-silu")),
}
WITH_GRADIENTS = ("bert", "albert", "mpnet", "modernbert", "deberta-v2", "deberta-v2-conv",
                  "eurobert", "bert-distances")
LABELS = torch.tensor([1, 0])
LARGE_ONES = {"t5": ("tokcls", "base"), "mt5": ("tokcls", "base"), "umt5": ("tokcls", "base")}  # heads of the encoder
HEADS = {"seqcls": "ForSequenceClassification", "tokcls": "ForTokenClassification", "qa": "ForQuestionAnswering",
         "mlm": "ForMaskedLM", "base": "Model"}


def inputs(kind, padding):
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(5, VOCABULARY, (BATCH, LENGTH), generator=generator)
    mask = torch.ones_like(ids)
    ids[1, 8:], mask[1, 8:] = padding, 0
    types = torch.zeros_like(ids)
    types[:, 5:] = mask[:, 5:]
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def main(out, names):
    for name, (prefix, config) in FAMILIES.items():
        if names and name not in names:
            continue
        torch.manual_seed(1)
        folder = os.path.join(out, name)
        tensors = {}
        kinds = {head: getattr(t, prefix + ("EncoderModel" if head == "base" and name in LARGE_ONES else suffix))
                 for head, suffix in HEADS.items()
                 if head in LARGE_ONES.get(name, HEADS) and hasattr(t, prefix + suffix)}
        for head, kind in kinds.items():
            model = kind(config)
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter, std=0.15)
            for key, parameter in model.named_parameters():
                if ("norm" in key.lower() or "_ln" in key) and key.endswith("weight"):
                    parameter.data += 1
            model.save_pretrained(folder)
            saved = load_file(os.path.join(folder, "model.safetensors"))
            base = "" if head != "base" else model.base_model_prefix + "."
            for key, tensor in saved.items():
                if "*" in key or "contact_head" in key:  # no weights of the encoder
                    continue
                tensors.setdefault(base + key, tensor)
        architecture = prefix + ("ForPreTraining" if name == "electra" else
                                 "ForTokenClassification" if name in LARGE_ONES else "ForSequenceClassification")
        config.architectures = [architecture]
        config.save_pretrained(folder)
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        given = inputs(name, config.pad_token_id if config.pad_token_id is not None else 0)
        reference = {"in/" + key: value.to(torch.int32) for key, value in given.items()}
        types = getattr(config, "type_vocab_size", 0) or 0
        call = {key: value for key, value in given.items() if key != "token_type_ids" or types > 1}
        for head, kind in kinds.items():
            model, info = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64,
                                               output_loading_info=True)
            if info["missing_keys"]:
                print(name, head, "missing", info["missing_keys"])
            gradients = head == "seqcls" and name in WITH_GRADIENTS
            result = model.eval()(**call, **({"labels": LABELS} if gradients else {}))
            if gradients:
                result.loss.backward()
                for key, parameter in model.named_parameters():
                    if parameter.grad is None:  # absolute positions that nothing reads
                        continue
                    reference["gradient/" + key] = parameter.grad.to(torch.float32).contiguous()
                reference["in/labels"] = LABELS.to(torch.int32)
            for key, value in result.items():
                if isinstance(value, torch.Tensor):
                    reference[f"{head}/{key}"] = value.detach().to(torch.float32).contiguous()
        save_file(reference, os.path.join(folder, "reference.safetensors"))
        for junk in os.listdir(folder):
            if junk not in ("config.json", "model.safetensors", "reference.safetensors"):
                os.remove(os.path.join(folder, junk))
        print(name, sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder)), len(tensors))


main(sys.argv[1], sys.argv[2:])
