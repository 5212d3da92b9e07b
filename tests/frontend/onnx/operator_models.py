"""ONNX models made of nodes one by one, and `skycc run` on them."""
import os
import subprocess

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import make_references as references

MICROSOFT = "com.microsoft"


def onnx_type(array):
    return helper.mapping.NP_TYPE_TO_TENSOR_TYPE[array.dtype]


class Model:
    """A graph of one opset while nodes are added to it. `scope` is put before their names: it tells whose they are."""

    def __init__(self, opset):
        self.opset, self.scope = opset, ""
        self.nodes, self.initializers, self.inputs, self.outputs = [], [], {}, []

    def node(self, op, inputs, outputs=1, domain="", **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        name = f"{self.scope}/{op}"
        self.nodes.append(helper.make_node(op, list(inputs), names, name=name, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value, dtype=np.float32):
        return self.node("Constant", [], value=numpy_helper.from_array(np.asarray(value, dtype=dtype)))

    def integers(self, *values):
        return self.constant(values, np.int64)

    def axes(self, since, op, value, axes, **attributes):
        """A node whose axes are an attribute before opset `since`, and an input from then on."""
        if self.opset < since:
            return self.node(op, [value], axes=axes, **attributes)
        return self.node(op, [value, self.integers(*axes)], **attributes)

    def number(self, value):
        """A truth value or an integer as a float."""
        return self.node("Cast", [value], to=TensorProto.FLOAT)

    def add_initializer(self, name, value):
        self.initializers.append(numpy_helper.from_array(value, name))

    def add_input(self, name, value):
        self.inputs[name] = value

    def add_output(self, name, value):
        self.outputs.append(name)
        self.nodes.append(helper.make_node("Identity", [value], [name], name=name))

    def save(self, path):
        """Writes the model; whether it has inputs."""
        read = {name for node in self.nodes for name in node.input}
        declared = [helper.make_tensor_value_info(name, onnx_type(value), value.shape)
                    for name, value in self.inputs.items() if name in read]
        graph = helper.make_graph(self.nodes, "model", declared,
                                  [helper.make_empty_tensor_value_info(name) for name in self.outputs],
                                  [tensor for tensor in self.initializers if tensor.name in read])
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opsets), path)
        return bool(declared)

    def run(self, skycc, folder, arguments):
        """The tensors that skycc writes."""
        model, inputs, results = (f"{folder}/{name}" for name in ("model.onnx", "in.safetensors", "out.safetensors"))
        declared = self.save(model)
        references.safetensors.write(inputs, self.inputs)
        command = [skycc, "run", model, "-o", results, *arguments, "--train", "*",
                   *(["--inputs", inputs] if declared else [])]
        subprocess.run(command, check=True, env={**os.environ, "XDG_CACHE_HOME": folder})
        return references.safetensors.read(results)


def real(*shape, seed=0, low=-2.0, high=2.0):
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(np.float32)


def difference(found, wanted):
    """The largest error, relative to the largest element where that is more than 1."""
    assert found.shape == wanted.shape, f"shape {found.shape}, not {wanted.shape}"
    return float(np.abs(found - wanted).max() / max(1, np.abs(wanted).max())) if wanted.size else 0.0
