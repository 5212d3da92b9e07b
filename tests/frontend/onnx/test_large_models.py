#!/usr/bin/python3
"""Models of very many or very large tensors cost time that grows with the bytes of the file, whatever these say.

    tests/frontend/onnx/test_large_models.py SKYCC
"""
import os
import resource
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
from checks import failed, require  # noqa: E402

skycc = os.path.abspath(sys.argv[1])
SECONDS = 10  # of CPU time; each takes 1 at most; twice as many took minutes when it grew with the square


def tensor(name, shape, values=None, location=None):
    made = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
    if location is None:
        made.raw_data = np.asarray(values, "f4").tobytes()
        return made
    made.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(4 * int(np.prod(shape))))):
        entry = made.external_data.add()
        entry.key, entry.value = key, value
    return made


def save(path, nodes, initializers, shape, producer=""):
    output = nodes[-1].output[0]
    values = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [] if name == "loss" else shape)]
              for name in ("x", output)]
    graph = helper.make_graph(nodes, "g", *values, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    model.producer_name = producer
    with open(path, "wb") as file:
        file.write(model.SerializeToString())


def chain(path, operator, count, shape, weights, *, inputs=(), first=(), last=(), script=False, **attributes):
    """Every node has a weight of its own, or, without `weights`, the further `inputs`. `script`: names are those of
    PyTorch's TorchScript exporter, which say little."""
    name = "onnx::MatMul_{}" if script else "w.{}"
    nodes = [helper.make_node(operator, [f"t{i}" if i or first else "x", *([name.format(i)] if weights else inputs)],
                              ["y" if i == count - 1 and not last else f"t{i + 1}"],
                              f"/m{'_' if script else '.'}{i}/{operator}", **attributes) for i in range(count)]
    held = ([tensor(name.format(i), shape, weights(i)) for i in range(count)] if weights else
            [tensor("w", shape, np.random.default_rng(2).normal(size=16))])
    save(path, [*first, *nodes, *last], held, shape, "pytorch" if script else "")


def many(path, count):
    """As many inputs, outputs and open dimensions."""
    values = [[helper.make_tensor_value_info(f"{kind}{i}", TensorProto.FLOAT, [f"d{i}", 4]) for i in range(count)]
              for kind in "xy"]
    nodes = [helper.make_node("MatMul", [f"x{i}", "w"], [f"y{i}"]) for i in range(count)]
    graph = helper.make_graph(nodes, "g", *values, [tensor("w", [4, 4], np.arange(16))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    with open(path, "wb") as file:
        file.write(model.SerializeToString())


def check(path, *options):
    limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))  # noqa: E731
    result = subprocess.run([skycc, "check", path, *options], capture_output=True, text=True, preexec_fn=limit)
    require(result.returncode == 0, path, options, "gives", result.returncode, result.stderr[-300:])
    return result.stdout


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    chain("transposes.onnx", "Transpose", 40000, [4, 4], None, perm=[1, 0])
    check("transposes.onnx")
    product = helper.make_node("MatMul", ["x", "w"], ["t0"])
    loss = [helper.make_node("ReduceMean", ["t40000"], ["loss"], keepdims=0)]
    chain("trained.onnx", "Transpose", 40000, [4, 4], None, first=[product], last=loss, perm=[1, 0])
    check("trained.onnx")
    chain("shared.onnx", "MatMul", 40000, [4, 4], None, inputs=["w"])
    check("shared.onnx")
    chain("modules.onnx", "MatMul", 40000, [4, 4], None, inputs=["w"], script=True)
    check("modules.onnx")
    drawn = np.random.default_rng(1).normal(size=16)
    chain("nameless.onnx", "MatMul", 40000, [4, 4], lambda i: drawn + i, script=True)
    check("nameless.onnx")
    chain("scalars.onnx", "Add", 100000, [1], lambda i: [i + 0.5])
    check("scalars.onnx")
    chain("weights.onnx", "MatMul", 25000, [4, 4], lambda i: np.arange(16) + i)
    for options in ((), ("--freeze", "w.1*"), ("--lora", "r=2,targets=w")):
        check("weights.onnx", *options)
    chain("same.onnx", "MatMul", 25000, [4, 4], lambda i: np.arange(16))
    check("same.onnx")
    chain("tied.onnx", "MatMul", 25000, [4, 4], lambda i: drawn)
    check("tied.onnx", "--lora", "r=2,targets=w")
    many("many.onnx", 25000)
    check("many.onnx")
    # Files of 1 TB that hold nothing, and nothing but one number.
    sparse = tensor("w", [1 << 19, 1 << 19], location="w.bin")
    save("sparse.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [sparse], [1, 1 << 19])
    for start in (b"", np.float32(1).tobytes()):
        with open("w.bin", "wb") as file:
            file.write(start)
            file.truncate(1 << 40)
        require(f"{1 << 38} elements" in check("sparse.onnx"), "sparse.onnx has another size")
sys.exit(failed())
