#!/usr/bin/python3
"""A model with names that no checkpoint or data set can hold is refused when it is compiled, not after the training.

    tests/driver/test_reserved_names.py SKYCC
"""
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import failed, require  # noqa: E402
from federations import Scene  # noqa: E402

skycc = os.path.abspath(sys.argv[1])


def save(names, data="x"):
    random = np.random.default_rng(1)
    weights = [numpy_helper.from_array(random.random((4, 4), "f4"), name) for name in names]
    nodes = [helper.make_node("MatMul", [f"t{i}" if i else data, name], [f"t{i + 1}"]) for i, name in enumerate(names)]
    made = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(data, TensorProto.FLOAT, [4, 4])],
                             [helper.make_tensor_value_info(f"t{len(names)}", TensorProto.FLOAT, [4, 4])], weights)
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]), "m.onnx")
    return f"t{len(names)}"


def compile_to(output, code, *said):
    command = [skycc, "compile", "m.onnx", "-d", "c.yaml", "--loss", f"mse:{output}", "-o", "out", "-q"]
    result = subprocess.run(command, capture_output=True, text=True)
    require(result.returncode == code, "compile gives", result.returncode, result.stderr)
    require(all(text in result.stderr for text in said), "compile says", result.stderr)
    require(os.path.exists("out") == (code == 0), "out")


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    with open("c.yaml", "w") as file:
        file.write("devices: [{name: a, memory: 1GiB}]\n")
    compile_to(save(["w", "__metadata__"]), 1, "parameter '__metadata__'", "hint: rename it")
    compile_to(save(["w"], data="__metadata__"), 1, "input '__metadata__'", "hint: rename it")
    for prefix in ("adam.m", "adam.v"):
        compile_to(save(["w", f"{prefix}/w"]), 1, f"initializer '{prefix}/w'", "state of 'w'")
    for other in ("metadata", "momentum/w"):
        compile_to(save(["w", other]), 0)
        shutil.rmtree("out")
    scene = Scene(skycc, "m.onnx", ".", {"paris": (1, 4)}, 1)
    for name, code in (("momentum/w", 1), ("momentum.w", 0)):
        output = save(["w", name])
        made = scene.federate("f", "aggregate: plain", "min_sites: 1", "rounds: 1", dims=(),
                              options=["--loss", f"mse:{output}"])
        require(made.returncode == code, "federate gives", made.returncode, made.stdout)
        require((name in made.stdout and "state of another" in made.stdout) == (code == 1), made.stdout)
        require(os.path.exists("f") == (code == 0), "f")
sys.exit(failed())
