#!/usr/bin/python3
"""What `skycc bert` writes is a BERT: onnx accepts it, and `skycc run` computes from it the logits, the loss and the
gradients that PyTorch computes in float64 from the same weights.

    tests/frontend/onnx/test_generated.py SKYCC
"""
import subprocess
import sys
import tempfile

import numpy as np
import onnx.checker
import torch

import make_references as references

SHAPE = "--layers 2 --hidden 32 --vocab 100 --positions 24 --intermediate 48 --seed 3".split()


def skycc(*arguments):
    subprocess.run([sys.argv[1], *arguments], check=True)


def make_batch(folder, head):
    generator = np.random.default_rng(5)
    batch = {
        "input_ids": generator.integers(0, 100, (3, 10)),
        "attention_mask": np.tri(3, 10, 7, dtype=np.int64),
        "token_type_ids": generator.integers(0, 2, (3, 10)),
        "labels": generator.integers(0, 3, 3) if head == "seqcls" else generator.integers(0, 100, (3, 10)),
    }
    if head == "mlm":
        batch["labels"][:, ::2] = -100  # ignored
    references.safetensors.write(f"{folder}/batch.safetensors", {"in/" + name: a for name, a in batch.items()})
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def is_transposed(name):
    """Weights of linear layers on 3-D tensors are [in, out]; PyTorch's are [out, in]."""
    on_tokens = name.startswith("bert.encoder") or name.startswith("cls.predictions.transform.dense")
    return on_tokens and name.endswith("weight") and "LayerNorm" not in name


def expect_close(name, found, wanted, scale):
    error = np.abs(found - wanted).max() / scale
    assert error <= 1e-4, f"{name} is {error} off"


def check(folder, head):
    model, output = f"{folder}/{head}.onnx", f"{folder}/{head}.safetensors"
    skycc("bert", *SHAPE, "--heads", str(references.HEADS), "--head", head, "-o", model)
    onnx.checker.check_model(model)
    batch = make_batch(folder, head)
    skycc("run", model, "--inputs", f"{folder}/batch.safetensors", "--grad", "--loss", "cross-entropy", "-o", output)
    results = references.safetensors.read(output)
    weights = {
        name: torch.tensor(array.T if is_transposed(name) else array, dtype=torch.float64, requires_grad=True)
        for name, array in references.initializers(model).items()
    }
    network = references.classify if head == "seqcls" else references.predict_tokens
    logits = network(weights, batch, references.ACTIVATIONS["gelu"])["logits"]
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch["labels"].reshape(-1))
    loss.backward()
    expect_close("the loss", results["loss"], loss.item(), loss.item() / 10)
    expect_close("logits", results["out/logits"], logits.detach().numpy(), np.abs(logits.detach().numpy()).max())
    for name, weight in weights.items():
        wanted = weight.grad.numpy().T if is_transposed(name) else weight.grad.numpy()
        scale = np.abs(weights[name.replace("key.bias", "key.weight")].grad.numpy()).max()
        expect_close("the gradient of " + name, results["grad/" + name], wanted, scale)
    print(f"{head}: {len(weights)} gradients agree")


def check_drawn(folder):
    """Without weights a model runs from drawn ones: the same for the same seed, vectors 0 or 1, matrices as wide as
    asked."""
    model, output = f"{folder}/none.onnx", f"{folder}/none.safetensors"
    skycc("bert", *SHAPE, "--heads", str(references.HEADS), "--weights", "none", "-o", model)
    make_batch(folder, "seqcls")
    runs = []
    for seed in ("1", "1", "2"):
        skycc("run", model, "--inputs", f"{folder}/batch.safetensors", "--train", "0", "--init", "normal:0.5", "--seed",
              seed, "-o", output)
        runs.append({n: a for n, a in references.safetensors.read(output).items() if n.startswith("param/")})
    assert len(runs[0]) > 30
    for name, array in runs[0].items():
        assert np.array_equal(array, runs[1][name]), name
        if array.ndim == 1:
            assert np.all(array == ("LayerNorm.weight" in name)), name
        else:
            assert not np.array_equal(array, runs[2][name]), name
            assert abs(array.std() - 0.5) < 0.5 * 4 / np.sqrt(2 * array.size), name
    print(f"{len(runs[0])} parameters drawn")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for head in ("seqcls", "mlm"):
            check(folder, head)
        check_drawn(folder)


if __name__ == "__main__":
    main()
