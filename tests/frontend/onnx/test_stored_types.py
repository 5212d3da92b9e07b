#!/usr/bin/python3
"""Weights that a file holds in fewer bits than are computed with: half precision is trained as float32 and exported in
the file's own type; 8 bits are dequantised and stay as they are.

    tests/frontend/onnx/test_stored_types.py SKYCC
"""
import json
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from make_references import safetensors
from operator_models import real

TOKENS = np.array([[0, 2, 1], [3, 3, 5]])
LABELS = np.array([1, 0])
TABLE, MATRIX, BIAS = real(6, 4), real(4, 3, seed=1), real(3, seed=2)


def bf16_bits(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def stored(values, kind):
    """The bytes of the numbers in the type, and the numbers that they are then."""
    if kind == TensorProto.FLOAT16:
        half = values.astype(np.float16)
        return half.tobytes(), half.astype(np.float32)
    bits = bf16_bits(values)
    return bits.tobytes(), (bits.astype(np.uint32) << 16).view(np.float32).reshape(values.shape)


def tensor(name, values, kind):
    return helper.make_tensor(name, kind, values.shape, stored(values, kind)[0], raw=True)


def classifier(path, kind, initializers, nodes=(), lookup=("table", "rows"), opset=17):
    """Looks up rows of tokens in a table, and multiplies their sums by `matrix`; `nodes` make these where they are no
    initializers."""
    nodes = [helper.make_node("Gather", [lookup[0], "tokens"], [lookup[1]]), *nodes,
             helper.make_node("ReduceSum", ["rows", "axes"], ["sums"], keepdims=0),
             helper.make_node("MatMul", ["sums", "matrix"], ["product"]),
             helper.make_node("Add", ["product", "bias"], ["logits"])]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "classifier",
                              [helper.make_tensor_value_info("tokens", TensorProto.INT64, TOKENS.shape)],
                              [helper.make_tensor_value_info("logits", kind, (2, 3))], [*initializers, axes])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)]), path)


def call(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True)


def train(skycc, folder, path):
    inputs, results = f"{folder}/in.safetensors", f"{folder}/out.safetensors"
    safetensors.write(inputs, {"tokens": TOKENS, "labels": LABELS})
    call(skycc, "run", path, "--inputs", inputs, "-o", results, "--loss", "cross-entropy", "--train", "3",
         "--optimizer", "sgd:lr=0.1", "--interpret")
    return safetensors.read(results)


def check_half(skycc, folder, kind, name):
    path, exported = f"{folder}/{name}.onnx", f"{folder}/{name}.trained.onnx"
    weights = {"table": TABLE, "matrix": MATRIX, "bias": BIAS}
    classifier(path, kind, [tensor(key, values, kind) for key, values in weights.items()])
    checked = json.loads(call(skycc, "check", path, "--json").stdout)
    assert any(f"holds 3 weights in {name}: they are trained as float32, and exported in their own type" in
               warning["message"] for warning in checked["warnings"]), checked["warnings"]
    results = train(skycc, folder, path)
    rounded = {key: stored(values, kind)[1] for key, values in weights.items()}
    logits = rounded["table"][TOKENS].sum(1) @ rounded["matrix"] + rounded["bias"]
    assert results["out/logits"].dtype == np.float32 and np.allclose(results["out/logits"], logits, 0, 1e-5)
    call(skycc, "export", path, f"{folder}/out.safetensors", "-o", exported)
    for held in onnx.load(exported).graph.initializer:
        if held.name in weights:
            trained = results["param/" + held.name]
            assert trained.dtype == np.float32 and not np.array_equal(trained, stored(trained, kind)[1])
            assert held.data_type == kind and held.raw_data == stored(trained, kind)[0], held.name
            assert not np.array_equal(stored(trained, kind)[1], rounded[held.name]), "was not trained"


# --- 8 bits -----------------------------------------------------------------------------------------------------------

GENERATOR = np.random.default_rng(5)
BYTES = {"table": GENERATOR.integers(0, 256, TABLE.shape).astype(np.uint8),
         "matrix": GENERATOR.integers(-128, 128, MATRIX.shape).astype(np.int8)}
ROW_SCALES, COLUMN_SCALES = real(6, low=0.001, high=0.02), real(3, low=0.001, high=0.02)
BLOCK_SCALES = real(2, 3, low=0.001, high=0.02)
SCALE, ROW_ZEROS = np.float32(0.01), np.array([0, 255, 128, 7, 90, 200], np.uint8)


def narrow(name, values):
    """In the field of integers, not as bytes, for the sake of both ways."""
    kind = TensorProto.UINT8 if values.dtype == np.uint8 else TensorProto.INT8
    return helper.make_tensor(name, kind, values.shape, values.reshape(-1).tolist())


def dequantize(name, result, scale, zeros=(), **attributes):
    return helper.make_node("DequantizeLinear", [name, scale, *zeros], [result], **attributes)


def floats(name, values):
    return numpy_helper.from_array(np.asarray(values, np.float32), name)


def per_axis(path):
    """Scales for each row, with zero points, and for each column."""
    classifier(path, TensorProto.FLOAT,
               [narrow("t8", BYTES["table"]), floats("ts", ROW_SCALES), narrow("tz", ROW_ZEROS),
                narrow("m8", BYTES["matrix"]), floats("ms", COLUMN_SCALES), floats("bias", BIAS)],
               [dequantize("m8", "matrix", "ms"), dequantize("t8", "table", "ts", ["tz"], axis=0)])
    table = (BYTES["table"].astype(np.float32) - ROW_ZEROS.astype(np.float32)[:, None]) * ROW_SCALES[:, None]
    return table, BYTES["matrix"] * COLUMN_SCALES, {"t8", "m8"}


def gathered(path):
    """One scale for the table, whose rows are dequantised when they were looked up, and scales for blocks of rows."""
    classifier(path, TensorProto.FLOAT,
               [narrow("t8", BYTES["table"]), floats("ts", SCALE), narrow("tz", ROW_ZEROS[3]),
                narrow("m8", BYTES["matrix"]), floats("ms", BLOCK_SCALES), floats("bias", BIAS)],
               [dequantize("m8", "matrix", "ms", axis=0, block_size=2),
                dequantize("rows8", "rows", "ts", ["tz"])], ("t8", "rows8"), 21)
    table = (BYTES["table"].astype(np.float32) - float(ROW_ZEROS[3])) * SCALE
    return table, BYTES["matrix"] * np.repeat(BLOCK_SCALES, 2, 0), {"t8", "m8"}


def check_quantized(skycc, folder, build):
    path, exported = f"{folder}/{build.__name__}.onnx", f"{folder}/{build.__name__}.trained.onnx"
    table, matrix, names = build(path)
    checked = json.loads(call(skycc, "check", path, "--json").stdout)
    assert {entry["name"] for entry in checked["not_trained"] if entry["why"] == "is quantised"} == names
    assert checked["trained"] == ["bias"], checked["trained"]
    assert any("holds 2 weights of 8 bits" in warning["message"] for warning in checked["warnings"])
    results = train(skycc, folder, path)
    assert np.allclose(results["out/logits"], table[TOKENS].sum(1) @ matrix + BIAS, 1e-5, 1e-5), build.__name__
    call(skycc, "export", path, f"{folder}/out.safetensors", "-o", exported)
    for before, after in zip(onnx.load(path).graph.initializer, onnx.load(exported).graph.initializer):
        same = np.array_equal(numpy_helper.to_array(before), numpy_helper.to_array(after))
        assert before.data_type == after.data_type and same == (before.name != "bias"), before.name


def check_refused(skycc, folder, what, nodes):
    path = f"{folder}/refused.onnx"
    classifier(path, TensorProto.FLOAT,
               [floats("table", TABLE), floats("ms", SCALE), narrow("mz", np.array(0, np.int8)),
                narrow("m8", BYTES["matrix"]), floats("bias", BIAS), floats("m32", MATRIX)], nodes)
    result = subprocess.run([skycc, "check", path], capture_output=True, text=True)
    assert result.returncode == 3 and what in result.stderr and "quantised" in result.stderr, result.stderr


def main():
    skycc = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        check_half(skycc, folder, TensorProto.FLOAT16, "f16")
        check_half(skycc, folder, TensorProto.BFLOAT16, "bf16")
        check_quantized(skycc, folder, per_axis)
        check_quantized(skycc, folder, gathered)
        check_refused(skycc, folder, "QuantizeLinear", [
            helper.make_node("QuantizeLinear", ["m32", "ms", "mz"], ["q"]), dequantize("q", "matrix", "ms", ["mz"])])
        check_refused(skycc, folder, "8-bit integers", [
            helper.make_node("Cast", ["m8"], ["c"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["c", "ms"], ["matrix"])])


if __name__ == "__main__":
    main()
