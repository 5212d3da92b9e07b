#!/usr/bin/python3
"""Folders of every architecture, as `skycc import` reads them: outputs of every head, and gradients of some, compared
with those of the Hugging Face library in float64.

    tests/frontend/huggingface/test_import_folder.py SKYCC FOLDERS

FOLDERS is tests/data/huggingface, whose make_folders.py says what lies there.
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
from checks import LESS, failed, printed, require  # noqa: E402
import safetensors_files  # noqa: E402

HEADS = {"seqcls": ["--head", "seqcls:2"], "tokcls": ["--head", "tokcls:2"], "qa": ["--head", "qa"],
         "mlm": ["--head", "mlm"], "base": []}
OUTPUT, LOSS, GRADIENT = 1e-5, 1e-5, 1e-5
SAME_CODE = {"xlm-roberta", "camembert"}  # as roberta: one head will do
OTHER_DROPOUT = {"eurobert", "t5", "mt5", "umt5"}  # not BERT's places
skycc, data = sys.argv[1:3]


def call(*arguments):
    return subprocess.run([skycc, *arguments], capture_output=True, text=True)


def encoder_alone(name):
    """The folder, as a class without a head would have written its config.json."""
    shutil.copytree(f"{data}/{name}", f"{name}/alone")
    with open(f"{name}/alone/config.json") as file:
        config = json.load(file)
    config["architectures"] = [config["architectures"][0].split("For")[0] + "Model"]
    with open(f"{name}/alone/config.json", "w") as file:
        json.dump(config, file)
    return f"{name}/alone"


def compare_outputs(name, head, reference):
    folder = f"{data}/{name}" if head != "base" else encoder_alone(name)
    result = call("import", folder, *HEADS[head], "-o", f"{name}/model.onnx")
    require(result.returncode == 0, name, head, result.stderr)
    require("new:" not in result.stderr, name, head, "draws what the folder has:", result.stderr)
    result = call("run", f"{name}/model.onnx", "--inputs", f"{data}/{name}/reference.safetensors", "--interpret", "-o",
                  f"{name}/out.safetensors")
    require(result.returncode == 0 and not result.stderr, name, head, result.stderr)
    outputs = {
        key[4:]: value
        for key, value in safetensors_files.read(f"{name}/out.safetensors").items() if key.startswith("out/")
    }
    wanted = {key.split("/")[1]: value for key, value in reference.items() if key.startswith(head + "/")}
    wanted.pop("loss", None)
    require(outputs.keys() == wanted.keys(), name, head, "outputs", outputs.keys(), "wanted", wanted.keys())
    mask = reference["in/attention_mask"].astype(bool)
    for key in outputs.keys() & wanted.keys():
        error = np.abs(outputs[key] - wanted[key])
        # What stands at padding the library itself computes in several ways, but the loss of answers counts it.
        if error.shape[:2] == mask.shape and head != "qa":
            error = error[mask]
        require(error.max() < OUTPUT, name, head, key, "differs by", error.max())
        print(f"{name:16} {head:8} {key:20} {error.max():.1e}")


def compare_gradients(name, reference):
    wanted = {key[9:]: value for key, value in reference.items() if key.startswith("gradient/")}
    if not wanted:
        return
    call("import", f"{data}/{name}", *HEADS["seqcls"], "-o", f"{name}/model.onnx")
    result = call("run", f"{name}/model.onnx", "--inputs", f"{data}/{name}/reference.safetensors", "--loss",
                  "cross-entropy", "--grad", "-o", f"{name}/out.safetensors")
    require(result.returncode == 0, name, result.stderr)
    found = safetensors_files.read(f"{name}/out.safetensors")
    gradients = {key[5:]: value for key, value in found.items() if key.startswith("grad/")}
    require(abs(found["loss"] - reference["seqcls/loss"]) < LOSS, name, "loss")
    require(gradients.keys() == wanted.keys(), name, "trains", gradients.keys() ^ wanted.keys())
    largest = max(np.abs(value).max() for value in wanted.values())
    for key in gradients.keys() & wanted.keys():
        error = np.abs(gradients[key] - wanted[key]).max() / max(np.abs(wanted[key]).max(), 1e-3 * largest)
        require(error < GRADIENT, name, "gradient of", key, "differs by", error)


def compare_family(name):
    os.mkdir(name)
    reference = safetensors_files.read(f"{data}/{name}/reference.safetensors")
    for head in HEADS if name not in SAME_CODE else ["seqcls"]:
        if any(key.startswith(head + "/") for key in reference):
            compare_outputs(name, head, reference)
        else:
            result = call("import", f"{data}/{name}", *HEADS[head], "-o", f"{name}/model.onnx")
            require(result.returncode == 2 and "has no class" in result.stderr, name, head, result.stderr)
    printed(skycc, "import", f"{data}/{name}", *HEADS["tokcls"], "-o", f"{name}/model.onnx")
    compare_gradients(name, reference)
    result = call("check", f"{name}/model.onnx", "--dropout", "0.1", "--dim", "batch=2", "--dim", "seq=11")
    require(("drop" in result.stderr) == (name.split("-")[0] in OTHER_DROPOUT), name, "--dropout:", result.stderr)


def outputs_with(name, folder, **changes):
    """Of the folder with other members in config.json; a member that is Ellipsis is left out."""
    shutil.copytree(f"{data}/{name}", folder)
    with open(f"{folder}/config.json") as file:
        config = {**json.load(file), **changes}
    with open(f"{folder}/config.json", "w") as file:
        json.dump({key: value for key, value in config.items() if value is not ...}, file)
    for command in (("import", folder, *HEADS["seqcls"], "-o", f"{folder}.onnx"),
                    ("run", f"{folder}.onnx", "--inputs", f"{data}/{name}/reference.safetensors", "-o",
                     f"{folder}.out")):
        result = call(*command)
        require(result.returncode == 0, name, changes, result.stderr)
    return safetensors_files.read(f"{folder}.out")["out/logits"]


def compare_spellings():
    """Members that the library reads in several ways."""
    for name, changes, same in (
        ("modernbert", {"local_attention": ..., "sliding_window": 1}, {"local_attention": 2}),
        ("modernbert", {"rope_parameters": ..., "global_rope_theta": 50, "local_rope_theta": None},
         {"rope_parameters": ..., "global_rope_theta": 50, "local_rope_theta": 50}),
        ("deberta-v2", {"pos_att_type": "C2P"}, {"pos_att_type": ["c2p"]}),
    ):
        found, expected, former = (outputs_with(name, f"spelling-{name}-{len(os.listdir('.'))}", **config)
                                   for config in (changes, same, {}))
        require(np.array_equal(found, expected), name, changes, "gives", found, "not", expected)
        require(not np.array_equal(found, former), name, changes, "changes nothing")


def compare_untied_bias():
    """Where nothing is tied, transformers 5 writes two biases of the decoder, and adds the decoder's own."""
    tensors = safetensors_files.read(f"{data}/bert/model.safetensors")
    bias = tensors["cls.predictions.bias"]
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.bias"] = bias + np.arange(len(bias), dtype="f4")
    logits = []
    for tied in True, False:
        folder = f"tied-{tied}"
        shutil.copytree(f"{data}/bert", folder)
        with open(f"{folder}/config.json") as file:
            config = {**json.load(file), "tie_word_embeddings": tied}
        with open(f"{folder}/config.json", "w") as file:
            json.dump(config, file)
        safetensors_files.write(f"{folder}/model.safetensors", tensors)
        call("import", folder, *HEADS["mlm"], "-o", f"{folder}.onnx")
        result = call("run", f"{folder}.onnx", "--inputs", f"{data}/bert/reference.safetensors", "-o", f"{folder}.out")
        require(result.returncode == 0, folder, result.stderr)
        logits.append(safetensors_files.read(f"{folder}.out")["out/logits"])
    more = logits[1] - logits[0]
    require(np.allclose(more, np.arange(len(bias)), rtol=0, atol=1e-4), "the decoder's own bias adds", more)


def import_without_weights():
    """config.json alone: a new model by seed, the same one again, one without weights, and what is said otherwise."""
    os.mkdir("alone")
    shutil.copy(f"{data}/bert/config.json", "alone")
    result = call("import", "alone", "-o", "alone.onnx")
    require(result.returncode == 1 and "--weights seed" in result.stderr, result.returncode, result.stderr)
    for name, seed in ("a", "1"), ("b", "1"), ("c", "2"):
        result = call("import", "alone", "--head", "seqcls:2", "--weights", "seed", "--seed", seed, "-o",
                      f"alone-{name}.onnx")
        require(result.returncode == 0 and "new: all " in result.stderr, name, result.stderr)
    models = [open(f"alone-{name}.onnx", "rb").read() for name in "abc"]
    require(models[0] == models[1] != models[2], "weights drawn by seed: same", models[0] == models[1])
    require(call("import", "alone", "--weights", "none", "-o", "none.onnx").returncode == 0, "--weights none")
    result = call("check", "none.onnx", "--no-weights", "--dim", "batch=2", "--dim", "seq=8")
    require(result.returncode == 0 and os.path.getsize("none.onnx") < 99999, result.stderr)
    result = call("run", "none.onnx", "--inputs", f"{data}/bert/reference.safetensors", "-o", "none.out")
    require(result.returncode == 1, "weights from nowhere", result.returncode, result.stderr)


with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch, ThreadPoolExecutor(4) as pool:
    os.chdir(scratch)
    families = sorted(name for name in os.listdir(data) if os.path.isdir(f"{data}/{name}"))
    list(pool.map(compare_family, families[::6 if LESS else 1]))
    compare_spellings()
    compare_untied_bias()
    import_without_weights()
sys.exit(failed())
