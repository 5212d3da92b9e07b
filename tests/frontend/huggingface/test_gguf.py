#!/usr/bin/python3
"""GGUF files of trained decoders: what they hold, read by a reader of this test, computes the same as the trained
model, by the formulas of llama.cpp's architectures; their tokenizers; and what is refused. Where the packages are
installed, the `gguf` package reads them, and llama.cpp (`xllamacpp`) loads and runs them.

    tests/frontend/huggingface/test_gguf.py SKYCC FOLDERS TOKENIZERS
"""
import glob
import json
import lzma
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
from checks import failed, printed, require, run  # noqa: E402
import safetensors_files  # noqa: E402

F16, Q8 = 2e-3, 6e-2
skycc, data, tokenizers = sys.argv[1:4]


class Gguf:
    """Metadata and tensors, decoded to float32."""
    TYPES = {0: "B", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q"}

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = file.read()
        self.at = 24
        magic, version, tensors, pairs = struct.unpack_from("<4sIQQ", self.bytes)
        require(magic == b"GGUF" and version == 3, path, magic, version)
        self.pairs, self.tensors, self.types = {}, {}, {}
        for _ in range(pairs):
            key = self.text()
            self.pairs[key] = self.value(self.number("I"))
        places = [(self.text(), [self.number("Q") for _ in range(self.number("I"))], self.number("I"), self.number("Q"))
                  for _ in range(tensors)]
        start = (self.at + 31) // 32 * 32
        for name, shape, kind, offset in places:
            require(offset % 32 == 0, name, "is not aligned")
            self.types[name] = kind
            self.tensors[name] = self.decode(kind, start + offset, int(np.prod(shape))).reshape(shape[::-1])

    def number(self, form):
        value, = struct.unpack_from("<" + form, self.bytes, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        length = self.number("Q")
        self.at += length
        return self.bytes[self.at - length:self.at].decode()

    def value(self, kind):
        if kind == 9:
            kind, count = self.number("I"), self.number("Q")
            return [self.value(kind) for _ in range(count)]
        return self.text() if kind == 8 else self.number(self.TYPES[kind])

    def decode(self, kind, at, count):
        if kind == 8:
            blocks = np.frombuffer(self.bytes, np.uint8, count // 32 * 34, at).reshape(-1, 34)
            scales = blocks[:, :2].copy().view("f2").astype("f4")
            return (blocks[:, 2:].copy().view("i1") * scales).ravel()
        return np.frombuffer(self.bytes, {0: "f4", 1: "f2"}[kind], count, at).astype("f4")


def rms_norm(x, gain, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * gain


def turn(x, file, arch):
    """Rotary positions: "llama" turns neighbouring elements, "qwen3" a head's halves. x: (seq, heads, width)."""
    width = x.shape[-1]
    factors = file.tensors.get("rope_freqs.weight", np.ones(width // 2))
    frequencies = file.pairs[arch + ".rope.freq_base"] ** (-np.arange(0, width, 2) / width) / factors
    if file.pairs.get(arch + ".rope.scaling.type") == "linear":
        frequencies /= file.pairs[arch + ".rope.scaling.factor"]
    angles = np.arange(len(x))[:, None, None] * frequencies
    first, second = (x[..., ::2], x[..., 1::2]) if arch == "llama" else np.split(x, 2, -1)
    turned = first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)
    return np.stack(turned, -1).reshape(x.shape) if arch == "llama" else np.concatenate(turned, -1)


def compute(file, ids):
    """Logits (seq, vocabulary) by llama.cpp's formulas for "llama" and "qwen3"."""
    arch, tensors = file.pairs["general.architecture"], file.tensors
    heads, shared = (file.pairs[f"{arch}.attention.{key}"] for key in ("head_count", "head_count_kv"))
    width, epsilon = (file.pairs[f"{arch}.attention.{key}"] for key in ("key_length", "layer_norm_rms_epsilon"))
    x = tensors["token_embd.weight"][ids].astype("f8")

    def linear(name, x):
        return x @ tensors[name + ".weight"].T + tensors.get(name + ".bias", 0)

    for layer in range(file.pairs[arch + ".block_count"]):
        at = f"blk.{layer}."
        y = rms_norm(x, tensors[at + "attn_norm.weight"], epsilon)
        q, k, v = (linear(at + name, y).reshape(len(ids), -1, width) for name in ("attn_q", "attn_k", "attn_v"))
        if at + "attn_q_norm.weight" in tensors:
            q, k = (rms_norm(y, tensors[f"{at}attn_{name}_norm.weight"], epsilon) for name, y in (("q", q), ("k", k)))
        q, k = turn(q, file, arch), turn(k, file, arch)
        k, v = (np.repeat(y, heads // shared, 1) for y in (k, v))
        scores = np.einsum("qhw,khw->hqk", q, k) / np.sqrt(width)
        scores = np.exp(np.where(np.tri(len(ids), dtype=bool), scores, -np.inf))
        y = np.einsum("hqk,khw->qhw", scores / scores.sum(-1, keepdims=True), v).reshape(len(ids), -1)
        x = x + linear(at + "attn_output", y)
        y = rms_norm(x, tensors[at + "ffn_norm.weight"], epsilon)
        gate = linear(at + "ffn_gate", y)
        x = x + linear(at + "ffn_down", gate / (1 + np.exp(-gate)) * linear(at + "ffn_up", y))
    x = rms_norm(x, tensors["output_norm.weight"], epsilon)
    return x @ tensors.get("output.weight", tensors["token_embd.weight"]).T


def widen(name):
    """A folder as FOLDERS/llama, 64 wide, so that rows are whole blocks."""
    random = np.random.default_rng(3)
    tensors = safetensors_files.read(f"{data}/llama/model.safetensors")
    with open(f"{data}/llama/config.json") as file:
        config = json.load(file) | {"hidden_size": 64, "head_dim": 32, "intermediate_size": 96}
    sizes = {8: 64, 4: 32, 12: 96}
    shapes = {key: [sizes.get(n, n) for n in value.shape] for key, value in tensors.items() if "score" not in key}
    os.mkdir(name)
    safetensors_files.write(f"{name}/model.safetensors",
                            {key: random.normal(0 if len(shape) > 1 else 1, 0.1, shape).astype("f4")
                             for key, shape in shapes.items()})
    with open(f"{name}/config.json", "w") as file:
        json.dump(config, file)


def write_letters():
    """A tokenizer of 30 tokens, with which llama.cpp's server runs."""
    pieces = ["<pad>", "<s>", "</s>", *map(chr, range(ord("a"), ord("z") + 1)), "\u0120"]
    added = [{"id": i, "content": piece, "special": True} for i, piece in enumerate(pieces[:3])]
    os.mkdir("letters")
    with open("letters/tokenizer.json", "w") as file:
        json.dump({"added_tokens": added, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                   "model": {"type": "BPE", "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": []}}, file)
    with open("letters/tokenizer_config.json", "w") as file:
        json.dump({"model_max_length": 10**30}, file)


def prepare(name, folder):
    """Imported, and trained by one step that changes it."""
    inputs = f"{data}/{name if os.path.isdir(f'{data}/{name}') else 'llama'}/reference.safetensors"
    printed(skycc, "import", folder, "--head", "lm", "-o", f"{name}.onnx")
    run(skycc, "run", f"{name}.onnx", "--inputs", inputs, "--loss", "cross-entropy", "--train", "1", "--optimizer",
        "sgd:lr=0.1", "--interpret", "-o", f"{name}.trained")
    return inputs


def check_logits(name, folder, types):
    inputs = prepare(name, folder)
    source = [f"{name}.onnx", f"{name}.trained", "--source", "letters", "--gguf"]
    require(not printed(skycc, "export", *source, f"{name}.f16", "-o", f"{name}.trained.onnx"), name, "has a warning")
    run(skycc, "run", f"{name}.trained.onnx", "--inputs", inputs, "--interpret", "-o", f"{name}.out")
    wanted = safetensors_files.read(f"{name}.out")["out/logits"][0]
    ids = safetensors_files.read(inputs)["in/input_ids"][0]
    run(skycc, "export", *source, f"{name}.q8", "--gguf-type", "q8_0")
    for kind, tolerance in (("f16", F16), ("q8", Q8)):
        file = Gguf(f"{name}.{kind}")
        error = np.abs(compute(file, ids) - wanted).max()
        require(error < tolerance, name, kind, "differs by", error)
        found = {file.types[key] for key in file.tensors if file.tensors[key].ndim == 2}
        require(found == types[kind], name, kind, found)
        require(all(file.types[key] == 0 for key in file.tensors if file.tensors[key].ndim == 1), "vectors are f32")
        print(f"{name:10} {kind} {error:.1e}")
        compare_with_llama_cpp(f"{name}.{kind}", ids, wanted)


def compare_with_llama_cpp(path, ids, wanted):
    try:
        import gguf
        import xllamacpp
    except ImportError as error:
        print("NOT compared with llama.cpp:", error)
        return
    found = gguf.GGUFReader(path)
    require({tensor.name for tensor in found.tensors} == set(Gguf(path).tensors), path, "reads otherwise")
    given = xllamacpp.CommonParams()
    given.model.path, given.n_ctx, given.warmup, given.fit_params = path, 256, False, False
    given.verbosity = -1
    reply = xllamacpp.Server(given).handle_completions(
        {"prompt": [int(token) for token in ids], "n_predict": 1, "n_probs": wanted.shape[1], "top_k": 0})
    scores = wanted[-1] - np.log(np.exp(wanted[-1]).sum())
    error = max(abs(one["logprob"] - scores[one["id"]])
                for one in reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"])
    require(error < (Q8 if path.endswith("q8") else 5e-3), path, "llama.cpp differs by", error)
    print(f"{path:14} llama.cpp {error:.1e}")


def check_layouts():
    """Other architectures: orders of rows, gains, windows; each as its names say."""
    def export(name, *warnings):
        prepare(name, f"{data}/{name}")
        message = run(skycc, "export", f"{name}.onnx", f"{name}.trained", "--gguf", f"{name}.gguf").stderr
        require(all(part in message for part in (*warnings, "no tokenizer.json")), name, message)
        return Gguf(f"{name}.gguf"), safetensors_files.read(f"{name}.trained")

    file, trained = export("gpt_neox", "GELU")
    rows = trained["param/gpt_neox.layers.0.attention.query_key_value.bias"].reshape(2, 3, 4).transpose(1, 0, 2)
    require(np.array_equal(file.tensors["blk.0.attn_qkv.bias"], rows.ravel()), "parts of gpt_neox")
    require(file.pairs["gptneox.rope.dimension_count"] == 2, file.pairs)
    require(file.pairs["tokenizer.ggml.model"] == "no_vocab", file.pairs)
    file, trained = export("gemma3")
    require(np.allclose(file.tensors["output_norm.weight"], trained["param/model.norm.weight"] + 1), "gains of gemma3")
    require(file.pairs["gemma3.attention.sliding_window"] == 4 and file.pairs["gemma3.rope.freq_base_swa"] == 1e4
            and file.pairs["gemma3.attention.sliding_window_pattern"] == 2, file.pairs)
    file, _ = export("phi3", "windows of 5 tokens")
    require(file.pairs["phi3.context_length"] == 5, file.pairs)
    for name, part in (("gpt2", "scales scores"), ("smollm3", "every fourth layer"), ("gemma2", "scales scores")):
        prepare(name, f"{data}/{name}")
        refuse(3, part, name)


def refuse(code, part, name, *options):
    outputs = ("--gguf", "refused", "-o", "refused.onnx", "--folder", "refused-folder")
    done = subprocess.run([skycc, "export", f"{name}.onnx", f"{name}.trained", *outputs, *options],
                          capture_output=True, text=True)
    require(done.returncode == code and part in done.stderr, name, done.returncode, done.stderr)
    require(not glob.glob("refused*"), name, "leaves", glob.glob("refused*"))


def check_tokenizers():
    """What llama.cpp needs to read texts; that it gives the same ids was tried with its own program."""
    with lzma.open(f"{tokenizers}/chats.json.xz", "rt") as file:
        made = json.load(file)["tokenizers"]
    wanted = {"qwen": ("gpt2", "qwen2", "NFC"), "llama3": ("gpt2", "llama-bpe", ""), "gemma": ("llama", "default", ""),
              "mistral": ("llama", "default", "blank"), "llama2": ("llama", "default", "")}
    with open(f"{data}/llama/config.json") as file:
        config = json.load(file)
    tensors = safetensors_files.read(f"{data}/llama/model.safetensors")
    size = max(len(one["model"]["vocab"]) + len(one["added_tokens"]) for one in made.values())
    for key in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[key] = np.random.default_rng(4).normal(0, 0.1, (size, tensors[key].shape[1])).astype("f4")
    os.mkdir("text")
    safetensors_files.write("text/model.safetensors", {key: tensors[key] for key in tensors if "score" not in key})
    with open("text/config.json", "w") as file:
        json.dump(config | {"vocab_size": size, "eos_token_id": [2, 5]}, file)
    prepare("text", "text")
    for name, (model, pre, warning) in wanted.items():
        os.mkdir(name + "-tok")
        tokenizer = made[name]
        with open(name + "-tok/tokenizer.json", "w") as file:
            json.dump(tokenizer, file)
        with open(name + "-tok/tokenizer_config.json", "w") as file:
            end = tokenizer["added_tokens"][1]
            json.dump({"chat_template": "{{ x }}", "eos_token": {"content": end["content"]}}, file)
        message = run(skycc, "export", "text.onnx", "text.trained", "--gguf", "text.gguf", "--source",
                      name + "-tok").stderr
        require(warning in message and bool(warning) == ("reads some texts differently" in message), name, message)
        pairs = Gguf("text.gguf").pairs
        require((pairs["tokenizer.ggml.model"], pairs["tokenizer.ggml.pre"]) == (model, pre), name, pairs)
        tokens = pairs["tokenizer.ggml.tokens"]
        require(len(tokens) == size, name, len(tokens))
        require(all(tokens[i] == piece for piece, i in tokenizer["model"]["vocab"].items()), name, tokens)
        require(pairs["tokenizer.ggml.eos_token_id"] == end["id"], name, "the end")
        require(pairs["tokenizer.ggml.token_type"][end["id"]] == 3, name, "the type of the end")
        require(pairs["tokenizer.chat_template"] == "{{ x }}" and "tokenizer.ggml.eot_token_id" in pairs, name)
        require(pairs["tokenizer.ggml.add_bos_token"] == (name != "qwen"), name, "the start")
        merges = tokenizer["model"]["merges"]
        if model == "gpt2":
            texts = [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]
            require(pairs["tokenizer.ggml.merges"] == texts, name, "merges")
            continue
        joined = ["".join(m.split(" ") if isinstance(m, str) else m) for m in merges]
        order = [pairs["tokenizer.ggml.scores"][tokens.index(piece)] for piece in joined]
        require(order == sorted(order, reverse=True) and order[-1] < order[0] < 0, name, "scores")
    for change, part in (({"pre_tokenizer": {"type": "Whitespace"}}, "Whitespace"),
                         ({"model": {**made["qwen"]["model"], "ignore_merges": True}}, "a way of its own"),
                         ({"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 0}}, "Unigram")):
        with open("qwen-tok/tokenizer.json", "w") as file:
            json.dump({**made["qwen"], **change}, file)
        refuse(3, part, "text", "--source", "qwen-tok")
    with open("qwen-tok/tokenizer.json", "w") as file:
        json.dump(made["qwen"], file)
    refuse(3, "beyond the model's vocabulary", "llama3", "--source", "qwen-tok")
    done = subprocess.run([skycc, "export", "text.onnx", "text.trained", "-o", "x.onnx", "--gguf-type", "f16"],
                          capture_output=True, text=True)
    require(done.returncode == 2 and "--gguf" in done.stderr, done)


with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch:
    os.chdir(scratch)
    write_letters()
    widen("wide")
    check_logits("wide", "wide", {"f16": {1}, "q8": {8}})
    for decoder in ("llama3", "linear", "qwen3"):
        check_logits(decoder, f"{data}/{decoder}", {"f16": {1}, "q8": {1}})
    check_layouts()
    check_tokenizers()
    os.chdir("/")
sys.exit(failed())
