#!/usr/bin/python3
"""--lora on exports of several families: which weights it means, losses, gradients and merged weights.

What a product's weight W becomes with its branch, W + s (B A)^T, skycc export writes into an ONNX file. Of that model,
whose gradients test_exports.py compares with PyTorch, G [out, in] is W's gradient, and those of the branch must be
s B^T G and s G A^T. They are read off two steps of gradient descent.

    tests/driver/test_lora.py SKYCC ARCHIVE [FILTER ...]
"""
import json
import os
import subprocess
import sys
import tarfile
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
import safetensors_files  # noqa: E402

# Graph, targets, how many weights these are, how many other parameters are trained.
CASES = [
    ("bert_seqcls/ts17", "query,value", 4, 2),        # weights without names of their own, [in, out]
    ("bert_seqcls/ort_ts14", "output.dense", 4, 2),   # fused operators; products of one token
    ("bert_seqcls/half", "*query*", 2, 2),
    ("bert_qa/dyn", "query,value", 4, 2),             # two heads of one product
    ("roberta_mlm/ts14", "self.query,value", 4, 0),   # no head is known by its name
    ("distilbert_seqcls/dyn", "q_lin,v_lin", 4, 4),   # [out, in]; the head has two products
    ("modernbert_seqcls/dyn", "Wqkv", 3, 2),          # queries, keys and values are one product
    ("deberta3_seqcls/ts14", "query_proj,value_proj", 4, 2),  # weights with a product of contents and one of positions
    ("mpnet_seqcls/dyn", "q,v", 4, 4),
    ("llama_lm/dyn", "q_proj,v_proj", 4, 0),
    ("t5enc_seqcls/ts14", "q,v", 4, 2),
]
RANK, ALPHA, RATE, STEPS = 3, 12.0, 5.0, 2
LOSS, GRADIENT, HALF = 1e-6, 1e-3, 1e-2  # half: merged weights are rounded
QA_LOSS = "cross-entropy:start_logits:start_positions+cross-entropy:end_logits:end_positions"


def call(*arguments):
    result = subprocess.run(arguments, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(arguments)}: {result.stderr}"
    return result.stdout


def error(found, wanted):
    return np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-12)


def gradient_error(before, after, gradient, module):
    """The larger error of the two gradients. A square weight does not tell which way it stands in the file."""
    keys = [f"param/{module}.lora_{x}.weight" for x in "AB"]
    a, b = (before[key].astype("f8") for key in keys)
    moved = [(before[key].astype("f8") - after[key]) / RATE for key in keys]
    scale, errors = ALPHA / RANK, []
    for g in (gradient, gradient.T):
        if g.shape == (b.shape[0], a.shape[1]):
            errors.append(max(error(moved[0], scale * b.T @ g), error(moved[1], scale * g @ a.T)))
    return min(errors)


def check(skycc, graph, targets, weights, others):
    model = graph.split("/")[0]
    path, inputs, loss = f"{graph}.onnx", f"{model}/x.safetensors", QA_LOSS if model == "bert_qa" else "cross-entropy"
    lora = ["--lora", f"r={RANK},alpha={ALPHA},targets={targets}"]

    def run(path, output, *arguments):
        call(skycc, "run", path, "--inputs", inputs, "-o", output, "--threads", "1", "--loss", loss, *arguments)
        return safetensors_files.read(output)

    listed = json.loads(call(skycc, "check", path, "--json", "--dim", "batch=4", "--dim", "seq=16", *lora))
    modules = [name[:-14] for name in listed["trained"] if name.endswith(".lora_A.weight")]
    counts = len(modules), len(listed["trained"]) - 2 * len(modules)
    assert counts == (weights, others), f"{counts} instead of {(weights, others)}: {listed['trained']}"

    train = [*lora, "--optimizer", f"sgd:lr={RATE}", "--train"]
    before = run(path, "before.safetensors", *train, str(STEPS))
    after = run(path, "after.safetensors", *train, str(STEPS + 1), "--grad")
    gradients = {name[5:] for name in after if name.startswith("grad/")}
    assert gradients == set(listed["trained"]), f"gradients of {gradients}"
    plain = run(path, "plain.safetensors")
    assert plain["loss"] == np.float32(before["train/loss"][0]), "a new branch changes the loss"
    call(skycc, "export", path, "before.safetensors", "-o", "merged.onnx")
    whole = run("merged.onnx", "whole.safetensors", "--grad")
    found = error(np.float64(whole["loss"]), before["train/loss"][STEPS])
    assert found <= (HALF
                     if "half" in graph else LOSS), f"the merged loss {whole['loss']} instead of {before['train/loss']}"

    names = {(entry.get("alias") or entry["name"])[:-7]: entry["name"] for entry in listed["parameters"]}
    names.update({entry["name"][:-7]: entry["name"] for entry in listed["parameters"]})
    largest = max(
        gradient_error(before, after, whole["grad/" + names[module]].astype("f8"), module) for module in modules)
    assert largest <= (HALF if "half" in graph else GRADIENT), f"gradients are off by {largest}"
    print(
        f"{graph:22} {targets:21} {weights} weights, {others} others: merged loss {found:.1e}, gradients {largest:.1e}",
        flush=True)


def main():
    skycc, archive, filters = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
    wrong = count = 0
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as tar:
            tar.extractall(folder)
        os.chdir(folder)
        for case in CASES:
            if filters and not any(text in case[0] for text in filters):
                continue
            count += 1
            try:
                check(skycc, *case)
            except AssertionError as failure:
                wrong += 1
                print(f"{case[0]}: {failure}")
    print(f"{count} graphs, {wrong} wrong")
    return wrong > 0 or not count


if __name__ == "__main__":
    sys.exit(main())
