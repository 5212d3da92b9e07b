#!/usr/bin/python3
"""Decoders of every kind, as `skycc import` reads them: logits, ten losses, packed rows, and folders that are written
again, compared with the Hugging Face library's results (tests/data/decoders, whose make_decoders.py says what lies
there), and what is refused.

    tests/frontend/huggingface/test_decoders.py SKYCC FOLDERS
"""
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
from checks import failed, printed, require, run  # noqa: E402
import safetensors_files  # noqa: E402

LOGITS, LOSS = 1e-5, 1e-6
COMPILED = {"llama", "gemma3", "gpt2"}  # others by the interpreter, which is faster at this size
CLASSIFIERS = {"llama", "gpt2"}
EXPORTED = {"gemma2", "gpt2", "qwen3"}
PACKED = {"gemma3": "lm", "phi3": "seqcls:3"}
skycc, data = sys.argv[1:3]


def outputs(name, head, *options):
    """Of the model in NAME/HEAD.onnx, imported first; with losses if it is trained."""
    model = f"{name}/{head[:2]}.onnx"
    message = printed(skycc, "import", f"{data}/{name}", "--head", head, "-o", model)
    require("new:" not in message, name, head, "draws what the folder has:", message)
    how = [] if name in COMPILED else ["--interpret"]
    message = printed(skycc, "run", model, "--inputs", f"{data}/{name}/reference.safetensors", *how, *options, "-o",
                      f"{name}/out.safetensors")
    require(not message, name, head, message)
    return safetensors_files.read(f"{name}/out.safetensors")


def compare(name, what, found, wanted, tolerance):
    error = np.abs(found - wanted).max()
    require(error < tolerance, name, what, "differs by", error)
    print(f"{name:16} {what:10} {error:.1e}")


def check_family(name):
    os.mkdir(name)
    reference = safetensors_files.read(f"{data}/{name}/reference.safetensors")
    mask = reference["in/attention_mask"].astype(bool)
    found = outputs(name, "lm", "--loss", "cross-entropy,shift", "--train", "10", "--optimizer",
                    "adamw:lr=1e-3,weight_decay=0.01")
    compare(name, "logits", found["out/logits"][mask], reference["lm/logits"][mask], LOGITS)
    compare(name, "losses", found["train/loss"], reference["lm/losses"], LOSS)
    if name in EXPORTED:
        export(name)
    if name in CLASSIFIERS:
        compare(name, "seqcls", outputs(name, "seqcls:3")["out/logits"], reference["seqcls/logits"], LOGITS)


def export(name):
    """A folder of the trained weights, which gives the same graph again."""
    printed(skycc, "export", f"{name}/lm.onnx", f"{name}/out.safetensors", "-o", f"{name}/trained.onnx", "--folder",
            f"{name}/folder")
    message = printed(skycc, "import", f"{name}/folder", "-o", f"{name}/again.onnx")
    require("new:" not in message and "not used:" not in message and "head: lm" in message, name, message)
    results = []
    for model in ("trained", "again"):
        printed(skycc, "run", f"{name}/{model}.onnx", "--inputs", f"{data}/{name}/reference.safetensors", "--interpret",
                "-o", f"{name}/{model}.out")
        results.append(safetensors_files.read(f"{name}/{model}.out")["out/logits"])
    require(np.array_equal(*results), name, "is another model as a folder")
    with open(f"{name}/folder/config.json") as new, open(f"{data}/{name}/config.json") as old:
        require(json.load(new)["architectures"] == json.load(old)["architectures"], name, "has another class")


def check_packed(name, head):
    """Rows of several lengths in shared lines give the losses of padded ones, in training and in evaluation."""
    random, rows, longest = np.random.default_rng(3), 24, 16
    lengths = random.integers(3, longest + 1, rows)
    padding = np.arange(longest) >= lengths[:, None]
    ids = np.where(padding, 0, random.integers(5, 31, (rows, longest)))
    labels = np.where(padding, -100, ids) if head == "lm" else random.integers(0, 3, rows)
    tensors = {"input_ids": ids, "attention_mask": ~padding, "labels": labels}
    safetensors_files.write(f"{name}/data.safetensors",
                            {key: np.ascontiguousarray(value.astype("i4")) for key, value in tensors.items()})
    with open(f"{name}/one.yaml", "w") as file:
        file.write("devices:\n  - {name: d, threads: 1, memory: 1GiB}\n")
    logs = []
    printed(skycc, "import", f"{data}/{name}", "--head", head, "-o", f"{name}/packed.onnx")
    for way in ("16", "auto:16"):
        given = ("--lengths", f"{name}/data.safetensors") if "auto" in way else ()
        run(skycc, "compile", f"{name}/packed.onnx", "-d", f"{name}/one.yaml", "-o", f"{name}/{way}", "--dim",
            "batch=4", "--dim", f"seq={way}", "--microbatches", "2", *given)
        run(f"{name}/{way}/train", "--data", f"{name}/data.safetensors", "--eval-data", f"{name}/data.safetensors",
            "--steps", "3", "--log", f"{name}/{way}.csv", "--quiet")
        with open(f"{name}/{way}.csv") as file:
            logs.append(list(csv.DictReader(file)))
    for key in ("loss", "eval_loss", "eval_accuracy"):
        values = [[float(row[key]) for row in log if row[key]] for log in logs]
        require(values[0] and np.allclose(*values, rtol=0, atol=1e-5), name, key, "packed and padded:", values)
    require(int(logs[1][0]["tokens"]) < int(logs[0][0]["tokens"]), name, "packs nothing", logs[1][0])


def as_bf16(array):
    """The upper halves of float32 numbers, to the nearest even."""
    bits = array.view("u4")
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2")


def write_shards(folder, tensors):
    """As save_pretrained writes large models: bf16, in two files."""
    names, shards = sorted(tensors), {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
        for name in part:
            blob = as_bf16(tensors[name]).tobytes()
            header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [offset,
                                                                                              offset + len(blob)]}
            offset += len(blob)
            blobs.append(blob)
            shards[name] = f"model-0000{number}-of-00002.safetensors"
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(f"{folder}/model-0000{number}-of-00002.safetensors", "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + b"".join(blobs))
    with open(f"{folder}/model.safetensors.index.json", "w") as file:
        json.dump({"weight_map": shards}, file)


def check_shards():
    """A model of bf16 in shards: inside its folder the graph refers to them, elsewhere it holds copies of 16 bits; both
    compute as one of float32 with the same values, and trained weights become float32."""
    tensors = safetensors_files.read(f"{data}/qwen3/model.safetensors")
    os.mkdir("shards")
    shutil.copytree(f"{data}/qwen3", "rounded")
    shutil.copy(f"{data}/qwen3/config.json", "shards")
    write_shards("shards", tensors)
    safetensors_files.write("rounded/model.safetensors",
                            {name: (as_bf16(array).astype("u4") << 16).view("f4") for name, array in tensors.items()})
    results = {}
    for folder, model in (("rounded", "rounded.onnx"), ("shards", "shards/model.onnx"), ("shards", "copied.onnx")):
        message = printed(skycc, "import", folder, "--head", "lm", "-o", model)
        require(("stay in the folder" in message) == ("/" in model), model, message)
        require(("of 16 bits" in message) == (folder == "shards"), model, message)
        message = printed(skycc, "run", model, "--inputs", f"{data}/qwen3/reference.safetensors", "--interpret",
                          "--train", "2", "-o", f"{model}.out")
        require(not message, model, message)
        results[model] = safetensors_files.read(f"{model}.out")
        for key, value in results["rounded.onnx"].items():
            require(np.array_equal(results[model][key], value), model, key, "differs from float32 of the same values")
    with open("shards/model.onnx", "rb") as small, open("copied.onnx", "rb") as large:
        require(b"model-00002-of-00002" in small.read() and b"model-00002-of-00002" not in large.read(), "references")
    printed(skycc, "export", "shards/model.onnx", "shards/model.onnx.out", "--folder", "exported")
    trained = safetensors_files.read("exported/model.safetensors")
    require(all(np.array_equal(trained[key[6:]], value) for key, value in results["shards/model.onnx"].items()
                if key.startswith("param/")), "the exported folder has other weights")
    os.remove("shards/model-00002-of-00002.safetensors")
    run(skycc, "import", "shards", "--head", "lm", "-o", "refused.onnx", code=1)


def check_padding_row():
    """Looking up the padding token trains nothing where the library's table has a padding_idx, and pad_token_id is
    given."""
    ids = np.array([[5, 0, 6, 7], [8, 0, 0, 9]], "i4")
    safetensors_files.write("padding.safetensors", {"input_ids": ids, "attention_mask": np.ones_like(ids),
                                                    "labels": ids})
    shutil.copytree(f"{data}/llama", "unpadded")
    with open("unpadded/config.json") as file:
        config = json.load(file)
    del config["pad_token_id"]
    with open("unpadded/config.json", "w") as file:
        json.dump(config, file)
    for folder, table, trains in ((f"{data}/llama", "model.embed_tokens.weight", False),
                                  (f"{data}/gpt_neox", "gpt_neox.embed_in.weight", True),
                                  ("unpadded", "model.embed_tokens.weight", True)):
        printed(skycc, "import", folder, "--head", "lm", "-o", "padding.onnx")
        printed(skycc, "run", "padding.onnx", "--inputs", "padding.safetensors", "--interpret", "--loss",
                "cross-entropy,shift", "--grad", "-o", "padding.out")
        rows = np.abs(safetensors_files.read("padding.out")[f"grad/{table}"]).max(1)
        require((rows[0] > 0) == trains and rows[5] > 0, folder, "trains rows", np.nonzero(rows))


def check_refusals():
    def refuse(name, code, wanted, head="lm", **changes):
        shutil.copytree(f"{data}/{name}", "refused")
        with open("refused/config.json") as file:
            config = {**json.load(file), **changes}
        with open("refused/config.json", "w") as file:
            json.dump(config, file)
        result = subprocess.run([skycc, "import", "refused", "--head", head, "-o", "refused.onnx"], capture_output=True,
                                text=True)
        require(result.returncode == code and wanted in result.stderr, name, changes, result.returncode, result.stderr)
        require(not os.path.exists("refused.onnx"), name, changes, "leaves a file")
        shutil.rmtree("refused")

    refuse("llama", 3, "error: logit_scale: skycc does not know", logit_scale=2.0)
    refuse("llama", 3, "error: rope_parameters.rope_type: ", rope_parameters={"rope_type": "mrope", "rope_theta": 1e4})
    refuse("llama", 3, "rope_parameters.beta_fast",
           rope_parameters={"rope_type": "linear", "factor": 2, "beta_fast": 1})
    refuse("qwen2", 3, "partial_rotary_factor: must be 1", partial_rotary_factor=0.5)
    refuse("llama", 3, "rotary_pct: skycc does not know", rotary_pct=0.5)
    refuse("gpt_neox", 3, "partial_rotary_factor: skycc does not know", partial_rotary_factor=0.5)
    refuse("../huggingface/esm", 3, "rope_parameters: transformers does not stretch", head="seqcls:2",
           rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4})
    refuse("llama", 1, "rope_parameters.factor", rope_parameters={"rope_type": "linear"})
    refuse("longrope", 1, "short_factor", rope_parameters={"rope_type": "longrope", "short_factor": [1.0]})
    refuse("llama", 3, "quantization_config", quantization_config={"bits": 4})
    refuse("llama", 1, "num_key_value_heads", num_key_value_heads=3)
    refuse("gemma2", 3, "use_bidirectional_attention", use_bidirectional_attention=True)
    refuse("gemma2", 3, "sliding_window_pattern: skycc does not know", sliding_window_pattern=1)
    refuse("gemma3", 3, "attn_logit_softcapping", attn_logit_softcapping=50.0)
    refuse("modernbert", 3, "rope_theta: skycc does not know", rope_theta=500.0)
    refuse("gemma3", 3, "rope_scaling.type", rope_parameters=None, rope_scaling={"type": "linear", "factor": 2.0})
    refuse("qwen2", 3, "layer_types", layer_types=["full_attention", "chunked_attention"])
    refuse("llama", 3, "'mixtral', a mixture of experts", model_type="mixtral", num_local_experts=8)
    refuse("gemma3", 3, "'gemma3', a model of images and texts", model_type="gemma3", vision_config={})
    refuse("llama", 2, "give --head lm", head="mlm")
    refuse("../huggingface/mpnet", 3, "relative_attention_num_buckets: must be 32", head="seqcls:2",
           relative_attention_num_buckets=64)
    refuse("../huggingface/bert", 2, "--head lm is for decoders")
    refuse("llama", 1, "'model.embed_tokens.weight'", vocab_size=32)


with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch, ThreadPoolExecutor(2) as pool:
    os.chdir(scratch)
    names = sorted(name for name in os.listdir(data) if os.path.isdir(f"{data}/{name}"))
    list(pool.map(check_family, names))
    list(pool.map(check_packed, PACKED, PACKED.values()))
    check_shards()
    check_padding_row()
    check_refusals()
sys.exit(failed())
