#!/usr/bin/python3
"""A BERT as ONNX Runtime's optimiser leaves it, made of the fused operators of com.microsoft: it has layers like any
other, and `skycc run` computes from it the logits and gradients that PyTorch computes in float64. Where one use of a
weight is packed and another is not, it is refused.

    tests/frontend/onnx/test_fused_bert.py SKYCC
"""
import json
import subprocess
import sys
import tempfile

import numpy as np
import torch

import make_references as references
from operator_models import MICROSOFT, Model, difference, real

LAYERS, HIDDEN, INNER, VOCABULARY, POSITIONS, CLASSES = 2, 32, 48, 60, 16, 3
ROWS, LENGTH = 3, 10


def fused(op):
    return {"op": op, "domain": MICROSOFT}


class FusedBert(Model):
    """`weights` are the initializers; `leaves` what PyTorch's names mean in terms of them."""

    def __init__(self, used_again=False):
        super().__init__(opset=14)
        self.weights, self.leaves = {}, {}
        generator = np.random.default_rng(1)
        self.add_input("input_ids", generator.integers(0, VOCABULARY, (ROWS, LENGTH)).astype(np.int32))
        self.add_input("token_type_ids", generator.integers(0, 2, (ROWS, LENGTH)).astype(np.int32))
        self.add_input("attention_mask", np.tri(ROWS, LENGTH, 6, dtype=np.int32))
        x, lengths = self.embed()
        for layer in range(LAYERS):
            x = self.block(f"bert.encoder.layer.{layer}.", x, lengths)
        first = self.node("Gather", [x, self.constant(0, np.int64)], axis=1)
        if used_again:
            self.add_initializer("onnx::MatMul_7", real(HIDDEN, 3 * HIDDEN, seed=self.packed, low=-0.3, high=0.3)
                                 [:, HIDDEN:2 * HIDDEN])
            first = self.node("MatMul", [first, "onnx::MatMul_7"])
        pooled = self.node("Tanh", [self.dense("bert.pooler.dense", first, HIDDEN)])
        self.add_output("logits", self.dense("classifier", pooled, CLASSES))

    def weight(self, name, *shape, middle=0.0):
        """A new initializer; the name it has."""
        value = middle + real(*shape, seed=len(self.weights), low=-0.3, high=0.3)
        self.add_initializer(name, value)
        self.weights[name] = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        return name

    def same(self, name, *shape, middle=0.0):
        """A weight that is PyTorch's own."""
        self.weight(name, *shape, middle=middle)
        self.leaves[name] = self.weights[name]
        return name

    def transposed(self, name, rows, columns):
        self.weight(name, rows, columns)
        self.leaves[name] = self.weights[name].T
        return name

    def norm(self, name):
        return [self.same(name + ".weight", HIDDEN, middle=1.0), self.same(name + ".bias", HIDDEN)]

    def dense(self, name, x, width):
        inputs = [x, self.same(name + ".weight", width, HIDDEN), self.same(name + ".bias", width)]
        return self.node("Gemm", inputs, transB=1)

    def embed(self):
        prefix = "bert.embeddings."
        tables = [self.same(f"{prefix}{name}.weight", rows, HIDDEN) for name, rows in
                  (("word_embeddings", VOCABULARY), ("position_embeddings", POSITIONS), ("token_type_embeddings", 2))]
        inputs = ["input_ids", "token_type_ids", *tables, *self.norm(prefix + "LayerNorm"), "attention_mask"]
        return self.node(**fused("EmbedLayerNormalization"), inputs=inputs, outputs=2, epsilon=1e-12)

    def block(self, prefix, x, lengths):
        self.packed = len(self.weights)  # the seed of the last layer's
        packed = [self.weight(prefix + "attention.qkv.weight", HIDDEN, 3 * HIDDEN),
                  self.weight(prefix + "attention.qkv.bias", 3 * HIDDEN)]
        for i, which in enumerate(("query", "key", "value")):
            part = slice(i * HIDDEN, (i + 1) * HIDDEN)
            self.leaves[f"{prefix}attention.self.{which}.weight"] = self.weights[packed[0]][:, part].T
            self.leaves[f"{prefix}attention.self.{which}.bias"] = self.weights[packed[1]][part]
        context = self.node(**fused("Attention"), inputs=[x, *packed, lengths], num_heads=references.HEADS)
        x = self.skip(prefix + "attention.output.", context, x, HIDDEN)
        name = prefix + "intermediate.dense."
        inner = self.node("MatMul", [x, self.transposed(name + "weight", HIDDEN, INNER)])
        inner = self.node(**fused("BiasGelu"), inputs=[inner, self.same(name + "bias", INNER)])
        return self.skip(prefix + "output.", inner, x, INNER)

    def skip(self, prefix, inner, x, width):
        product = self.node("MatMul", [inner, self.transposed(prefix + "dense.weight", width, HIDDEN)])
        inputs = [product, x, *self.norm(prefix + "LayerNorm"), self.same(prefix + "dense.bias", HIDDEN)]
        return self.node(**fused("SkipLayerNormalization"), inputs=inputs, epsilon=1e-12)


def main():
    skycc, model = sys.argv[1], FusedBert()
    labels = torch.tensor([0, 2, 1])
    batch = {name: torch.from_numpy(value).long() for name, value in model.inputs.items()}
    logits = references.classify(model.leaves, batch, references.ACTIVATIONS["gelu"])["logits"]
    torch.nn.functional.cross_entropy(logits, labels).backward()
    model.inputs["labels"] = labels.numpy()
    with tempfile.TemporaryDirectory() as folder:
        for way in (["--interpret"], []):
            results = model.run(skycc, folder, ["--grad", "--loss", "cross-entropy", "--train", "2", *way])
            assert difference(results["out/logits"], logits.detach().numpy()) < 1e-5, "the logits differ"
            errors = {name: difference(results["grad/" + name], tensor.grad.numpy()) for name, tensor in
                      model.weights.items()}
            worst = max(errors, key=errors.get)
            assert errors[worst] < 1e-5, f"the gradient of {worst} is {errors[worst]} off"
            assert results["train/loss"][2] < results["train/loss"][0], "training does not lower the loss"
            print(f"{len(errors)} gradients, largest error {errors[worst]:.2g}")
        check = subprocess.run([skycc, "check", "--json", f"{folder}/model.onnx"], check=True, capture_output=True)
        FusedBert(used_again=True).save(f"{folder}/again.onnx")
        refused = subprocess.run([skycc, "check", f"{folder}/again.onnx"], capture_output=True, text=True)
        assert refused.returncode == 1 and "holds 'onnx::MatMul_7' among others" in refused.stderr, refused.stderr
    layers = json.loads(check.stdout)["layers"]
    assert len(layers) == 3 + 2 * LAYERS, f"{len(layers)} layers: {layers}"


if __name__ == "__main__":
    main()
