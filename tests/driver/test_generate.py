#!/usr/bin/python3
"""skycc predict --prompt: a model whose next token depends on the last one alone is continued as its table says, and
decoders that keep keys and values as they are continued without."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
from onnx import helper, load, numpy_helper, save, TensorProto

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import failed, require  # noqa: E402
import safetensors_files  # noqa: E402

SKYCC, DECODERS = sys.argv[1:]
VOCABULARY, END, POSITIONS = 257, 256, 99


def byte_characters():
    """GPT-2's characters of the bytes: printable ones themselves, the others from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b if b in printable else 256 + others.index(b)) for b in range(256)}


def write_tokenizer(vocabulary=None):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocabulary = vocabulary or {character: b for b, character in byte_characters().items()} | {"<end>": END}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
                 "added_tokens": [{"id": vocabulary["<end>"], "content": "<end>", "single_word": False, "lstrip": False,
                                   "rstrip": False, "normalized": False, "special": True}],
                 "pre_tokenizer": byte_level, "decoder": byte_level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                           "vocab": vocabulary, "merges": []}}
    with open("tokenizer.json", "w") as file:
        json.dump(tokenizer, file)


def write_model(following, name="model.onnx", batch="batch"):
    """`following`: of some tokens the scores of those that may follow."""
    table = np.zeros((VOCABULARY, VOCABULARY), "f4")
    for token, scores in following.items():
        for after, score in scores.items():
            table[token, after] = score
    graph = helper.make_graph([helper.make_node("Gather", ["table", "input_ids"], ["logits"])], "model",
                              [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [batch, "seq"])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, "seq", VOCABULARY])],
                              [numpy_helper.from_array(table, "table")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 8,
              "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": VOCABULARY,
              "rms_norm_eps": 1e-6, "max_position_embeddings": POSITIONS, "hidden_act": "silu",
              "eos_token_id": [END, 300], "tie_word_embeddings": False}
    helper.set_model_props(model, {"huggingface.config": json.dumps(config)})
    save(model, name)


def predict(*options, code=0, model="model.onnx"):
    done = subprocess.run([SKYCC, "predict", model, "--tokenizer", "tokenizer.json", *options], capture_output=True)
    require(done.returncode == code, f"{options}: exit {done.returncode}\n{done.stderr.decode()}")
    return done.stdout.decode(errors="replace") if code == 0 else done.stderr.decode()


def check():
    chain = "x é→\ny"
    bytes_of = chain.encode()
    write_model({a: {b: 9} for a, b in zip(bytes_of, bytes_of[1:])})
    found = predict("--prompt", "x", "--tokens", str(len(bytes_of) - 1))
    require(found == chain + "\n", f"the chain: {found!r}")
    write_model({a: {b: 9} for a, b in zip(bytes_of, [*bytes_of[1:], END])})
    require(predict("--prompt", "x") == chain + "\n", "the end")
    require(predict("--prompt", "x", "--tokens", "3") == "x é\n", "three tokens")

    write_model({ord("a"): {ord("a"): 3, ord("b"): 3, ord("c"): 0.5}, ord("b"): {ord("a"): 3, ord("b"): 3},
                 ord("c"): {ord("c"): 3}})
    draw = ["--prompt", "a", "--tokens", "60", "--temperature"]
    narrow = [predict(*draw, "0.5", "--top-p", "0.5", "--seed", str(seed)) for seed in (1, 1, 2)]
    require(narrow[0] == narrow[1] and narrow[0] != narrow[2], "a seed repeats")
    require(set(narrow[2].strip()) == {"a", "b"} and 15 < narrow[2].count("a") < 46,
            "of two equal ones both are drawn, and nothing else")
    require(len(set(predict(*draw, "50"))) > 20, "a high temperature draws anything")

    evil = "x\x1b[31m\x07\x7f\u009b\u202e\ty".encode()
    write_model({ord("a"): {ord("a"): 9}} | {a: {b: 9} for a, b in zip(evil, [*evil[1:], END])})
    require(predict("--prompt", "x") == "x\\x1b[31m\\x07\\x7f\\u009b\\u202e\ty\n", "controls reach the terminal")
    predict("--prompt", "x", "-o", "text")
    with open("text", "rb") as file:
        require(file.read() == evil + b"\n", "a file has the text as it is")
    require(len(predict("--prompt", "aaaaa", "--tokens", "200")) == POSITIONS + 1, "ends at the last position")
    require(f"takes {POSITIONS} tokens" in predict("--prompt", "a" * POSITIONS, code=1), "a prompt without room")

    for options, part in ((["--prompt", ""], "no tokens"), (["--prompt", "a", "--text", "a"], "--prompt goes without"),
                          (["--prompt", "a", "--top-p", "0.5"], "--temperature"),
                          (["--text", "a", "--temperature", "1"], "for --prompt")):
        said = predict(*options, code=2)
        require(part in said, f"{options}: {said}")
    write_model({}, "two.onnx", 2)
    require("2 rows" in predict("--prompt", "a", code=1, model="two.onnx"), "two rows")


def check_kept(name, *options):
    """A decoder, which keeps keys and values, and the same without the property by which skycc knows it as its own."""
    subprocess.run([SKYCC, "import", f"{DECODERS}/{name}", "--head", "lm", "-q", "-o", "kept.onnx"], check=True)
    model = load("kept.onnx")
    model.metadata_props.remove(next(one for one in model.metadata_props if one.key == "skycc.parameters"))
    save(model, "again.onnx")
    texts = []
    for file, way in (("kept.onnx", "after kept keys"), ("again.onnx", "the whole text again")):
        done = subprocess.run([SKYCC, "predict", file, "--tokenizer", "tokenizer.json", "--prompt", "abcd", "--tokens",
                               "12", "-v", *options], capture_output=True, text=True)
        require(done.returncode == 0 and way in done.stderr, name, file, done.stderr)
        texts.append(done.stdout)
    require(texts[0] == texts[1] and len(texts[0]) == len("abcd") + 12 + 1, name, *texts)


def check_scaled():
    """A text that grows past 8 tokens, from where on LongRoPE has other positions for all: the text is that of
    transformers' generate(), of a model with large scores."""
    shutil.copytree(f"{DECODERS}/longrope", "long")
    tensors = safetensors_files.read("long/model.safetensors")
    safetensors_files.write("long/model.safetensors", {name: value * (4 if "self_attn" in name else 1)
                                                       for name, value in tensors.items()})
    with open("long/config.json") as file:
        config = json.load(file)
    config["rope_parameters"] |= {"short_factor": [1.0, 1.0], "long_factor": [0.2, 0.3]}
    with open("long/config.json", "w") as file:
        json.dump(config, file)
    subprocess.run([SKYCC, "import", "long", "--head", "lm", "-q", "-o", "long.onnx"], check=True)
    found = predict("--prompt", "qrst", "--tokens", "15", model="long.onnx")
    require(found == "qrstl   ujvjvs hae\n", "longrope", found)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    write_tokenizer()
    check()
    write_tokenizer({chr(ord("a") + i): i + 3 for i in range(26)} | {"\u0120": 29, "<end>": 30})
    check_kept("gemma3")
    check_scaled()
    check_kept("gpt2", "--temperature", "1", "--top-p", "0.9", "--seed", "3")
    os.chdir("/")
sys.exit(failed())
