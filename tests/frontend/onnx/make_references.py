#!/usr/bin/python3
"""Makes the exports and the compact references in tests/data/bert.

    tests/frontend/onnx/make_references.py SOURCE        needs numpy, PyTorch and onnx; the tests need none of them

SOURCE holds, per model size NAME (nano, nano24), NAME/bert-NAME-HEAD-*.onnx (seqcls, mlm) as PyTorch exported them and
NAME/bert-NAME-HEAD.ref.safetensors: inputs, initial parameters, and what PyTorch computed from them in float32 and in
float64 (of other members of the family: family/NAME-nano-seqcls*). Where no reference was recorded (other activations,
freshly initialised models) the BERT below computes it; that BERT itself is first held against the recorded references.

A reference file NAME.ref.safetensors holds
    in/*                      the batch
    OUTPUT, loss              before training, float64 results
    grad/PARAMETER            the gradient there
    adamw/loss, sgd/loss      11 values: before each of ten steps, and after the last
    adamw/PARAMETER, sgd/PARAMETER    after ten steps (sgd: where there is a float64 result)
    tolerance/KIND            per parameter, for KIND grad, adamw, sgd: the absolute error allowed
    tolerance/OUTPUT, tolerance/loss, tolerance/adamw/loss, tolerance/sgd/loss      the same, scalars or per value
and the metadata `outputs`, `parameters` (names separated by blanks, in the order of the tolerances), `noise` (see
below) and `stride` (tensors of parameters with more than 256 elements are kept flattened, every stride-th element).

Allowed is 1e-5 of the loss at first and 1e-4 later, 1e-4 of a gradient's largest element, 2e-4 for a trained parameter,
1e-5 of the largest logit (of any other output), or four times the distance between PyTorch's own float32 and float64
results where that is more. The bias of attention keys changes no output, nor does what adds the same to the logits of
all tokens that are compared: its gradient is rounding noise, which AdamW turns into steps of the learning rate's size.
So its gradient is held against the size of its weight's gradient, and after training it is left out.
"""
import json
import math
import os
import shutil
import sys

import numpy as np
import onnx
import onnx.numpy_helper
import torch

TESTS = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.append(os.path.join(TESTS, "common"))
import safetensors_files as safetensors  # noqa: E402

DESTINATION = os.path.join(TESTS, "data", "bert")
STEPS = 10

# export, reference, options of `skycc run`
EXPORTS = [
    ("bert-nano-seqcls-opset11-dyn", "seqcls", []),
    ("bert-nano-seqcls-opset13-dyn", "seqcls", []),
    ("bert-nano-seqcls-opset13-dyn-loss", "seqcls", []),
    ("bert-nano-seqcls-opset13-dyn-traindrop", "seqcls", ["--dropout", "off"]),
    ("bert-nano-seqcls-opset14-fix", "seqcls", []),
    ("bert-nano-seqcls-opset14-dyn-nofold", "seqcls", []),
    ("bert-nano-seqcls-opset17-dyn", "seqcls", []),
    ("bert-nano-seqcls-opset17-fix", "seqcls", []),
    ("bert-nano-seqcls-opset17-dyn-nofold", "seqcls", []),
    ("bert-nano-seqcls-opset17-dyn-loss", "seqcls", []),
    ("bert-nano-seqcls-opset17-dyn-relu", "relu", []),
    ("bert-nano-seqcls-opset17-dyn-gelunew", "gelunew", []),
    ("bert-nano-seqcls-opset17-dyn-dedup-trap-eval-fold", "fresh", []),
    ("bert-nano-seqcls-opset17-dyn-dedup-trap-eval-nofold", "fresh", []),
    ("bert-nano-seqcls-opset17-dyn-dedup-trap-train-nofold", "fresh", ["--dropout", "off"]),
    ("bert-nano-seqcls-opset17-dyn-idsonly", "idsonly", []),
    ("bert-nano-mlm-opset17-dyn", "mlm", []),  # the decoder is folded: a transposed copy of the embeddings
    ("bert-nano-mlm-opset17-dyn-loss-nofold", "mlm", []),
    ("bert-nano-qa-opset17-dyn", "qa", [
        "--loss", "cross-entropy:start_logits:start_positions+cross-entropy:end_logits:end_positions"]),
    ("bert-nano-tokcls-opset17-dyn", "tokcls", []),
    ("bert-nano-model-opset14-dyn", "model", [
        "--loss", "cross-entropy:last_hidden_state:token_labels+cross-entropy:pooler_output:labels"]),
    ("roberta-nano-seqcls-opset14-dyn", "roberta", []),
    ("distilbert-nano-seqcls-opset11-dyn", "distilbert", []),
    ("bert-nano24-seqcls-opset14-dyn-nofold", "nano24", []),
]
# What of a network's outputs is compared with which labels, where it is not logits with labels.
LOSSES = {
    "qa": [("start_logits", "start_positions"), ("end_logits", "end_positions")],
    "model": [("last_hidden_state", "token_labels"), ("pooler_output", "labels")],
}
HEADS = 4
ACTIVATIONS = {
    "gelu": torch.nn.functional.gelu,
    "relu": torch.relu,
    "gelunew": lambda x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))),
}


def linear(p, x, name):
    return x @ p[name + ".weight"].T + p[name + ".bias"]


def norm(p, x, name):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-12)


def encode(p, batch, activation):
    """The last hidden states of a BERT (Devlin et al., 2019); parameters p by their PyTorch names."""
    ids = batch["input_ids"]
    rows, length = ids.shape
    embeddings = "bert.embeddings."
    x = p[embeddings + "word_embeddings.weight"][ids] + p[embeddings +
                                                          "token_type_embeddings.weight"][batch["token_type_ids"]]
    x = norm(p, x + p[embeddings + "position_embeddings.weight"][:length], embeddings + "LayerNorm")
    mask = (1.0 - batch["attention_mask"].to(x.dtype))[:, None, None, :] * torch.finfo(x.dtype).min
    width = x.shape[-1] // HEADS
    for layer in range(sum(name.endswith("intermediate.dense.bias") for name in p)):
        block = f"bert.encoder.layer.{layer}."
        q, k, v = (
            linear(p, x, f"{block}attention.self.{which}").view(rows, length, HEADS, width).transpose(1, 2)
            for which in ("query", "key", "value")
        )
        context = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(width) + mask, -1) @ v
        context = context.transpose(1, 2).reshape(rows, length, -1)
        x = norm(p, linear(p, context, block + "attention.output.dense") + x, block + "attention.output.LayerNorm")
        inner = activation(linear(p, x, block + "intermediate.dense"))
        x = norm(p, linear(p, inner, block + "output.dense") + x, block + "output.LayerNorm")
    return x


def classify(p, batch, activation):
    """Logits of the sequence classifier."""
    first = encode(p, batch, activation)[:, 0]
    return {"logits": linear(p, torch.tanh(linear(p, first, "bert.pooler.dense")), "classifier")}


def classify_tokens(p, batch, activation):
    return {"logits": linear(p, encode(p, batch, activation), "classifier")}


def find_answer(p, batch, activation):
    """Logits of where an answer starts and ends."""
    start, end = linear(p, encode(p, batch, activation), "qa_outputs").unbind(-1)
    return {"start_logits": start, "end_logits": end}


def encode_only(p, batch, activation):
    """The bare model. Its parameters have no prefix "bert."."""
    p = {"bert." + name: parameter for name, parameter in p.items()}
    x = encode(p, batch, activation)
    return {"last_hidden_state": x, "pooler_output": torch.tanh(linear(p, x[:, 0], "bert.pooler.dense"))}


def predict_tokens(p, batch, activation):
    """Logits of the masked language model, whose decoder is the word embeddings."""
    x = activation(linear(p, encode(p, batch, activation), "cls.predictions.transform.dense"))
    x = norm(p, x, "cls.predictions.transform.LayerNorm")
    return {"logits": x @ p["bert.embeddings.word_embeddings.weight"].T + p["cls.predictions.bias"]}


def joined_loss(outputs, batch, losses):
    """The sum of cross-entropies, each the mean over its own labels but -100."""
    return sum(
        torch.nn.functional.cross_entropy(outputs[output].flatten(0, -2), batch[labels].flatten())
        for output, labels in losses
    )


def compute(network, initial, batch, activation, dtype, losses=(("logits", "labels"),)):
    """The same results, under the same names, as a recorded reference has for this dtype."""
    prefix = {torch.float32: "f32", torch.float64: "f64"}[dtype]
    batch = {name: torch.from_numpy(array.copy()) for name, array in batch.items()}
    results = {}
    for kind in ("adamw", "sgd"):
        parameters = {name: torch.tensor(array, dtype=dtype, requires_grad=True) for name, array in initial.items()}
        if kind == "adamw":
            optimizer = torch.optim.AdamW(parameters.values(), 1e-3, (0.9, 0.999), 1e-8, 0.01)
        else:
            optimizer = torch.optim.SGD(parameters.values(), 0.05)
        curve = []
        for step in range(STEPS + 1):
            optimizer.zero_grad()
            outputs = network(parameters, batch, activation)
            loss = joined_loss(outputs, batch, losses)
            curve.append(loss.item())
            loss.backward()
            if step == 0:
                for name, output in outputs.items():
                    results[f"{prefix}/out/{name}"] = output.detach().numpy().copy()
                results[f"{prefix}/out/loss"] = loss.detach().numpy().copy()
                for name, parameter in parameters.items():
                    results[f"{prefix}/grad/{name}"] = parameter.grad.numpy().copy()
            if step < STEPS:
                optimizer.step()
        results[f"{prefix}/{kind}/loss"] = np.array(curve)
        for name, parameter in parameters.items():
            results[f"{prefix}/{kind}/param/{name}"] = parameter.detach().numpy().copy()
    return results


def compute_both(*arguments, **options):
    return {**compute(*arguments, torch.float32, **options), **compute(*arguments, torch.float64, **options)}


def check_against_recorded(recorded, computed):
    """Trained parameters are no part of it: 24 layers amplify the last bits of two orders of summation by 1e9 in ten
    steps."""
    for name, array in computed.items():
        if name.startswith("f64/") and name in recorded and "/param/" not in name:
            scale = max(np.abs(recorded[name]).max(), 1e-12)
            error = np.abs(array - recorded[name]).max() / scale
            assert error < 1e-7 or name.endswith("key.bias"), (name, error)


def weight_of(bias):
    return bias.removesuffix("bias") + "weight"


def compact(batch, results, stride):
    """The tensors and metadata of a compact reference file."""
    names = sorted(name[len("f64/grad/") :] for name in results if name.startswith("f64/grad/"))
    largest = {name: np.abs(results["f64/grad/" + name]).max() for name in names}
    noise = [name for name in names if largest[name] < 1e-9 * largest.get(weight_of(name), 0)]
    tensors = {"in/" + name: array for name, array in batch.items()}

    def gap(name):
        return 4 * np.abs(results["f64/" + name] - results["f32/" + name].astype(np.float64))

    outputs = sorted(name[len("f64/out/") :] for name in results if name.startswith("f64/out/"))
    for name in outputs:
        tensors[name] = results["f64/out/" + name]
        tensors["tolerance/" + name] = np.array(max(1e-5 * np.abs(tensors[name]).max(), gap("out/" + name).max()))
    outputs.remove("loss")
    for kind in ("adamw", "sgd"):
        losses = tensors[kind + "/loss"] = results[f"f64/{kind}/loss"]
        allowed = np.array([1e-5] + [1e-4] * STEPS) * losses
        tensors[f"tolerance/{kind}/loss"] = np.maximum(allowed, gap(kind + "/loss"))
    for kind in ("grad", "adamw", "sgd"):
        if f"f64/{kind}/param/{names[0]}" not in results and kind == "sgd":
            continue
        tolerances = []
        for name in names:
            source = f"grad/{name}" if kind == "grad" else f"{kind}/param/{name}"
            array = results["f64/" + source]
            if kind == "grad":
                allowed = 1e-4 * largest[weight_of(name) if name in noise else name]
            else:
                allowed = 2e-4
            tolerances.append(max(allowed, gap(source).max()))
            if array.size > 256:
                array = array.reshape(-1)[::stride]
            tensors[f"{kind}/{name}"] = array.astype(np.float32)
        tensors["tolerance/" + kind] = np.array(tolerances)
    lists = {"outputs": outputs, "parameters": names, "noise": noise}
    return tensors, {**{key: " ".join(items) for key, items in lists.items()}, "stride": str(stride)}


def initializers(path):
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


def parameter_names(path, initial):
    """Initializer name, as skycc writes it, -> [PyTorch name, "same" or "T"], for those that are not "m." + the PyTorch
    name.

    Found by value, and through Identity nodes, which carry the merged initializers' own names: the direct use keeps the
    name, the Identity nodes make NAME#1, NAME#2 ... in their order."""
    graph = onnx.load(path).graph
    held = initializers(path)
    merged = {}
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in held:
            merged.setdefault(node.input[0], []).append(node.output[0])
    names = {}
    for name in held:
        if name[2:] not in initial:
            fits = [
                [other, layout]
                for other, array in initial.items()
                for layout, own in (("same", held[name]), ("T", held[name].T))
                if own.shape == array.shape and np.array_equal(own, array)
            ]
            assert len(fits) == 1, (path, name, fits)
            names[name] = fits[0]
    # Folded exports drop the Identity nodes' readable names only for matrices; vectors keep theirs.
    for name, outputs in merged.items():
        for number, output in enumerate(outputs, 1):
            assert output[2:] in initial, output
            names[f"{name}#{number}"] = [output[2:], "same"]
    return names


def further_references(source, batch, initial):
    """Those that were not recorded: a dictionary like main's. `batch` and `initial` are those of the classifier."""
    ids, ones, zeros = batch["input_ids"], np.ones_like(batch["input_ids"]), np.zeros_like(batch["input_ids"])
    generator = np.random.default_rng(7)
    token_labels = np.where(batch["attention_mask"] == 1, generator.integers(0, 3, ids.shape), -100)
    positions = {f"{end}_positions": generator.integers(0, ids.shape[1], len(ids)) for end in ("start", "end")}
    positions["end_positions"][1] = -100  # ignored: the two losses have different numbers of labels
    inputs = {name: array for name, array in batch.items() if name != "labels"}

    def held(export):
        """Parameters by their PyTorch names, of an export without constant folding."""
        return {name[2:]: array for name, array in initializers(f"{source}/nano/bert-nano-{export}.onnx").items()}

    def unfolded(head):
        """The parameters of an export whose matrices are folded into the graph: the names come from its map."""
        with open(f"{source}/nano/param-map-nano.json") as file:
            names = json.load(file)[f"bert-nano-{head}"]
        arrays = initializers(f"{source}/nano/bert-nano-{head}.onnx")
        return {entry[0]: arrays[name].T.copy() if entry[1] == "T" else arrays[name] for name, entry in names.items()}

    fresh = held("seqcls-opset17-dyn-dedup-trap-train-nofold")
    cases = {
        "relu": (classify, batch, initial, "relu"),
        "gelunew": (classify, batch, initial, "gelunew"),
        "fresh": (classify, batch, fresh, "gelu"),
        "idsonly": (classify, {**batch, "attention_mask": ones, "token_type_ids": zeros}, initial, "gelu"),
        "qa": (find_answer, {**inputs, **positions}, unfolded("qa-opset17-dyn"), "gelu"),
        "tokcls": (classify_tokens, {**inputs, "labels": token_labels}, unfolded("tokcls-opset17-dyn"), "gelu"),
        "model": (encode_only, {**batch, "token_labels": token_labels}, unfolded("model-opset14-dyn"), "gelu"),
    }
    references = {}
    for name, (network, inputs, weights, activation) in cases.items():
        losses = {"losses": LOSSES[name]} if name in LOSSES else {}
        results = compute_both(network, weights, inputs, ACTIVATIONS[activation], **losses)
        references[name] = (inputs, weights, results, 5)
    return references


def main(source):
    os.makedirs(DESTINATION, exist_ok=True)
    recorded = {
        (size, head): safetensors.read(f"{source}/{size}/bert-{size}-{head}.ref.safetensors")
        for size, head in (("nano", "seqcls"), ("nano", "mlm"), ("nano24", "seqcls"))
    }
    pick = lambda tensors, prefix: {n[len(prefix) :]: a for n, a in tensors.items() if n.startswith(prefix)}
    references = {}
    for (size, head), tensors in recorded.items():
        network = classify if head == "seqcls" else predict_tokens
        batch, initial = pick(tensors, "in/"), pick(tensors, "init/")
        computed = compute_both(network, initial, batch, ACTIVATIONS["gelu"])
        check_against_recorded(tensors, computed)
        # Not recorded are float64 parameters after SGD.
        name = size if size != "nano" else head
        references[name] = (batch, initial, {**computed, **tensors}, 1 if name == "seqcls" else 5)
    for name in ("roberta", "distilbert"):
        tensors = safetensors.read(f"{source}/family/{name}-nano-seqcls.ref.safetensors")
        references[name] = (pick(tensors, "in/"), pick(tensors, "init/"), tensors, 5)
    references.update(further_references(source, *references["seqcls"][:2]))
    for name, (batch, _, results, stride) in references.items():
        safetensors.write(f"{DESTINATION}/{name}.ref.safetensors", *compact(batch, results, stride))
    index = []
    for name, reference, options in EXPORTS:
        family, size = name.split("-")[:2]
        path = f"{source}/{size if family == 'bert' else 'family'}/{name}.onnx"
        shutil.copyfile(path, f"{DESTINATION}/{name}.onnx")
        entry = {"export": name, "reference": reference, "options": options}
        entry["names"] = parameter_names(path, references[entry["reference"]][1])
        index.append(entry)
    with open(f"{DESTINATION}/exports.json", "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(entry) for entry in index) + "\n]\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
