#!/usr/bin/python3
"""What exports do not say of their tensors. Exporters with fixed shapes fold copies of a parameter, for every row of a
batch or every position: these train as one, as in the model before folding, and are exported as copies again. What may
be copies, but is one number throughout, is refused unless it is frozen, and so is what was computed of parameters that
the file lacks. Weight decay is of w where 1 + w was folded. Masks that are added to the scores of every row, and
buffers, are not trained; one number is, if the exporter calls it a parameter. A module that is called twice is one
parameter, and so are the nodes of one call. PEFT's adapters get a hint. A warning names the row of padding that
PyTorch's default exporter tells of. Warnings name what TorchScript's leaves open: rows of padding, and what may be a
buffer. Of what the default exporter says it computed of
parameters nothing is trained, nor of what ONNX Runtime's optimiser computed of them; what the exporter computed of
constants and buffers is no parameter. Names of weights tell a mixture of experts, which is refused by this name. Layers
that are clones start with the same numbers, and are parameters of their own; what one layer's calls read is one. A
warning names what is not trained only because of its numbers. Buffers and literals that
an exporter merged with a parameter keep their numbers.

    tests/frontend/onnx/test_folded_copies.py SKYCC
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
from checks import failed, require  # noqa: E402
import safetensors_files  # noqa: E402
from operator_models import real  # noqa: E402

skycc = os.path.abspath(sys.argv[1])
WIDTH, TOKENS = 4, 3
STARTS = {}  # of the model at hand


def metadata(message, tag, **entries):
    """Adds metadata, which the installed onnx may be too old to know, to a message."""
    for key, value in entries.items():
        entry = onnx.StringStringEntryProto(key=key.replace("__", "."), value=value).SerializeToString()
        field = tag << 3 | 2
        start = [field] if field < 128 else [field & 127 | 128, field >> 7]
        message.MergeFromString(bytes([*start, len(entry) & 127 | 128, len(entry) >> 7]) + entry)


def edit(path, producer=None, signature=None, **names):
    """Says who exported the model, and what else the exporter says of it and its nodes, by their outputs."""
    edited = onnx.load(path)
    edited.producer_name = producer or ""
    for node in edited.graph.node:
        node.name = names.get(node.output[0], node.name)
    if signature:
        metadata(edited.graph, 16, pkg__torch__export__ExportedProgram__graph_signature=signature)
    onnx.save(edited, path)


def model(path, batch, nodes, folded, result="x", tensor="folded", says=None, sources=None, **others):
    """`nodes` compute of rows of a table, and of the folded tensor, what is classified token by token."""
    tensors = {"table": real(7, WIDTH), "matrix": real(WIDTH, 5, seed=1), tensor: folded, **others}
    STARTS.update({name: value.astype("f4") for name, value in tensors.items()})
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["x"]), *nodes,
             helper.make_node("MatMul", [result, "matrix"], ["logits"])]
    graph = helper.make_graph(
        nodes, "folded", [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [batch, TOKENS])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value if value.dtype == np.int64 else value.astype(np.float32), name)
         for name, value in tensors.items()])
    info = helper.make_tensor_value_info(tensor, TensorProto.FLOAT, folded.shape)
    if says:
        metadata(info, 4, pkg__torch__export__graph_signature__InputSpec__kind=says)
    if sources:
        metadata(info, 4, pkg__onnxscript__optimizer__folded_from=str(sources))
    graph.value_info.append(info)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    length = TOKENS + ("joined" in result)
    ids = np.arange(batch * TOKENS, dtype="i4").reshape(batch, -1) % 7
    labels = np.ones((batch, length) if batch > 1 else (batch, length, 1), "i4")  # a last dimension of 1 may be there
    safetensors_files.write("in.safetensors", {"input_ids": ids, "labels": labels})


def trained(path, *options):
    """Exit status, what is printed, and which parameters have changed."""
    result = subprocess.run([skycc, "run", path, "--inputs", "in.safetensors", "--interpret", "--loss", "cross-entropy",
                             "--train", "1", "-o", "out.safetensors", *options], capture_output=True, text=True)
    found = safetensors_files.read("out.safetensors") if result.returncode == 0 else {}
    return result.returncode, result.stderr, {
        key[6:] for key, value in found.items() if key.startswith("param/") and not np.array_equal(value,
            STARTS[key[6:]])
    }


def refused(name, *arguments, problem="holds copies of one parameter"):
    model(name, *arguments)
    code, message, _ = trained(name)
    require(code == 1 and f"'folded': {problem}" in message and "--freeze 'folded'" in message, name,
            code, message)
    code, message, parameters = trained(name, "--freeze", "folded")
    require(code == 0 and parameters == {"table", "matrix"}, name, "frozen:", code, message, parameters)


def accepted(name, wanted, *arguments, options=(), **changes):
    model(name, *arguments, **changes)
    code, message, parameters = trained(name, *options)
    require(code == 0 and parameters == wanted, name, code, message, parameters)
    return message


def same(name, batch, nodes, index, parameter, result, axis=-1, **others):
    """Vectors of the parameter, folded, train as they do where the model looks them up itself, and are written back."""
    vectors = others.get("table", parameter)[index] if parameter is None else parameter[index]
    folded = np.moveaxis(vectors, -1, axis)
    model(name, batch, nodes, folded, result)
    options = ("--train", "3", "--optimizer", "adamw:lr=1e-2")
    code, message, _ = trained(name, *options)
    require(code == 0, name, message)
    found = safetensors_files.read("out.safetensors")
    done = subprocess.run([skycc, "export", name, "out.safetensors", "-o", "trained.onnx"], capture_output=True,
                          text=True)
    require(done.returncode == 0, name, done.stderr)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load("trained.onnx").graph.initializer}
    require(np.array_equal(weights["folded"], found["param/folded"]), name, "is exported with", weights["folded"])
    perm = [i for i in range(folded.ndim - 1)]
    perm.insert(axis % folded.ndim, folded.ndim - 1)
    source = "table" if parameter is None else "p.weight"
    looked_up = [helper.make_node("Gather", [source, "index"], ["vectors"]),
                 helper.make_node("Transpose", ["vectors"], ["folded"], perm=perm)]
    more = {} if parameter is None else {"p.weight": parameter}
    model(name, batch, looked_up + nodes, np.zeros(1), result, tensor="unused", index=np.asarray(index), **more)
    code, message, _ = trained(name, *options)
    require(code == 0, name, message)
    wanted = safetensors_files.read("out.safetensors")
    require(np.allclose(found["train/loss"], wanted["train/loss"], rtol=0, atol=1e-6) and
            found["train/loss"][0] - found["train/loss"][2] > 1e-4, name, found["train/loss"], wanted["train/loss"])
    rows = wanted["param/" + source]
    require(np.allclose(found["param/folded"], np.moveaxis(rows[index], -1, axis), rtol=0, atol=1e-5), name, "trains",
            found["param/folded"], rows)


def gives_gradients(path, without, *options):
    """Whether the rows that the model looks up, but for one, get a gradient. Returns what is printed."""
    _, message, _ = trained(path, "--grad", *options)
    rows = np.abs(safetensors_files.read("out.safetensors")["grad/table"]).max(1) > 0
    require(all(rows[i] == (i < 6 and i != without) for i in range(7)), path, options, rows, message)
    return message


ADD = [helper.make_node("Add", ["x", "folded"], ["sum"])]
JOIN = [helper.make_node("Concat", ["folded", "x"], ["joined"], axis=1)]
ATTEND = [helper.make_node("Transpose", ["x"], ["turned"], perm=[0, 2, 1]),
          helper.make_node("MatMul", ["x", "turned"], ["products"]),
          helper.make_node("Reshape", ["products", "heads"], ["scores"]),
          helper.make_node("Add", ["scores", "folded"], ["masked"]),
          helper.make_node("Softmax", ["masked"], ["shares"]),
          helper.make_node("Reshape", ["shares", "flat"], ["weights"]),
          helper.make_node("MatMul", ["weights", "x"], ["context"])]


def shape(name, *values):
    return helper.make_node("Constant", [], [name], value=helper.make_tensor("", TensorProto.INT64, [len(values)],
                                                                            values))


def products(names, tensor):
    """Multiplies by a tensor under these names, one after the other."""
    values = ["x", *(f"product{i}" for i in range(1, len(names))), "sum"]
    STARTS.update({f"{tensor}#{i}": real(WIDTH, WIDTH, seed=6) for i in range(1, 4)})
    return [helper.make_node("MatMul", [values[i], name], [values[i + 1]]) for i, name in enumerate(names)]


def clones():
    """The default exporter merges without a trace, but for the names of what calls got; TorchScript's by Identity
    nodes, whose names are of parameters or say nothing."""
    STARTS["m.0.bias"] = np.zeros(WIDTH)
    matrix, first, other = real(WIDTH, WIDTH, seed=6), "m.0.weight", {"table", "matrix", "m.0.weight"}
    for calls, wanted in ((0, 1, 1), {"m.0.weight#1"}), ((0, 0, 0), set()):
        nodes = products([first, first, first, "m.2.weight"], first)
        nodes[-1].output[0] = "last"
        nodes += [helper.make_node("Gemm", [a, first], [b]) for a, b in (("rows", "once"), ("once", "twice"))]
        for node, number in zip(nodes, (*calls, 2, 0, 0)):
            metadata(node, 9, pkg__torch__onnx__fx_node="%linear = call_function[target=torch.ops.aten.linear.default]"
                     f"(args = (%x, %p_m_{number}_weight, %p_m_{number}_bias), kwargs = {{}})")
            metadata(node, 9, pkg__onnxscript__rewriter__rule_name="RemoveOptionalBiasFromGemm")
        nodes += [shape("all", -1, WIDTH), shape("each", 2, TOKENS, WIDTH),
                  helper.make_node("Reshape", ["last", "all"], ["rows"]),
                  helper.make_node("Reshape", ["twice", "each"], ["sum"])]
        model("clones", 2, nodes, matrix, "sum", tensor=first, says="PARAMETER", **{"m.2.weight": matrix})
        edited = onnx.load("clones")
        edited.graph.value_info.add().CopyFrom(edited.graph.value_info[0])
        edited.graph.value_info[1].name = "m.2.weight"
        onnx.save(edited, "clones")
        edit("clones", signature="\n" + "\n".join(f"p_m_{i}_{kind}: PARAMETER target='m.{i}.{kind}'" for i in range(3)
                                                  for kind in ("weight", "bias")))
        code, message, parameters = trained("clones")
        require(parameters == other | wanted | {"m.2.weight", "m.0.bias"}, "clones", calls, message, parameters)
        require("the bias is not trained" not in message, "the bias of two calls", message)
        found = safetensors_files.read("out.safetensors")
        require(not np.array_equal(found["param/m.2.weight"], found["param/m.0.weight"]), "m.2 is tied to m.0")

    for named in True, False:
        again = [helper.make_node("Identity", [a], [b]) for a, b in (
            ("onnx::MatMul_8", "onnx::MatMul_9"), ("onnx::MatMul_7", "onnx::MatMul_8"), (first, "m.1.weight"))]
        nodes = products(["onnx::MatMul_7", "onnx::MatMul_8", "onnx::MatMul_9", first, "m.1.weight"], "onnx::MatMul_7")
        if not named:
            nodes[4].input[1] = first
        model("clones", 2, [*again[:2 + named], *nodes], matrix, "sum", tensor="onnx::MatMul_7",
              **{first: real(WIDTH, WIDTH, seed=7)})
        STARTS["m.0.weight#1"] = STARTS[first]
        edit("clones", "pytorch", product1="/m.0/q/MatMul", product2="/m.1/q/MatMul", product3="/m.1/q_1/MatMul")
        code, message, parameters = trained("clones")
        wanted = {"m.0.weight#1", "onnx::MatMul_7#1"} if named else set()
        require(parameters == other | wanted | {"onnx::MatMul_7"}, "clones of TorchScript", named, message, parameters)
        require(("'m.0.q' and 'm.1.q': skycc trains one parameter" in message) != named, named, message)


def merged_calls():
    """A warning names parameters whose calls the exporter merged with those of others: of two modules that read x, one
    is left in the file. It is named only if several nodes read what it computes, and if it is not tied to the other."""
    scope, call = "['', 'm.{}', 'linear']", "%linear = call_function[target=torch.ops.aten.linear.default](args = (%x, "
    for gone, module, reads, shared, said in (
            ("m.b.weight", "a", "p_m_a_weight", True, True), ("m.b.weight", "a", "p_m_a_weight", False, False),
            ("m.b.weight", "c", "p_m_a_weight", True, False), ("m.b.c.weight", "a", "p_m_a_weight", True, False),
            ("m.b.weight", "b", "p_m_a_weight", True, False), ("m.matrix", "a", "p_m_a_weight", True, False),
            ("m.v", "u", "p_m_u", True, False), ("m.v", "", "p_m_u", True, True)):
        other = "m.u" if gone == "m.v" else "m.a.weight"
        nodes = [helper.make_node("MatMul", ["x", "val_0"], ["product"]),
                 helper.make_node("Reshape", ["product", "each"], ["y"]), shape("each", 2, TOKENS, WIDTH),
                 helper.make_node("Tanh", ["y"], ["turned"]),
                 helper.make_node("Add", ["turned", "y" if shared else "x"], ["sum"])]
        metadata(nodes[0], 9, pkg__torch__onnx__fx_node=f"{call}%{reads}), kwargs = {{}})",
                 pkg__torch__onnx__name_scopes=scope.format(module) if module else "['', 'm', 'mul']")
        STARTS["val_0"] = real(WIDTH, WIDTH, seed=6)
        model("merged", 2, nodes, real(WIDTH, WIDTH, seed=6), "sum", tensor="val_0", sources=[other])
        edit("merged", signature=f"{reads}: PARAMETER target='{other}'\np_gone: PARAMETER target='{gone}'")
        _, message, _ = trained("merged")
        require((f"has no '{gone}' (the first of 1 such" in message) == said, gone, module, shared, message)
        require(f"skycc trains '{other}' in its place" in message or not said, message)


def merged_constants():
    """Buffers, literals and the ones of a norm without weights, which the exporter merges with a parameter that starts
    equal, keep their numbers, whichever of them the exporter names the initializer of."""
    for name, call, says in (("buffer", "mul.Tensor](args = (%x, %b_s)", "PARAMETER"),
                             ("literal", "mul.Tensor](args = (%x, %ones_1)", "PARAMETER"),
                             ("norm", "layer_norm.default](args = (%x, [4], None, None, 1e-05)", "PARAMETER"),
                             ("named", "mul.Tensor](args = (%x, %b_s)", "BUFFER")):
        operator = "LayerNormalization" if name == "norm" else "Mul"
        nodes = [helper.make_node(operator, ["x", "folded"], ["y"]), helper.make_node("Add", ["y", "folded"], ["sum"])]
        for node, text in zip(nodes, (call, "add.Tensor](args = (%y, %p_m_v)")):
            metadata(node, 9, pkg__torch__onnx__fx_node=f"%a = call_function[target=torch.ops.aten.{text}")
        start = real(WIDTH, seed=3).astype("f4")
        model(name, 2, nodes, start, "sum", says=says)
        edit(name, signature="\np_m_v: PARAMETER target='m.v'\nb_s: BUFFER target='s'")
        code, message, parameters = trained(name)
        require(code == 0 and parameters == {"table", "matrix", "folded"}, name, message, parameters)
        done = subprocess.run([skycc, "export", name, "out.safetensors", "-o", "trained.onnx"], capture_output=True,
                              text=True)
        require(done.returncode == 0, name, done.stderr)
        graph = onnx.load("trained.onnx").graph
        weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        read = [weights[node.input[1]] for node in graph.node if node.op_type in (operator, "Add")]
        require(np.array_equal(read[0], start) and not np.array_equal(read[1], start), name, "is exported with", read)


with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch:
    os.chdir(scratch)
    merged_calls()
    merged_constants()
    both, kind, positions = {"table", "matrix", "folded"}, real(WIDTH, seed=3), real(1, TOKENS, WIDTH, seed=4)
    one, pair, rows = kind.reshape(1, -1), real(2, WIDTH, seed=5), np.arange(TOKENS)
    same("types", 2, ADD, np.zeros((2, TOKENS), int), one, "sum")
    same("types-of-one-row", 1, ADD, np.zeros((1, TOKENS), int), one, "sum")
    same("types-of-no-row", 1, ADD, np.zeros(TOKENS, int), one, "sum")
    same("two-types", 2, ADD, np.array([[0, 1, 1], [0, 0, 1]]), pair, "sum")
    same("positions-of-rows", 2, ADD, np.tile(rows, (2, 1)), positions[0], "sum")
    same("first", 2, JOIN, np.zeros((2, 1), int), one, "joined")
    same("rows-of-a-table", 2, ADD, np.array([[3, 1, 3], [5, 1, 0]]), None, "sum", table=real(7, WIDTH))
    same("row-of-a-table", 1, JOIN, np.array([[2]]), None, "joined", table=real(7, WIDTH))
    refused("one-number", 2, ADD, np.full((2, TOKENS, WIDTH), 0.5), "sum")
    refused("computed", 1, [helper.make_node("MatMul", ["x", "folded"], ["heads"]),
                            shape("flat", 1, TOKENS, WIDTH), helper.make_node("Reshape", ["heads", "flat"], ["sum"])],
            real(1, 1, WIDTH, WIDTH, seed=7), "sum", problem="has the form of activations")
    accepted("positions", both, 2, ADD, positions, "sum")
    accepted("first-of-one-row", both, 1, JOIN, kind.reshape(1, 1, WIDTH), "joined")
    for batch in (1, 2):
        attend = [shape("heads", batch, 1, TOKENS, TOKENS), shape("flat", batch, TOKENS, TOKENS), *ATTEND]
        message = accepted("mask", {"table", "matrix"}, batch, attend, np.zeros((batch, 1, TOKENS, TOKENS)), "context")
        require(("so skycc does not train it" in message) == (batch == 1), batch, message)
    drawn = real(1, 1, TOKENS, TOKENS, seed=5)
    attend = [shape("heads", 1, 1, TOKENS, TOKENS), shape("flat", 1, TOKENS, TOKENS), *ATTEND]
    weight, decay = real(WIDTH, seed=9), ("--train", "3", "--optimizer", "adamw:lr=1e-2,weight_decay=0.5")
    model("gain", 2, [helper.make_node("Mul", ["x", "add_1"], ["sum"])], 1 + weight, "sum", tensor="add_1")
    code, message, _ = trained("gain", *decay)
    require(code == 0 and "(the first of 1), as norms that multiply by 1 + weight" in message, "gain", message)
    found = safetensors_files.read("out.safetensors")
    done = subprocess.run([skycc, "export", "gain", "out.safetensors", "-o", "trained.onnx"], capture_output=True)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load("trained.onnx").graph.initializer}
    require(np.array_equal(weights["add_1"], found["param/add_1"] + np.float32(1)), "gain", done.stderr, weights)
    model("sum", 2, [helper.make_node("Constant", [], ["one"], value_float=1.0),
                     helper.make_node("Add", ["p.weight", "one"], ["gain"]),
                     helper.make_node("Mul", ["x", "gain"], ["sum"])], weight, "sum", tensor="p.weight")
    trained("sum", *decay)
    wanted = safetensors_files.read("out.safetensors")
    for name, value in (("param/p.weight", found["param/add_1"]), ("train/loss", found["train/loss"])):
        require(np.allclose(wanted[name], value, rtol=0, atol=1e-6), "gain", name, wanted[name], value)
    for op, inputs in ("SimplifiedLayerNormalization", ["x"]), ("SkipSimplifiedLayerNormalization", ["x", "x"]):
        norm = helper.make_node(op, [*inputs, "add_1"], ["sum"], domain="com.microsoft", epsilon=1e-6)
        model("gain", 2, [norm], 1 + weight, "sum", tensor="add_1")
        code, message, _ = trained("gain")
        require(code == 0 and "as norms that multiply by 1 + weight" in message, op, message)
    copies = np.broadcast_to(drawn, (2, 1, TOKENS, TOKENS))
    accepted("relative-of-rows", both, 2,
             [shape("heads", 2, 1, TOKENS, TOKENS), shape("flat", 2, TOKENS, TOKENS), *ATTEND], copies, "context")
    buckets = np.tile(np.minimum(np.abs(rows[:, None] - rows), 1), (2, 1, 1))
    two = [*ATTEND[:2], shape("heads", 2, 1, TOKENS, TOKENS),
           helper.make_node("Reshape", ["products", "heads"], ["single"]),
           helper.make_node("Concat", ["single", "single"], ["scores"], axis=1), *ATTEND[3:5],
           helper.make_node("ReduceMean", ["shares"], ["mean"], axes=[1], keepdims=0),
           helper.make_node("MatMul", ["mean", "x"], ["context"])]
    same("distances", 2, two, buckets, real(2, 2, seed=8), "context", axis=1)
    accepted("relative", both, 1, attend, drawn, "context")
    slopes = np.arange(TOKENS).reshape(1, 1, 1, -1) * np.full((1, 1, TOKENS, 1), 0.25)
    accepted("alibi", {"table", "matrix"}, 1, attend, slopes, "context")
    tents = np.broadcast_to(-np.abs(rows[:, None] - rows) * np.array([0.5, 0.25]).reshape(2, 1, 1), (2, 2, 3, 3))
    accepted("distances-alibi", {"table", "matrix"}, 2, two, tents, "context")
    message = accepted("masks-of-rows", {"table", "matrix"}, 2, two, real(2, 2, TOKENS, TOKENS, seed=8), "context")
    require("has other numbers for every row of the batch" in message, message)
    accepted("start", both, 1, [*ADD, helper.make_node("Transpose", ["sum"], ["turned"], perm=[0, 2, 1]),
                                helper.make_node("MatMul", ["sum", "turned"], ["products"]),
                                helper.make_node("Softmax", ["products"], ["shares"]),
                                helper.make_node("MatMul", ["shares", "x"], ["context"])],
             np.zeros((1, TOKENS, WIDTH)), "context")

    for shape_of, trains in ((1, WIDTH), False), ((WIDTH,), True), ((TOKENS, WIDTH), True):
        message = accepted("row", both if trains else both - {"folded"}, 2, ADD, np.zeros(shape_of), "sum")
        require(("as buffers are" in message) == (not trains), shape_of, message)
    accepted("row", both, 2, ADD, np.zeros((1, WIDTH)), "sum", options=("--train", "folded"))
    accepted("buffer", both - {"folded"}, 2, ADD, kind, "sum", says="BUFFER")
    accepted("buffer", both, 2, ADD, kind, "sum", says="BUFFER", options=("--train", "folded"))

    message = accepted("adapter", {"table", "matrix", "m.lora_A.weight"}, 2,
                       [helper.make_node("MatMul", ["x", "m.lora_A.weight"], ["sum"])], real(WIDTH, WIDTH, seed=6),
                       "sum", tensor="m.lora_A.weight")
    require("PEFT adapter ('m.lora_A.weight')" in message and "--freeze '*' --train '*lora_*'" in message, message)
    _, message, parameters = trained("adapter", "--freeze", "*", "--train", "*lora_*")
    require(parameters == {"m.lora_A.weight"} and "PEFT" not in message, parameters, message)
    prompt = real(WIDTH, seed=3).reshape(1, 1, WIDTH)
    joined = [helper.make_node("Concat", ["repeat", "x"], ["joined"], axis=1)]
    message = accepted("prompt", both - {"folded"} | {"repeat"}, 1, joined, prompt, "joined", tensor="repeat",
                       sources=["m.prompt_encoder.default.embedding.weight"])
    require("PEFT adapter ('m.prompt_encoder.default.embedding.weight')" in message and
            "--freeze '*' --train 'repeat'" in message, message)
    message = accepted("nameless", {"table", "matrix", "m.base_layer.weight"}, 2,
                       [helper.make_node("MatMul", ["x", "m.base_layer.weight"], ["sum"])], real(WIDTH, WIDTH, seed=6),
                       "sum", tensor="m.base_layer.weight")
    require("PEFT adapter ('m.base_layer.weight')" in message and "dynamo=True" in message, message)

    for module, one in ("/torch/nn/modules/linear.py", True), ("/model.py", False):
        called = [helper.make_node("Add", [a, "folded"], [b]) for a, b in (("x", "once"), ("once", "sum"))]
        for line, node in enumerate(called):
            metadata(node, 9, pkg__torch__onnx__name_scopes=f"['', 'm', 'm.linear', 'add_{line}']",
                     pkg__torch__onnx__stack_trace=f'File "/m.py", line {line}\n File "{module}", line 1')
        STARTS["folded#1"] = np.zeros(WIDTH)
        accepted("twice", both if one else both | {"folded#1"}, 2, called, np.zeros(WIDTH), "sum")

    for tensor, op, node, trains, said in (
            ("m.scale", "Mul", "", True, "does not say of 'm.scale'"), ("m.weight", "Mul", "", True, None),
            ("m.inv_freq", "Mul", "", False, "is called as buffers are, so skycc does not train it"),
            ("onnx::Add_12", "Add", "", True, "does not say of 'onnx::Add_12'"),
            ("onnx::Add_12", "Mask", "", False, "'onnx::Add_12' (holds nothing but 0 and one number: a mask)"),
            ("m.cache", "Mask", "", False, None), ("m.mask", "Mask", "", False, None),
            ("m.weight", "Mask", "", True, "is called as weights are, but holds a mask, so skycc trains it"),
            ("onnx::MatMul_12", "Eye", "/query/MatMul", True, "is the matrix of a layer, but holds a mask"),
            ("onnx::MatMul_12", "Eye", "/m/MatMul", False, "not train tensors whose numbers are those of a buffer"),
            ("onnx::MatMul_12", "MatMul", "/query/MatMul", True, None),
            ("onnx::Gemm_12", "MatMul", "/query/MatMul", True, "does not say of 'onnx::Gemm_12'"),
            ("onnx::MatMul_12", "MatMul", "/m/MatMul", True, "does not say of 'onnx::MatMul_12'"),
            ("onnx::Sin_12", "Sin", "", False, "'onnx::Sin_12' (reaches outputs through sines and cosines only"),
            ("m.inv_freq", "Sin", "", False, None),
            ("onnx::Mul_12", "Mul", "", False, "'onnx::Mul_12' (is one number that something is computed with)"),
            ("temperature", "Mul", "", False, "is one number that something is computed with")):
        values = {"MatMul": real(WIDTH, WIDTH, seed=6), "Eye": np.eye(WIDTH), "Mask": np.eye(TOKENS, WIDTH)}
        value = values.get(op, kind)
        value = np.array(0.5) if tensor in ("temperature", "onnx::Mul_12") else value
        angle = [helper.make_node("Sin", [tensor], ["angle"])] if op == "Sin" else []
        op = {"Eye": "MatMul", "Mask": "Add", "Sin": "Add"}.get(op, op)
        nodes = [*angle, helper.make_node(op, ["x", "angle" if angle else tensor], ["sum"])]
        model("script", 2, nodes, value, "sum", tensor=tensor)
        edit("script", "pytorch", sum=node, logits="/m/head/MatMul")
        code, message, parameters = trained("script", "--train", "matrix", "--freeze", "table")
        wanted = {"matrix", tensor} if trains else {"matrix"}
        require(code == 0 and parameters == wanted, tensor, node, message, parameters)
        require(said in message if said else "buffer" not in message, tensor, node, message)

    for name, value, sources, wanted in (("permute", real(WIDTH, WIDTH, seed=6), ["proj"], False),
                                         ("permute", real(WIDTH, WIDTH, seed=6), ["mix"], True),
                                         ("log", real(WIDTH, WIDTH, seed=6), ["proj"], False),
                                         ("log", real(WIDTH, WIDTH, seed=6), ["mix"], None)):
        multiplied = [helper.make_node("MatMul", ["x", name], ["sum"])]
        model("signed", 2, multiplied, value, "sum", tensor=name, sources=sources)
        edit("signed", signature="p_mix: PARAMETER target='mix'\nb_proj: BUFFER target='proj' persistent=True")
        code, message, parameters = trained("signed")
        require(code == (wanted is None) and (name in parameters) == bool(wanted), name, sources, message, parameters)

    called = [helper.make_node("Mul", ["x", "folded"], ["scaled"]),
              helper.make_node("Add", ["scaled", "folded"], ["sum"])]
    for node in called:
        metadata(node, 9, pkg__torch__onnx__name_scopes="['', 'm', 'm.activation', 'softplus']")
    for number in np.array(0.5), np.array([0.5]):
        for says in "PARAMETER", "BUFFER":
            accepted("number", both if says == "PARAMETER" else both - {"folded"}, 2, called, number, "sum", says=says)

    multiplied = [helper.make_node("MatMul", ["x", "folded"], ["sum"])]
    for says in "PARAMETER", None:
        wanted = both if says else both - {"folded"}
        message = accepted("identity", wanted, 2, multiplied, np.eye(WIDTH), "sum", says=says)
        said = "as the exporter says, but holds a mask" if says else "'folded' (holds nothing but 0 and one number"
        require(said in message, says, message)
    accepted("rows", both, 2, multiplied, np.tile(real(1, WIDTH), (WIDTH, 1)), "sum")
    rows = safetensors_files.read("out.safetensors")["param/folded"]
    require(len(np.unique(rows, axis=0)) > 1, "equal rows of a matrix", rows)

    for arguments, padding in ("%p_table, %ids, 3", 3), ("%p_table, %ids, -1", None), ("%p_table, %ids", None):
        model("padding", 2, [], kind, "x")
        padded = onnx.load("padding")
        metadata(padded.graph.node[0], 9, pkg__torch__onnx__fx_node="%embedding : [num_users=1] = call_function["
                 f"target=torch.ops.aten.embedding.default](args = ({arguments}), kwargs = {{}})")
        onnx.save(padded, "padding")
        for options, without in (((), None), (("--no-gradient-row", "table=3"), 3))[:2 if padding else 1]:
            message = gives_gradients("padding", without, *options)
            said = "hint: --no-gradient-row table=3 does the same" in message
            require(said == (padding == 3 and not options), "padding", arguments, options, message)
    for zeros, rows, said in (([], 7, None), ([], 101, "so skycc trains all rows of 'table'"),
                              ([3], 7, "it is the only row of zeros"),
                              ([2, 3], 7, "so skycc trains all rows of 'table'")):
        table = real(rows, WIDTH)
        table[zeros] = 0
        model("padding", 2, [], kind, "x", table=table)
        edit("padding", "pytorch")
        _, message, _ = trained("padding")
        require(said in message if said else "row" not in message, "padding of TorchScript", zeros, rows, message)
        if zeros == [3]:
            message = gives_gradients("padding", 3, "--no-gradient-row", "table=3")
            require("row of zeros" not in message and "all rows" not in message, "padding", message)

    choice = [helper.make_node("TopK", ["x", "k"], ["best", "number"]), helper.make_node("Mul", ["x", "folded"], ["y"]),
              helper.make_node("Add", ["y", "best"], ["sum"])]
    for name in "m.experts.0.weight", "m.gate.weight":
        choice[1].input[1] = name
        model("experts", 2, choice, kind, "sum", tensor=name, k=np.array([WIDTH]))
        code, message, _ = trained("experts")
        require(code == 3 and ("this looks like a mixture of experts" in message) == ("experts" in name), name, code,
                message)

    made = "as 'm.weight', and it cannot be trained in their place"
    for name, value, sources in (("softplus", real(1), ["beta", "m.weight"]), ("mul_3", kind, ["m.weight", "val_3"]),
                                 ("unsqueeze_5", kind[None], ["exp", "m.weight"]),
                                 ("add_1", kind, ["m.weight", "softplus_1"]),
                                 ("add_8", np.array(0.5), ["exp", "m.weight", "sum_1"]),
                                 ("val_9", kind, ["m.bias", "m.weight", "sub_2"]),
                                 ("repeat", kind, ["embedding", "linear", "m.weight"])):
        scaled = [helper.make_node("Mul", ["x", name], ["sum"])]
        model("made", 2, scaled, value, "sum", tensor=name, sources=sources)
        code, message, _ = trained("made")
        require(code == 1 and f"'{name}': the exporter computed it of parameters" in message and made in message, name,
                code, message)
        _, message, parameters = trained("made", "--freeze", name)
        require(parameters == {"table", "matrix"}, name, "frozen:", message, parameters)
    for name, sources, trains in (("zeros", ["val_1", "val_2"], False), ("unsqueeze_17", ["arange", "log"], False),
                                  ("embedding", ["arange", "table", "index"], True), ("expand", ["cls"], True),
                                  ("embedding_1", ["add", "arange", "m.weight"], True), ("val_9", ["m.weight"], True),
                                  ("sqrt", ["m.lifted_tensor_2", "mul_4"], False)):
        value = real(1, TOKENS, WIDTH, seed=4) if trains else np.zeros((1, TOKENS, WIDTH))
        if name == "sqrt":
            value = np.array(0.5)
        model("made", 2, [helper.make_node("Add", ["x", name], ["sum"])], value, "sum", tensor=name, sources=sources)
        code, message, parameters = trained("made")
        require(code == 0 and parameters == {"table", "matrix"} | ({name} if trains else set()), name, message,
                parameters)

    for node, code, trains in (("Transpose", 0, True), ("Constant", 0, False), ("Expand_1", 1, False),
                               ("MatMul", 1, False)):
        name = f"/m/layer.0/{node}_output_0"
        model("optimised", 2, [helper.make_node("MatMul", ["x", name], ["sum"])], real(WIDTH, WIDTH, seed=6), "sum",
              tensor=name)
        found, message, parameters = trained("optimised")
        require(found == code and ("an optimiser computed it of parameters" in message) == code, name, message)
        require(parameters == (set() if code else {"table", "matrix"} | ({name} if trains else set())), name,
                parameters)
        _, message, parameters = trained("optimised", "--freeze", name)
        require(parameters == {"table", "matrix"}, name, "frozen:", message, parameters)

    clones()

    masked = np.zeros((1, 1, TOKENS, TOKENS))
    masked[0, 0, 1] = -np.inf  # as of a query whose keys are all padding
    guarded = [shape("heads", 1, 1, TOKENS, TOKENS), shape("flat", 1, TOKENS, TOKENS), *ATTEND]
    guarded[-2:-2] = [helper.make_node("IsNaN", ["shares"], ["nothing"]),
                      helper.make_node("Constant", [], ["zero"], value_float=0.0),
                      helper.make_node("Where", ["nothing", "zero", "shares"], ["kept"])]
    guarded[-2].input[0] = "kept"
    accepted("masked", {"table", "matrix"}, 1, guarded, masked, "context")
    for name, value in safetensors_files.read("out.safetensors").items():
        require(np.isfinite(value).all(), "a query without keys makes", name, value)
sys.exit(failed())
