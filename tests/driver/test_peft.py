#!/usr/bin/env python3
"""Adapters of skycc export, loaded by the PEFT library, give the logits of the merged model. Runs where that library
is.

    tests/driver/test_peft.py SKYCC
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import transformers
    from peft import PeftModel
except ImportError as missing:
    print(f"SKIPPED: adapters loaded by PEFT: {missing}")
    sys.exit(0)

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
import safetensors_files  # noqa: E402

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
         "num_labels": 3}
CASES = [("Bert", {**SMALL, "max_position_embeddings": 32}, "query,value"),
         ("DistilBert", {"vocab_size": 64, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64,
                         "num_labels": 3}, "q_lin,v_lin"),
         ("Roberta", {**SMALL, "max_position_embeddings": 40}, "query,value"),
         ("ModernBert",
          {**SMALL, "pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1,
           "eos_token_id": 2}, "Wqkv")]
TOLERANCE = 1e-5  # of the largest logit


def check(skycc, family, sizes, targets):
    model = getattr(transformers, f"{family}ForSequenceClassification")
    model(getattr(transformers, f"{family}Config")(**sizes)).save_pretrained("folder")
    for arguments in (["import", "folder", "-o", "model.onnx"], [
            "run", "model.onnx", "--inputs", "x.safetensors", "-o", "trained.safetensors", "--loss", "cross-entropy",
            "--train", "3", "--optimizer", "sgd:lr=2", "--lora", f"r=4,alpha=8,targets={targets}"
    ], ["export", "model.onnx", "trained.safetensors", "--adapter", "adapter", "-o",
            "merged.onnx"], ["run", "merged.onnx", "--inputs", "x.safetensors", "-o", "merged.safetensors"]):
        subprocess.run([skycc, *arguments], check=True, stderr=subprocess.DEVNULL)
    adapted = PeftModel.from_pretrained(model.from_pretrained("folder"), "adapter").eval()
    inputs = safetensors_files.read("x.safetensors")
    with torch.no_grad():
        wanted = adapted(**{name: torch.tensor(inputs[name])
                            for name in ("input_ids", "attention_mask")}).logits.numpy()
    found, before = (safetensors_files.read(f"{name}.safetensors")["out/logits"] for name in ("merged", "trained"))
    scale = np.abs(wanted).max()
    error, moved = np.abs(found - wanted).max() / scale, np.abs(found - before).max() / scale
    print(f"{family}: {error:.1e} of the largest logit, moved by {moved:.1e}")
    return error <= TOLERANCE < moved


def main():
    skycc = os.path.abspath(sys.argv[1])
    random = np.random.default_rng(0)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        safetensors_files.write("x.safetensors", {
            "input_ids": random.integers(3, 64, (4, 12)), "attention_mask": np.ones((4, 12), "i8"),
            "token_type_ids": np.zeros((4, 12), "i8"), "labels": random.integers(0, 3, 4)})
        return not all([check(skycc, *case) for case in CASES])


if __name__ == "__main__":
    sys.exit(main())
