#!/usr/bin/python3
"""skycc's losses against PyTorch's: from the outputs that a model computed, PyTorch computes the loss again and its
gradient, which is compared where it is seen bare, in the bias that is added last."""
import csv
import os
import subprocess
import sys
import tempfile

import numpy as np
from onnx import helper, load, numpy_helper, save, TensorProto
import torch
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from safetensors_files import read, write  # noqa: E402

SKYCC, DATA = sys.argv[1], sys.argv[2]
BATCH, LENGTH, WORDS = 4, 8, 256
ROWS, FEWER = 8, 6  # a batch, and what fills it in part
SEQCLS, MLM, TOKCLS, QA = (f"{DATA}/bert/bert-nano-{name}-opset17-dyn.onnx"
                           for name in ("seqcls", "mlm", "tokcls", "qa"))
random = np.random.default_rng(12)
failures = 0


def integers(high, shape, ignored=0.0):
    values = random.integers(0, high, shape)
    values[random.random(shape) < ignored] = -100
    return values.astype("i8")


def numbers(shape, missing=0.0):
    values = random.random(shape).astype("f4")
    values[random.random(shape) < missing] = np.nan
    return values


def tensor(array):
    return torch.from_numpy(array.astype("f8" if array.dtype.kind == "f" else "i8"))


def cross_entropy(**options):
    """Of scores [..., classes] and labels [...]."""
    def loss(scores, labels):
        return functional.cross_entropy(scores.flatten(0, -2), tensor(labels).flatten(), **options)
    return loss


def shifted(loss):
    return lambda scores, labels: loss(scores[:, :-1], labels[:, 1:])


def masked(loss, marks):
    """The mean over those elements that `marks` does not mark."""
    def mean(scores, labels):
        labels = tensor(labels).to(scores.dtype)
        counts = ~marks(labels)
        return loss(scores.reshape(labels.shape)[counts], labels[counts])
    return mean


def weights(*values):
    return torch.tensor(values, dtype=torch.float64)


mse = masked(functional.mse_loss, torch.isnan)
bce = masked(functional.binary_cross_entropy_with_logits, lambda labels: torch.isnan(labels) | (labels == -100))

# Model, its output, the bias added to that output, --loss, labels, the same loss by PyTorch.
CASES = [
    (SEQCLS, "logits", "classifier.bias", "cross-entropy,smoothing=0.1", integers(
        3, BATCH), cross_entropy(label_smoothing=0.1)),
    (SEQCLS, "logits", "classifier.bias", "cross-entropy,weights=0.25/1/3.5", integers(
        3, BATCH), cross_entropy(weight=weights(0.25, 1, 3.5))),
    (SEQCLS, "logits", "classifier.bias", "cross-entropy:logits:labels,weights=0/1/2,smoothing=0.3", integers(
        3, BATCH), cross_entropy(weight=weights(0, 1, 2), label_smoothing=0.3)),
    (TOKCLS, "logits", "classifier.bias", "cross-entropy,smoothing=1,weights=1/2/3", integers(
        3, (BATCH, LENGTH), 0.3), cross_entropy(weight=weights(1, 2, 3), label_smoothing=1.0)),
    (MLM, "logits", "cls.predictions.bias", "cross-entropy,smoothing=0.1", integers(
        WORDS, (BATCH, LENGTH), 0.8), cross_entropy(label_smoothing=0.1)),
    (MLM, "logits", "cls.predictions.bias", "cross-entropy,shift", integers(WORDS, (BATCH, LENGTH),
                                                                            0.3), shifted(cross_entropy())),
    (TOKCLS, "logits", "classifier.bias", "cross-entropy,shift,smoothing=0.2,weights=3/2/1",
     integers(3, (BATCH, LENGTH), 0.3), shifted(cross_entropy(weight=weights(3, 2, 1), label_smoothing=0.2))),
    (SEQCLS, "logits", "classifier.bias", "mse", numbers((BATCH, 3)), mse),
    (SEQCLS, "logits", "classifier.bias", "mse", numbers((BATCH, 3), 0.4), mse),
    (TOKCLS, "logits", "classifier.bias", "mse:logits:scores", 7 * numbers((BATCH, LENGTH, 3)).astype("f8"), mse),
    (SEQCLS, "logits", "classifier.bias", "bce", numbers((BATCH, 3), 0.4), bce),
    (SEQCLS, "logits", "classifier.bias", "bce", integers(2, (BATCH, 3), 0.2), bce),
    (SEQCLS, "logits", "classifier.bias", "bce:logits:targets", integers(2, (BATCH, 3)).astype("f4"), bce),
    (QA, "start_logits", "qa_outputs.bias", "bce:start_logits", integers(2, (BATCH, LENGTH), 0.3), bce),
    (SEQCLS, "logits", "classifier.bias", "mse:logits:scores+cross-entropy,smoothing=0.1", integers(3, BATCH), None),
    (SEQCLS, "logits", "classifier.bias", "0.25*cross-entropy", integers(3, BATCH),
     lambda scores, labels: 0.25 * cross_entropy()(scores, labels)),
    (SEQCLS, "logits", "classifier.bias", "3*mse+1e-1*bce:logits:marks", numbers((BATCH, 3)),
     lambda scores, labels: 3 * mse(scores, labels) + 0.1 * bce(scores, labels)),
]


def close(what, found, expected, tolerance):
    global failures
    error = np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-9)
    if not error <= tolerance:
        print(f"{what}: {found} instead of {expected}")
        failures += 1


def check(number, model, output, bias, spec, labels, loss):
    inputs = {"input_ids": integers(200, (BATCH, LENGTH)), "attention_mask": np.ones((BATCH, LENGTH), "i8"),
              "token_type_ids": integers(2, (BATCH, LENGTH))}
    names = [term.split(",")[0].split(":") for term in spec.split("+")]  # of the loss, the output, the labels
    for name in names:
        inputs[name[2] if len(name) > 2 else "labels"] = labels
    if loss is None:  # two terms, of labels of their own
        inputs["scores"] = numbers((BATCH, 3))
        loss = lambda scores, labels: mse(scores, inputs["scores"]) + cross_entropy(label_smoothing=0.1)(scores, labels)
    write("inputs.safetensors", inputs)
    command = [SKYCC, "run", model, "--inputs", "inputs.safetensors", "-o", "out.safetensors", "--loss", spec, "--grad"]
    for how in [], ["--interpret"]:
        subprocess.run(command + how, check=True)
        results = read("out.safetensors")
        scores = torch.from_numpy(results["out/" + output].astype("f8")).requires_grad_()
        expected = loss(scores, labels)
        expected.backward()
        gradient = next(value for name, value in results.items() if name.startswith("grad/") and name.endswith(bias))
        slope = scores.grad.flatten(0, -2).sum(0).numpy() if output == "logits" else scores.grad.sum().numpy()[None]
        what = f"case {number}, {spec} {' '.join(how)}"
        close(what, results["loss"], expected.detach().numpy(), 1e-5)
        close(what + ", gradient", gradient[:slope.size], slope, 1e-4)


def contrastive(temperature):
    """Of two embeddings a row: the partner of each is to be told from all."""
    def loss(a, b, _):
        cosines = functional.normalize(a) @ functional.normalize(b).T
        return functional.cross_entropy(cosines / temperature, torch.arange(len(a)))
    return loss


def cosine(a, b, labels):
    return functional.mse_loss(functional.cosine_similarity(a, b), tensor(labels).double())


def check_embeddings(spec, loss, model=QA):
    """A loss of two outputs [rows, elements] that share a bias of two numbers."""
    inputs = {"input_ids": integers(200, (BATCH, LENGTH)), "attention_mask": np.ones((BATCH, LENGTH), "i8"),
              "token_type_ids": integers(2, (BATCH, LENGTH)), "labels": numbers(BATCH)}
    write("inputs.safetensors", inputs)
    subprocess.run(
        [SKYCC, "run", model, "--inputs", "inputs.safetensors", "-o", "out.safetensors", "--loss", spec, "--grad"],
        check=True)
    results = read("out.safetensors")
    a, b = (torch.from_numpy(results[f"out/{name}_logits"].astype("f8")).requires_grad_() for name in ("start", "end"))
    expected = loss(a, b, inputs["labels"])
    expected.backward()
    gradient = next(
        value for name, value in results.items() if name.startswith("grad/") and name.endswith("qa_outputs.bias"))
    close(spec, results["loss"], expected.detach().numpy(), 1e-5)
    close(spec + ", gradient", gradient, np.array([a.grad.sum(), b.grad.sum()]), 1e-4)


def with_bias(model, bias, values):
    """The model with a bias so large that the output is the bias alone."""
    large = load(model)
    for tensor in large.graph.initializer:
        if tensor.name.endswith(bias):
            tensor.CopyFrom(numpy_helper.from_array(np.array(values, "f4"), tensor.name))
    save(large, "large.onnx")
    return "large.onnx"


def check_large():
    """Logits so large that adding the logarithm of a sum does not change them in float32."""
    nearly = np.nextafter(np.float32(1), np.float32(0))
    for top in 1e30, 3e38:
        for values in (top, top, top), (top, top, -top), (-top, -top, -top):
            model = with_bias(SEQCLS, "classifier.bias", values)
            labels = integers(2, BATCH)
            for options, loss in (("", cross_entropy()), (",smoothing=0.1", cross_entropy(label_smoothing=0.1)),
                                  (",weights=0.25/1/0", cross_entropy(weight=weights(0.25, 1, 0))),
                                  (",weights=1/2/0,smoothing=0.1",
                                   cross_entropy(weight=weights(1, 2, 0), label_smoothing=0.1))):
                if not (top > 1e38 and "1" in options and values[2] != values[0]):  # some row's loss is no float32
                    check("large", model, "logits", "classifier.bias", "cross-entropy" + options, labels, loss)
            if top < 1e38:
                check("large", model, "logits", "classifier.bias", "bce", np.full((BATCH, 3), nearly), bce)
    model = with_bias(QA, "qa_outputs.bias", (1e30, -1e30))
    check_embeddings("contrastive:start_logits:end_logits", contrastive(0.05), model)
    check_embeddings("cosine:start_logits:end_logits", cosine, model)


def check_one_microbatch():
    """Rows of several micro-batches cannot be compared with each other."""
    command = [SKYCC, "plan", QA, "-d", "cluster.yaml", "--dim", "batch=4", "--dim", "seq=8", "--loss",
               "contrastive:start_logits:end_logits", "--microbatches"]
    refused = subprocess.run([*command, "2"], capture_output=True, text=True)
    if refused.returncode != 2 or "--microbatches 1" not in refused.stderr:
        close(refused.stderr, refused.returncode, 2, 0)
    shell(*command, "1")
    alone = subprocess.run([*command, "1", "--dim", "batch=1"], capture_output=True, text=True)
    if alone.returncode != 2 or "needs other rows in a batch" not in alone.stderr:
        close("a batch of one row: " + alone.stderr, alone.returncode, 2, 0)


def question_inputs(rows):
    return {"input_ids": integers(200, (rows, LENGTH)), "attention_mask": np.ones((rows, LENGTH), "i8"),
            "token_type_ids": integers(2, (rows, LENGTH))}


def with_own_loss():
    """The token classifier with a scalar output `loss`, the mean square of its logits."""
    model = load(TOKCLS)
    model.graph.node.append(helper.make_node("Mul", ["logits", "logits"], ["squares"]))
    model.graph.node.append(helper.make_node("ReduceMean", ["squares"], ["loss"], keepdims=0))
    model.graph.output.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    save(model, "own.onnx")
    return "own.onnx"


def check_parts_of_batches():
    """A batch that the rows of an epoch do not fill trains as one of so many rows does. Where the model computes its
    own loss, rows from the beginning fill it up."""
    inputs = question_inputs(FEWER)
    again = np.arange(ROWS) % FEWER
    write("fewer.safetensors", inputs)
    write("filled.safetensors", {name: array[again] for name, array in inputs.items()})
    fast = ["--lr", "1e-2", "--warmup", "0"]
    compared = dict(spec="contrastive:start_logits:end_logits", model=QA, data="fewer.safetensors",
                    evaluated="fewer.safetensors")
    whole = train(fast, stages=1, microbatches=1, rows=FEWER, **compared)
    found = train(fast, stages=2, microbatches=1, rows=ROWS, **compared)
    for part in 0, 1:
        close("contrastive in part of a batch", np.array(found[part], float), np.array(whole[part], float), 1e-5)
    own = dict(spec="output:loss", model=with_own_loss(), stages=1, microbatches=4)
    filled = train(fast, data="filled.safetensors", evaluated="filled.safetensors", **own)
    found = train(fast, data="fewer.safetensors", evaluated="fewer.safetensors", **own)
    close("a loss of the model's own", np.array(found[:2], float), np.array(filled[:2], float), 0)


def shell(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def train(options, spec, stages, microbatches, rows=ROWS, data="data.safetensors", evaluated="data.safetensors",
          model=TOKCLS, compiling=()):
    """Of three steps, which are an epoch each, as the log has them: the losses, and losses and accuracies of the
    evaluations that follow them."""
    with open("cluster.yaml", "w") as file:
        file.write("devices:\n" +
                   "".join(f"  - {{name: d{i}, threads: 1, memory: 1GiB, gflops: 10, bandwidth: 10GB/s}}\n"
                           for i in range(stages)))
    shell(SKYCC, "compile", model, "-d", "cluster.yaml", "-o",
          "programs", "--dim", f"batch={rows // microbatches}", "--dim", f"seq={LENGTH}", "--microbatches",
          str(microbatches), "--allocate", "even", "--loss", spec, "-q", *compiling)
    shell("programs/train", "--data", data, "--no-shuffle", "--steps", "3", "--log", "log.csv", "--eval-data",
          evaluated, *options)
    with open("log.csv") as file:
        rows = list(csv.DictReader(file))
    return [row["loss"] for row in rows], [row["eval_loss"] for row in rows], [row["eval_accuracy"] for row in rows]


def check_training(spec, labels, accuracy):
    """Any number of stages gives the same losses to the last digit, any number of micro-batches the same but for
    rounding; evaluating, where a step has changed nothing, gives the loss of the step."""
    inputs = {"input_ids": integers(200, (ROWS, LENGTH)), "attention_mask": np.ones((ROWS, LENGTH), "i8"),
              "token_type_ids": integers(2, (ROWS, LENGTH))}
    inputs |= labels
    write("data.safetensors", inputs)
    write("fewer.safetensors", {name: array[:FEWER] for name, array in inputs.items()})
    first = train([], spec, 1, 4)
    for stages in 2, 4:
        if (found := train([], spec, stages, 4)) != first:
            close(f"{spec} in {stages} stages", np.array(found[0], float), np.array(first[0], float), 0)
    for microbatches in 1, 2, 8:
        found = train([], spec, 2, microbatches)
        close(f"{spec} in {microbatches} micro-batches", np.array(found[0], float), np.array(first[0], float), 1e-5)
    still = train(["--lr", "0"], spec, 1, 2)
    close(f"{spec}, evaluated", np.array(still[1], float), np.array(still[0], float), 1e-6)
    fast = ["--lr", "1e-2", "--warmup", "0"]
    whole = train(fast, spec, 1, 1, FEWER, "fewer.safetensors", "fewer.safetensors")
    part = train(fast, spec, 1, 4, data="fewer.safetensors", evaluated="fewer.safetensors")
    if (found := train(fast, spec, 4, 4, data="fewer.safetensors", evaluated="fewer.safetensors")) != part:
        close(f"{spec} in part of a batch, 4 stages", np.array(found[0], float), np.array(part[0], float), 0)
    for which in 0, 1:
        close(f"{spec} in part of a batch", np.array(part[which], float), np.array(whole[which], float), 1e-5)
    whole = train(["--lr", "0"], spec, 1, 1, FEWER, "fewer.safetensors", "fewer.safetensors")
    padded = train(["--lr", "0"], spec, 2, 4, evaluated="fewer.safetensors")
    close(f"{spec}, evaluated in part of a batch", float(padded[1][0]), float(whole[0][0]), 1e-6)
    if accuracy:
        close(f"{spec}, accuracy", float(padded[2][0]), float(whole[2][0]), 0)
    close(f"{spec}, accuracy is known", float(all(first[2])), float(accuracy), 0)


WORDS_TABLE, DECODER = "m.bert.embeddings.word_embeddings.weight", "onnx::MatMul_325"
ROW = 7


def masked_language(*options):
    shell(SKYCC, "run", MLM, "--inputs", "data.safetensors", "-o", "out.safetensors", "--grad", *options)
    return read("out.safetensors")


def check_left_out_row():
    """The gradient of a table that is a decoder too is that of both uses; of the row that is left out, the decoder's
    alone. As many stages as one likes train the same."""
    inputs = {"input_ids": integers(WORDS, (ROWS, LENGTH)), "attention_mask": np.ones((ROWS, LENGTH), "i8"),
              "token_type_ids": integers(2, (ROWS, LENGTH)), "labels": integers(WORDS, (ROWS, LENGTH), 0.5)}
    inputs["input_ids"][:, ::3] = ROW
    write("data.safetensors", inputs)
    option = ["--no-gradient-row", f"{WORDS_TABLE}={ROW}"]
    whole, left_out, apart = masked_language(), masked_language(*option), masked_language("--untie")
    table = "grad/" + WORDS_TABLE
    for name in whole:
        expected = whole[name].copy()
        if name in (table, "grad/" + DECODER):
            rows, found = (expected, left_out[name]) if name == table else (expected.T, left_out[name].T)
            close(f"row {ROW} of {name}", found[ROW], apart["grad/" + DECODER][:, ROW], 1e-5)
            rows[ROW] = found[ROW]
        close(f"{name} without a gradient of row {ROW}", left_out[name], expected, 0)
    close("the table alone", masked_language("--untie", *option)[table][ROW], np.zeros(32), 0)
    first = train([], "cross-entropy", 1, 4, model=MLM, compiling=option)
    for stages in 2, 4:
        found = train([], "cross-entropy", stages, 4, model=MLM, compiling=option)
        close(f"{stages} stages", np.array(found[0], float), np.array(first[0], float), 0)
    free = train([], "cross-entropy", 1, 4, model=MLM)
    close("left out from the start", float(free[0] == first[0]), 0.0, 0)


CLASSES, SIZE = 300, 8  # of --logits sliced, in three slices


def decoder(tied):
    """Words that are looked up, one layer, and a product with the vocabulary: the same table, or one of its own."""
    words, layer, apart = (random.normal(size=shape).astype("f4") for shape in
                           ((CLASSES, SIZE), (SIZE, SIZE), (SIZE, CLASSES)))
    constants = {"words": words, "layer": layer} | ({} if tied else {"apart": apart})
    nodes = [helper.make_node("Gather", ["words", "input_ids"], ["x"]),
             helper.make_node("MatMul", ["x", "layer"], ["y"]), helper.make_node("Tanh", ["y"], ["hidden"]),
             *([helper.make_node("Transpose", ["words"], ["apart"], perm=[1, 0])] if tied else []),
             helper.make_node("MatMul", ["hidden", "apart"], ["logits"])]
    graph = helper.make_graph(nodes, "decoder",
                              [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "seq"])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "seq", CLASSES])],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "decoder.onnx")
    return constants


def check_sliced(tied):
    """Logits that are computed some classes at a time: loss and gradients are PyTorch's, in any number of stages."""
    constants = decoder(tied)
    inputs = {"input_ids": integers(CLASSES, (ROWS, LENGTH)), "labels": integers(CLASSES, (ROWS, LENGTH), 0.3)}
    write("data.safetensors", inputs)
    leaves = {name: tensor(value).requires_grad_() for name, value in constants.items()}
    hidden = torch.tanh(leaves["words"][torch.from_numpy(inputs["input_ids"])] @ leaves["layer"])
    loss = cross_entropy()(hidden @ (leaves["words"].T if tied else leaves["apart"]), inputs["labels"])
    loss.backward()
    for way in ["--interpret"], []:
        shell(SKYCC, "run", "decoder.onnx", "--inputs", "data.safetensors", "-o", "out.safetensors", "--loss",
              "cross-entropy", "--grad", "--logits", "sliced", *way)
        found = read("out.safetensors")
        close("sliced logits are no output", float("out/logits" in found), 0.0, 0)
        close("sliced loss", found["loss"], loss.detach().numpy(), 1e-6)
        for name, leaf in leaves.items():
            close(f"sliced loss, gradient of {name}", found["grad/" + name], leaf.grad.numpy(), 1e-5)
    sliced = ["--logits", "sliced"]
    first = train([], "cross-entropy", 1, 4, model="decoder.onnx", compiling=sliced)
    found = train([], "cross-entropy", 2, 4, model="decoder.onnx", compiling=sliced)
    close("sliced, 2 stages", np.array(found[:2], float), np.array(first[:2], float), 0)
    whole = train([], "cross-entropy", 1, 4, model="decoder.onnx")
    close("whole and sliced", np.array(first[:2], float), np.array(whole[:2], float), 1e-5)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for tied in True, False:
        check_sliced(tied)
    for number, case in enumerate(CASES):
        check(number, *case)
    check_training("cross-entropy,shift,smoothing=0.1,weights=1/2/0.5",
                   {"labels": integers(3, (ROWS, LENGTH), 0.5)}, True)
    check_training("bce+mse:logits:scores", {"labels": integers(2, (ROWS, LENGTH, 3), 0.3),
                                             "scores": numbers((ROWS, LENGTH, 3), 0.3)}, False)
    check_parts_of_batches()
    check_left_out_row()
    check_embeddings("contrastive:start_logits:end_logits", contrastive(0.05))
    check_embeddings("contrastive:start_logits:end_logits:0.5", contrastive(0.5))
    check_embeddings("cosine:start_logits:end_logits", cosine)
    check_large()
    check_one_microbatch()
    os.chdir("/")
sys.exit(failures > 0)
