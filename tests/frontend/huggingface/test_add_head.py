#!/usr/bin/python3
"""Heads on encoders that are ONNX models. On one that `skycc import` made: the same outputs, to the last bit, as the
import of its folder with that head, for new weights are drawn by name. On an export by PyTorch: what numpy makes of the
encoder's outputs.

    tests/frontend/huggingface/test_add_head.py SKYCC TEST_DATA
"""
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
from checks import failed, require, run  # noqa: E402
import safetensors_files  # noqa: E402

HEADS = {
    "bert": ["seqcls:3", "mlm"], "roberta": ["seqcls:3", "tokcls:4"], "distilbert": ["mlm"],
    "electra": ["seqcls:3", "mlm"], "albert": ["regression", "mlm"], "mpnet": ["qa"], "modernbert": ["seqcls:3", "mlm"],
    "deberta-v2": ["seqcls:3", "embedding:mean"], "deberta-v2-conv": ["mlm"]
}
skycc, data = sys.argv[1:3]


def call(*arguments):
    run(skycc, *arguments)


def outputs(model, inputs):
    call("run", model, "--inputs", inputs, "--interpret", "-o", f"{model}.out")
    return {key[4:]: value for key, value in safetensors_files.read(f"{model}.out").items() if key.startswith("out/")}


def weights(model):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(model).graph.initializer}


def encoder_folder(name):
    """The folder without any head, its config.json that of the encoder's class."""
    os.makedirs(f"{name}/folder")
    config = json.load(open(f"{data}/huggingface/{name}/config.json"))
    config["architectures"] = [config["architectures"][0].split("For")[0] + "Model"]
    json.dump(config, open(f"{name}/folder/config.json", "w"))
    base = {"modernbert": "model", "deberta-v2-conv": "deberta", "deberta-v2": "deberta"}.get(name, name) + "."
    tensors = safetensors_files.read(f"{data}/huggingface/{name}/model.safetensors")
    tensors = {key: value for key, value in tensors.items() if key.startswith(base)}
    safetensors_files.write(f"{name}/folder/model.safetensors", tensors)


def compare(name):
    inputs = f"{data}/huggingface/{name}/reference.safetensors"
    encoder_folder(name)
    call("import", f"{name}/folder", "-o", f"{name}/encoder.onnx")
    for head in HEADS[name]:
        call("import", f"{name}/folder", "--head", head, "--seed", "5", "-o", f"{name}/whole.onnx")
        call("head", f"{name}/encoder.onnx", "--head", head, "--seed", "5", "-o", f"{name}/joined.onnx")
        wanted, found = (outputs(f"{name}/{model}.onnx", inputs) for model in ("whole", "joined"))
        require(wanted.keys() == found.keys(), name, head, wanted.keys(), found.keys())
        for key in wanted.keys() & found.keys():
            require(np.array_equal(wanted[key], found[key]), name, head, key, "is not the same")
        require(
            weights(f"{name}/whole.onnx").keys() == weights(f"{name}/joined.onnx").keys(), name, head,
            "other parameters")
        properties = [{entry.key: entry.value for entry in onnx.load(f"{name}/{model}.onnx").metadata_props}
                      for model in ("whole", "joined")]
        require(properties[0] == properties[1], name, head, *properties)


def check_export():
    """On a model of PyTorch's exporter."""
    encoder, inputs = f"{data}/bert/bert-nano-model-opset14-dyn.onnx", f"{data}/bert/model.ref.safetensors"
    states = outputs_of_encoder = None
    for head in ("seqcls:3", "tokcls:4", "embedding:mean", "embedding:cls", "qa"):
        call("head", encoder, "--head", head, "-o", "headed.onnx")
        found, parameters = outputs("headed.onnx", inputs), weights("headed.onnx")
        if states is None:
            call("run", encoder, "--inputs", inputs, "--interpret", "-o", "encoder.out")
            outputs_of_encoder = safetensors_files.read("encoder.out")
            states = outputs_of_encoder["out/last_hidden_state"]
        if head == "seqcls:3":
            wanted = outputs_of_encoder["out/pooler_output"] @ parameters["classifier.weight"].T + parameters[
                "classifier.bias"]
            require(np.abs(found["logits"] - wanted).max() < 1e-5, head)
            require(abs(parameters["classifier.weight"].std() - 0.02) < 0.005, "deviation of new weights")
        elif head == "tokcls:4":
            require(np.abs(found["logits"] - states @ parameters["classifier.weight"].T).max() < 1e-5, head)
        elif head == "embedding:cls":
            require(np.array_equal(found["embedding"], states[:, 0]), head)
        elif head == "embedding:mean":
            mask = safetensors_files.read(inputs)["in/attention_mask"][..., None]
            require(np.abs(found["embedding"] - (states * mask).sum(1) / mask.sum(1)).max() < 1e-5, head)
        else:
            require(found.keys() == {"start_logits", "end_logits"}, found.keys())
    call("run", "headed.onnx", "--inputs", inputs, "--loss", "cross-entropy:start_logits:labels", "--train", "1", "-o",
         "trained")


def check_language_model():
    """Scores of the vocabulary are products with the table that tokens choose rows of."""
    former = f"{data}/bert/bert-nano-model-opset14-dyn.onnx"
    call("head", former, "--head", "mlm", "-o", "masked.onnx", "-q")
    before, after = weights(former), weights("masked.onnx")
    new = after.keys() - before.keys()
    require(all(name.startswith("cls.predictions.") and "decoder" not in name for name in new), "new weights", new)
    found = outputs("masked.onnx", f"{data}/bert/model.ref.safetensors")["logits"]
    require(found.shape[2] == 256 and np.isfinite(found).all(), "scores of the vocabulary are", found.shape)


def write_old_model():
    """Opset 11: rows of a table."""
    table = numpy_helper.from_array(np.random.RandomState(0).rand(9, 4).astype(np.float32), "embeddings.weight")
    ids = onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["batch", "seq"])
    states = onnx.helper.make_tensor_value_info("states", onnx.TensorProto.FLOAT, ["batch", "seq", 4])
    node = onnx.helper.make_node("Gather", ["embeddings.weight", "input_ids"], ["states"])
    graph = onnx.helper.make_graph([node], "old", [ids], [states], [table])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 11)]), "old.onnx")


def refuse(code, pattern, *arguments):
    result = subprocess.run([skycc, "head", *arguments, "-o", "refused.onnx"], capture_output=True, text=True)
    require(result.returncode == code and pattern in result.stderr, arguments, result.returncode, result.stderr)
    require(not os.path.exists("refused.onnx"), arguments, "leaves a file")


with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch, ThreadPoolExecutor(2) as pool:
    os.chdir(scratch)
    list(pool.map(compare, HEADS))
    check_export()
    refuse(1, "--as-is keeps it", f"{data}/bert/bert-nano-seqcls-opset17-dyn.onnx", "--head", "qa")
    write_old_model()
    refuse(1, "opset before 13", "old.onnx", "--head", "qa")
    refuse(1, "was not made by skycc import", f"{data}/bert/bert-nano-model-opset14-dyn.onnx", "--head", "lm")
    check_language_model()
    refuse(2, "seqcls:N", "bert/encoder.onnx", "--head", "seqcls")
    refuse(1, "nowhere.onnx", "nowhere.onnx", "--head", "qa")
sys.exit(failed())
