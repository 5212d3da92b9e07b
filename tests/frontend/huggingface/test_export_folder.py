#!/usr/bin/python3
"""Folders that come back: models of every architecture are imported, trained for two steps and exported as a folder.
What is imported from there computes the same bits as the trained ONNX model; where the Hugging Face library is
installed, it loads the folder and computes the same.

    tests/frontend/huggingface/test_export_folder.py SKYCC FOLDERS
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
from checks import failed, require, run  # noqa: E402
import safetensors_files  # noqa: E402

try:
    import torch
    import transformers
except ImportError as error:
    transformers = None
    print("NOT compared with the library's from_pretrained:", error)

FAMILIES = {
    "bert": "seqcls:2", "roberta": "mlm", "distilbert": "tokcls:5", "electra": "mlm", "albert": "mlm",
    "mpnet": "seqcls:4", "modernbert": "mlm", "deberta-v2": "mlm", "deberta-v2-conv": "regression", "camembert": "qa",
    "gte": "mlm", "jina_embeddings_v3": "qa", "umt5": "tokcls:5"
}
CLASSES = {
    "seqcls": "AutoModelForSequenceClassification", "regression": "AutoModelForSequenceClassification",
    "tokcls": "AutoModelForTokenClassification", "qa": "AutoModelForQuestionAnswering", "mlm": "AutoModelForMaskedLM"
}
QUESTION = "cross-entropy:start_logits:labels+cross-entropy:end_logits:labels"
TOLERANCE = 1e-5
skycc, data = sys.argv[1:3]


def call(*arguments):
    return run(skycc, *arguments).stderr


def outputs(model, inputs, scratch):
    call("run", model, "--inputs", inputs, "--interpret", "-o", f"{scratch}/out.safetensors")
    found = safetensors_files.read(f"{scratch}/out.safetensors")
    return {key[4:]: value for key, value in found.items() if key.startswith("out/")}


def write_inputs(name, head, path):
    tensors = {key[3:]: value for key, value in safetensors_files.read(f"{data}/{name}/reference.safetensors").items()
               if key.startswith("in/")}
    rows, length = tensors["input_ids"].shape
    if head in ("mlm", "tokcls:5"):
        tensors["labels"] = (np.arange(rows * length, dtype=np.int32) % 5).reshape(rows, length)
    else:
        tensors["labels"] = np.arange(rows, dtype=np.float32 if head == "regression" else np.int32)
    safetensors_files.write(path, tensors)
    return tensors


def compare_with_library(name, head, folder, tensors, wanted):
    model, info = getattr(transformers, CLASSES[head.split(":")[0]]).from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float64, output_loading_info=True)
    require(not info["missing_keys"] and not info["unexpected_keys"], name, head, info)
    given = {key: torch.from_numpy(tensors[key]).long() for key in ("input_ids", "attention_mask")}
    if (getattr(model.config, "type_vocab_size", 0) or 0) > 1:
        given["token_type_ids"] = torch.from_numpy(tensors["token_type_ids"]).long()
    with torch.no_grad():
        result = model.eval()(**given)
    mask = tensors["attention_mask"].astype(bool)
    for key, value in wanted.items():
        error = np.abs(result[key].numpy() - value)
        error = error[mask] if error.shape[:2] == mask.shape else error
        require(error.max() < TOLERANCE, name, head, key, "differs from the library's by", error.max())
        print(f"{name:16} {head:10} {key:14} {error.max():.1e}")


def check(name):
    head = FAMILIES[name]
    os.mkdir(name)
    tensors = write_inputs(name, head, f"{name}/in.safetensors")
    subprocess.run(["cp", "-r", f"{data}/{name}", f"{name}/source"], check=True)
    with open(f"{name}/source/vocab.txt", "w") as file:
        file.write("pieces")
    call("import", f"{name}/source", "--head", head, "--seed", "3", "-o", f"{name}/model.onnx")
    loss = {"qa": QUESTION, "regression": "mse"}.get(head, "cross-entropy")
    call("run", f"{name}/model.onnx", "--inputs", f"{name}/in.safetensors", "--loss", loss, "--train", "2", "-o",
         f"{name}/trained.safetensors")
    call("export", f"{name}/model.onnx", f"{name}/trained.safetensors", "-o", f"{name}/trained.onnx", "--folder",
         f"{name}/out")
    before, after = (safetensors_files.read(f"{name}/{file}")
                     for file in ("source/model.safetensors", "out/model.safetensors"))
    require(not any(np.array_equal(before[key], after[key]) for key in before.keys() & after.keys()), name,
            "did not train everything")
    message = call("import", f"{name}/out", "-o", f"{name}/again.onnx")
    require("new:" not in message and "not used:" not in message, name, message)
    wanted = outputs(f"{name}/trained.onnx", f"{name}/in.safetensors", name)
    found = outputs(f"{name}/again.onnx", f"{name}/in.safetensors", name)
    require(wanted.keys() == found.keys(), name, wanted.keys(), found.keys())
    for key in wanted.keys() & found.keys():
        require(np.array_equal(wanted[key], found[key]), name, head, key, "is not the same")
    require(open(f"{name}/out/vocab.txt").read() == "pieces", name, "lacks the tokenizer's file")
    return name, head, f"{name}/out", tensors, wanted


def check_labels():
    """Names of labels: the folder's own, numbers for a head of another size, and those of a data set."""
    config = json.load(open("bert/out/config.json"))
    require(config["id2label"] == {"0": "no", "1": "yes"}, config["id2label"])
    require(config["architectures"] == ["BertForSequenceClassification"], config["architectures"])
    config = json.load(open("mpnet/out/config.json"))
    require(config["id2label"] == {str(i): f"LABEL_{i}" for i in range(4)}, config["id2label"])
    require(config["layer_norm_eps"] == 1e-12 and "1e-12" in open("mpnet/out/config.json").read(), "layer_norm_eps")
    names = ["down", "left", "right", "up"]
    safetensors_files.write("data.safetensors", {"labels": np.zeros(4, np.int32)},
                            {"labels": json.dumps(names), "problem_type": "multi_label_classification"})
    call("export", "mpnet/model.onnx", "mpnet/trained.safetensors", "--folder", "named", "--labels", "data.safetensors")
    config = json.load(open("named/config.json"))
    require(config["id2label"] == {str(i): name for i, name in enumerate(names)}, config["id2label"])
    require(config["label2id"] == {name: i for i, name in enumerate(names)}, config["label2id"])
    require(config["problem_type"] == "multi_label_classification", config)


def refuse(code, pattern, *arguments):
    result = subprocess.run([skycc, *arguments], capture_output=True, text=True)
    require(result.returncode == code and pattern in result.stderr, arguments, result.returncode, result.stderr)
    require(not os.path.exists("refused"), arguments, "leaves a file")


def check_refusals():
    """What cannot become a folder."""
    trained = "bert/trained.safetensors"
    call("bert", "--layers", "1", "--hidden", "8", "--heads", "2", "--vocab", "61", "--positions", "16", "-o",
         "other.onnx")
    call("run", "other.onnx", "--inputs", "bert/in.safetensors", "--loss", "cross-entropy", "--train", "1", "-o",
         "other.safetensors")
    refuse(1, "did not import it from one", "export", "other.onnx", "other.safetensors", "--folder", "refused")
    refuse(1, "has 2 labels, but 4 names", "export", "bert/model.onnx", trained, "--folder", "refused", "--labels",
           "data.safetensors")
    refuse(1, "names of labels", "export", "bert/model.onnx", trained, "--folder", "refused",
           "--labels", "bert/in.safetensors")
    refuse(1, "is missing in the checkpoint", "export", "bert/model.onnx", "mpnet/trained.safetensors", "--folder",
           "refused")
    refuse(1, "nowhere", "export", "bert/model.onnx", trained, "--folder", "refused", "--source", "nowhere")
    refuse(2, "give an output", "export", "bert/model.onnx", trained)
    os.rename("bert/source", "bert/moved")
    require("warning" not in call("export", "bert/model.onnx", trained, "--folder", "bare"), "the model's own copy")
    shutil.rmtree("bert/model.tokenizer")
    message = call("export", "bert/model.onnx", trained, "--folder", "bare")
    require("has no tokenizer" in message and "--source" in message, message)
    require("warning" not in call("export", "bert/model.onnx", trained, "--folder", "bare", "--source", "bert/moved"),
            "--source")


with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch, ThreadPoolExecutor(2) as pool:
    os.chdir(scratch)
    results = list(pool.map(check, FAMILIES))
    for result in results if transformers else []:  # one at a time: the library sets a type for the whole process
        compare_with_library(*result)
    check_labels()
    check_refusals()
sys.exit(failed())
