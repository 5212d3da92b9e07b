#!/usr/bin/python3
"""Every graph of tests/data/exports compared with PyTorch in float64: what is trained, outputs, loss, gradients, eleven
losses and what ten steps change. Half-precision graphs are compared with the float32 graph of their rounded weights.

    tests/driver/test_exports.py SKYCC ARCHIVE [FILTER ...]
"""
import json
import os
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
import safetensors_files  # noqa: E402

LOSSES = {
    "bert_qa": "cross-entropy:start_logits:start_positions+cross-entropy:end_logits:end_positions",
    "bert_regress_inloss": "output:loss",
}
OPTIMIZER = "adamw:lr=1e-3,weight_decay=0.01"
# an optimiser multiplied parameters: trained otherwise, with a warning
FOLDED = {"deberta3_seqcls/ortfold_noceil_ts14"}
OUTPUT, LOSS, TRAJECTORY, GRADIENT, PARAMETER = 1e-4, 1e-5, 1e-4, 1e-4, 2e-4
FIRM = 1e-4  # Adam turns the noise of smaller gradients, by the largest one, into whole steps
NO_GRADIENT = 1e-8  # of keys' biases, in exact arithmetic


class Graph:
    def __init__(self, skycc, folder, model, name):
        self.skycc, self.folder, self.model, self.name = skycc, folder, model, name
        self.path = f"{folder}/{model}/{name}.onnx"
        self.inputs = f"{folder}/{model}/x.safetensors"

    def call(self, *arguments):
        return subprocess.run([self.skycc, *arguments], capture_output=True, text=True)

    def check(self):
        result = self.call("check", self.path, "--json", "--dim", "batch=4", "--dim", "seq=16")
        return json.loads(result.stdout)

    def run(self, path=None):
        results = f"{self.folder}/{self.model}.{self.name}.safetensors"
        arguments = ["run", path or self.path, "--inputs", self.inputs, "-o", results, "--threads", "1"]
        if self.model != "minilm_embed":
            loss = LOSSES.get(self.model, "cross-entropy")
            arguments += ["--loss", loss, "--grad", "--train", "10", "--optimizer", OPTIMIZER]
        if self.name == "ts_train":
            arguments += ["--dropout", "off"]
        result = self.call(*arguments)
        assert result.returncode == 0, result.stderr
        return safetensors_files.read(results)


def reference_tensor(reference, key):
    return reference[key] / 32767.0 * reference["scale/" + key]


def part(tensor, how, slices, shape):
    """The initializer's elements as PyTorch's parameter has them."""
    if how == "rows":
        result = np.zeros(shape)
        result[:slices] = tensor.reshape(slices, -1)
        return result
    tensor = tensor.T if how == "T" else tensor
    if slices:
        tensor = tensor[tuple(slice(*bounds) for bounds in slices)]
    return tensor.reshape(shape).astype(np.float64)


def compare_parameters(found, initial, reference, mapping):
    for name, (held, how, slices) in mapping.items():
        gradient, step = (reference_tensor(reference, f"{kind}/{name}") for kind in ("g", "step"))
        largest = np.abs(gradient).max()
        if largest < NO_GRADIENT:
            continue
        own = part(found["grad/" + held], how, slices, gradient.shape)
        if np.abs(own - gradient).max() > GRADIENT * largest:
            yield f"gradient of {name}, {held}"
        before = initial.get(held.split("#")[0], np.zeros(found["param/" + held].shape, np.float32))
        moved = part(found["param/" + held].astype(np.float64) - before, how, slices, gradient.shape)
        firm = np.abs(gradient) > FIRM * largest
        if np.abs(moved - step)[firm].max() > PARAMETER:
            yield f"steps of {name}, {held}"


def compare(graph, mapping):
    reference = safetensors_files.read(f"{graph.folder}/{graph.model}/ref.safetensors")
    found = graph.run()
    for key in (key for key in reference if key.startswith("out/")):
        if np.abs(found[key] - reference[key]).max() > OUTPUT * np.abs(reference[key]).max():
            yield key
    if mapping is None:
        return
    checked = graph.check()
    tied = {entry["name"]: entry["tied_to"] for entry in checked["parameters"] if "tied_to" in entry}
    held = {tied.get(name, name) for name, _, _ in mapping.values()}
    trained = {tied.get(name, name) for name in checked["trained"]}
    if trained != held:
        yield f"trained although PyTorch does not: {sorted(trained - held)}; not trained: {sorted(held - trained)}"
        return
    if abs(found["loss"] - reference["loss"]) > LOSS * reference["loss"]:
        yield "loss"
    losses = reference["losses"]
    if np.any(np.abs(found["train/loss"] - losses) > TRAJECTORY * np.maximum(losses, 0.01 * losses[0])):
        yield "losses"
    initial = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(graph.path).graph.initializer}
    yield from compare_parameters(found, initial, reference, mapping)


def rounded(values, name):
    if name != "bf16":
        return values.astype(np.float16).astype(np.float32)
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32).reshape(values.shape)


def compare_half(graph):
    """With the float32 export of the same model, its weights rounded."""
    twin = onnx.load(f"{graph.folder}/{graph.model}/{'ts14' if graph.name == 'half_conv' else 'ts17'}.onnx")
    for tensor in twin.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = np.ascontiguousarray(rounded(numpy_helper.to_array(tensor), graph.name))
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    path = f"{graph.folder}/twin.onnx"
    onnx.save(twin, path)
    wanted, found = graph.run(path), graph.run()
    for key in ("out/logits", "train/loss"):
        if np.abs(wanted[key] - found[key]).max() > LOSS * np.abs(wanted[key]).max():
            yield key


def problems(graph, maps):
    key = f"{graph.model}/{graph.name}"
    if graph.name == "int8":
        errors = graph.check()["errors"]
        return [] if any("quantised" in error.get("hint", "") for error in errors) else ["int8 is not refused"]
    if graph.name in ("half", "half_conv", "bf16"):
        return list(compare_half(graph))
    if key in FOLDED:
        warnings = graph.check()["warnings"]
        return [] if any("--freeze" in warning.get("hint", "") for warning in warnings) else ["no warning"]
    return list(compare(graph, maps.get(key)))


def main():
    skycc, archive, filters = sys.argv[1], sys.argv[2], sys.argv[3:]
    wrong = count = 0
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as tar:
            tar.extractall(folder)
        with open(f"{folder}/maps.json", encoding="utf-8") as file:
            maps = json.load(file)
        for model in sorted(name for name in os.listdir(folder) if os.path.isdir(f"{folder}/{name}")):
            for name in sorted(file[:-5] for file in os.listdir(f"{folder}/{model}") if file.endswith(".onnx")):
                if filters and not any(text in f"{model}/{name}" for text in filters):
                    continue
                found = problems(Graph(skycc, folder, model, name), maps)
                count += 1
                wrong += bool(found)
                for problem in found[:4]:
                    print(f"{model}/{name}: {problem}")
    print(f"{count} graphs, {wrong} wrong")
    return wrong > 0 or not count


if __name__ == "__main__":
    sys.exit(main())
