#!/usr/bin/python3
"""--frozen-weights: what programs compute of stored forms is what numpy computes of the rounded weights; training is
the same in any number of stages; checkpoints belong to a form; export takes the original weights, and says what
difference that makes."""
import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
from onnx import helper, numpy_helper, save, TensorProto

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import failed, require  # noqa: E402
from safetensors_files import read, write  # noqa: E402

SKYCC = sys.argv[1]
WORDS, SIZE, INNER, ROWS, LENGTH = 96, 64, 160, 4, 6
random = np.random.default_rng(5)


def close(what, found, wanted, tolerance):
    error = np.abs(np.asarray(found, "f8") - wanted).max() / (np.abs(wanted).max() + 1e-30)
    require(error <= tolerance, f"{what}: error {error:.2e}")


def bf16(values, up=False):
    bits = np.asarray(values, "f4").view("u4")
    rounded = bits + (bits & 0xffff != 0) * 0x10000 if up else bits + 0x7fff + (bits >> 16 & 1)
    return (rounded & 0xffff0000).astype("u4").view("f4")


def stored(weight, form, axis=-1):
    """The weight as a form has it, in blocks along the axis."""
    if form == "bf16":
        return bf16(weight)
    most = {"int8": 127, "int4": 7}.get(form)
    if not most:
        return weight
    turned = np.moveaxis(weight, axis, -1)
    blocks = np.ascontiguousarray(turned).reshape(-1, 32)
    scale = bf16(np.abs(blocks).max(1, keepdims=True) / np.float32(most), up=True)
    return np.moveaxis((np.rint(blocks / scale) * scale).reshape(turned.shape), -1, axis)


def model():
    """Words, a layer up and one down, and a product with the words. `up` and `down` are [in, out]."""
    weights = {"m.words": random.normal(size=(WORDS, SIZE)), "m.up": random.normal(size=(SIZE, INNER)) / 8,
               "m.down": random.normal(size=(INNER, SIZE)) / 8, "m.last": random.normal(size=(SIZE, SIZE)) / 8}
    weights = {name: value.astype("f4") for name, value in weights.items()}
    nodes = [helper.make_node("Gather", ["m.words", "input_ids"], ["x"]),
             helper.make_node("MatMul", ["x", "m.up"], ["a"]), helper.make_node("Tanh", ["a"], ["b"]),
             helper.make_node("MatMul", ["b", "m.down"], ["c"]), helper.make_node("MatMul", ["c", "m.last"], ["d"]),
             helper.make_node("Transpose", ["m.words"], ["turned"], perm=[1, 0]),
             helper.make_node("MatMul", ["d", "turned"], ["logits"])]
    graph = helper.make_graph(nodes, "model",
                              [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "seq"])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "seq", WORDS])],
                              [numpy_helper.from_array(value, name) for name, value in weights.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "model.onnx")
    return weights


def run(*command, code=0):
    done = subprocess.run(command, capture_output=True, text=True)
    require(done.returncode == code, f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stderr


def compile_and_train(form, stages, directory, *options):
    with open("cluster.yaml", "w") as file:
        file.write("devices:\n" + "".join(
            f"  - {{name: d{i}, threads: 1, memory: 1GiB, gflops: 10, bandwidth: 10GB/s}}\n" for i in range(stages)))
    run(SKYCC, "compile", "model.onnx", "-d", "cluster.yaml", "-o", directory, "--dim", "batch=2", "--dim",
        f"seq={LENGTH}", "--microbatches", "2", "--allocate", "even", "--lora", "r=4,alpha=8,targets=up,last",
        "--frozen-weights", form, "-q", *options)
    run(f"{directory}/train", "--data", "data.safetensors", "--no-shuffle", "--steps", "3", "--log", "log.csv",
        "--lr", "1e-2", "--checkpoint", f"{directory}/kept")
    with open("log.csv") as file:
        return [row["loss"] for row in csv.DictReader(file)]


def check_numbers(weights):
    ids = random.integers(0, WORDS, (ROWS, LENGTH))
    write("data.safetensors", {"input_ids": ids, "labels": ids})
    for form in "f32", "bf16", "int8", "int4":
        w = {name: stored(value, form, 0 if name in ("m.up", "m.down", "m.last") else -1).astype("f8")
             for name, value in weights.items()}
        logits = np.tanh(w["m.words"][ids] @ w["m.up"]) @ w["m.down"] @ w["m.last"] @ w["m.words"].T
        for way in ["--interpret"], []:
            run(SKYCC, "run", "model.onnx", "--inputs", "data.safetensors", "-o", "out.safetensors", "--freeze", "*",
                "--frozen-weights", form, *way)
            close(f"{form} {way}", read("out.safetensors")["out/logits"], logits, 1e-5)


def check_training(weights):
    first = compile_and_train("int4", 1, "one")
    require(compile_and_train("int4", 2, "two") == first, "two stages")
    require(np.allclose(np.array(compile_and_train("int4", 1, "sliced", "--logits", "sliced"), float),
                        np.array(first, float), rtol=1e-5), "sliced logits")
    whole = compile_and_train("f32", 1, "whole")
    require(first != whole, "another form has other losses")
    require(compile_and_train("int8", 2, "d2", "--init", "normal:0.05") ==
            compile_and_train("int8", 1, "d1", "--init", "normal:0.05"), "drawn weights")
    last = sorted(name for name in os.listdir("one/kept") if name.startswith("step-"))[-1]
    again = ["--data", "data.safetensors", "--no-shuffle", "--steps", "4", "--resume", "--checkpoint"]
    shutil.copytree("one/kept", "copy")
    run("two/train", *again, "copy")
    refused = run("whole/train", *again, "one/kept", code=1)
    require("--frozen-weights int4" in refused or "had another value" in refused,
            f"another form is refused:\n{refused}")
    said = run(SKYCC, "export", "model.onnx", f"one/kept/{last}", "-o", "merged.onnx")
    check_difference(weights, f"one/kept/{last}", said)
    require("were trained" not in run(SKYCC, "export", "model.onnx", "whole/kept", "-o", "same.onnx"),
            "float32 weights merge without a difference")


def check_difference(weights, step, said):
    """What export says of merging into weights that were not those of training."""
    kept = read(f"{step}/rank-00.safetensors")
    branches = {name: (kept[f"{name}.lora_B.weight"].astype("f8") @ kept[f"{name}.lora_A.weight"]).T * 2
                for name in ("m.up", "m.last")}
    ids, logits = np.arange(32) * 7919 % WORDS, []
    for form in "f32", "int4":
        w = {name: stored(value, form, 0 if name != "m.words" else -1) + branches.get(name, 0)
             for name, value in weights.items()}
        logits.append(np.tanh(w["m.words"][ids] @ w["m.up"]) @ w["m.down"] @ w["m.last"] @ w["m.words"].T)
    difference = np.abs(logits[0] - logits[1])
    numbers = re.search("with int4 weights .* at most (.*), on average by (.*) .largest logit: (.*)[)]", said)
    require(numbers, said)
    close("difference in logits", [float(number) for number in numbers.groups()],
          [difference.max(), difference.mean(), np.abs(logits[1]).max()], 1e-3)


def check_refusals():
    said = run(SKYCC, "run", "model.onnx", "--inputs", "data.safetensors", "-o", "out.safetensors",
               "--frozen-weights", "int4", code=2)
    require("m.last" in said and "is trained" in said and "--lora" in said, f"a trained weight is named:\n{said}")
    said = run(SKYCC, "run", "model.onnx", "--inputs", "data.safetensors", "-o", "out.safetensors",
               "--frozen-weights", "int3", code=2)
    require("int8 or int4" in said, f"int3:\n{said}")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    weights = model()
    check_numbers(weights)
    check_training(weights)
    check_refusals()
    os.chdir("/")
sys.exit(failed())
