#!/usr/bin/python3
"""Runs the commands of a page: every fenced block that begins with ```sh run, one after the other, in one shell.

    tests/docs/test_pages.py PAGE.md SOURCE_DIRECTORY BUILD_DIRECTORY

The shell starts in a copy of the repository's root with a finished build, in which the demo has left a model and data;
here these are tiny. Blocks marked ```text demo quote docs/demo.txt, the demo's output: each of their lines must be in
it, in that order, and ... stands for lines that are left out. Blocks marked ```text output quote what the page's own
commands print. Commands of other blocks must name commands that skycc has.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

page, source, build = sys.argv[1], os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3])
sys.path.insert(0, os.path.join(source, "tests", "common"))
import numpy as np
import safetensors_files
from checks import failed, require

BLOCK = re.compile(r"^( *)```(\w*) ?(\w*)\n(.*?)^\1```$", re.M | re.S)
LIMIT_S = 120
ROWS = 700


def tiny_minilm(folder):
    """A Hugging Face folder as the demo fetches it, with one narrow layer."""
    os.makedirs(folder)
    hidden, inner = 32, 64
    vocabulary = os.path.join(source, "models/glue/bert-base-uncased-vocab.txt")
    shutil.copy(vocabulary, f"{folder}/vocab.txt")
    with open(vocabulary, encoding="utf-8") as file:
        pieces = len(file.read().splitlines())
    config = {
        "model_type": "bert", "vocab_size": pieces, "hidden_size": hidden, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": inner, "max_position_embeddings": 128, "type_vocab_size": 2,
        "hidden_act": "gelu", "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1
    }
    with open(f"{folder}/config.json", "w") as file:
        json.dump(config, file)
    tensors, random = {}, np.random.default_rng(1)

    def add(name, *shape):
        tensors[name] = (random.standard_normal(shape) * 0.05).astype("f4")

    def normalize(name):
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = np.ones(hidden, "f4"), np.zeros(hidden, "f4")

    def linear(name, out, into):
        add(f"{name}.weight", out, into)
        add(f"{name}.bias", out)
    add("embeddings.word_embeddings.weight", pieces, hidden)
    add("embeddings.position_embeddings.weight", 128, hidden)
    add("embeddings.token_type_embeddings.weight", 2, hidden)
    normalize("embeddings.LayerNorm")
    for layer in range(2):
        name = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            linear(f"{name}.attention.self.{part}", hidden, hidden)
        linear(f"{name}.attention.output.dense", hidden, hidden)
        normalize(f"{name}.attention.output.LayerNorm")
        linear(f"{name}.intermediate.dense", inner, hidden)
        linear(f"{name}.output.dense", hidden, inner)
        normalize(f"{name}.output.LayerNorm")
    linear("pooler.dense", hidden, hidden)
    safetensors_files.write(f"{folder}/model.safetensors", tensors)


def make_root(root):
    for name in sorted(os.listdir(source)):
        if not name.startswith((".", "build")) and name != "demo-run":
            os.symlink(os.path.join(source, name), os.path.join(root, name))
    os.symlink(build, os.path.join(root, "build"))
    tiny_minilm(f"{root}/demo-run/minilm")
    table = subprocess.run(["xz", "-dc", f"{source}/models/glue/mnli-dev-matched-num.tsv.xz"], capture_output=True,
                           check=True)
    with open(f"{root}/demo-run/mnli.tsv", "wb") as file:
        file.write(b"\n".join(table.stdout.split(b"\n")[:ROWS + 1]) + b"\n")


def run(blocks, root):
    script = [
        "set -eEuo pipefail", "exec 0<>input-that-never-ends", "trap 'echo \"line $LINENO failed: $BASH_COMMAND\"' ERR"
    ]
    lines = [f"cd '{root}'"] + [text for _, text in blocks]
    os.mkfifo(f"{root}/input-that-never-ends")  # mpiexec ends with its input
    with open(f"{root}/script", "w") as file:
        file.write("\n".join(script + lines))
    path = f"{build}/bin:{os.environ['PATH']}"
    try:
        done = subprocess.run(["bash", f"{root}/script"], cwd=root, env={**os.environ, "PATH": path, "TMPDIR": root},
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as late:
        require(False, f"{page} takes longer than {LIMIT_S} s:\n{late.stdout}")
        return ""
    require(done.returncode == 0, f"{page}: a command fails:\n{done.stdout[-4000:]}")
    return done.stdout


def check_quotes(blocks, where, printed):
    printed = [line.rstrip() for line in printed.splitlines()]
    for line_number, text in blocks:
        require(text.strip(), f"{page}:{line_number}: the block is empty")
        place = 0
        for line in text.splitlines():
            if line.strip() in ("...", ""):
                continue
            found = next((at for at in range(place, len(printed)) if printed[at] == line.rstrip()), None)
            require(found is not None, f"{page}:{line_number}: not in {where}, or not in this order: {line}")
            place = place if found is None else found + 1


def main():
    with open(os.path.join(source, page), encoding="utf-8") as file:
        content = file.read()
    ran, demo, output, commands = [], [], [], []
    for indent, language, marker, text in BLOCK.findall(content):
        line_number = content[:content.index(text)].count("\n")
        text = "\n".join(line[len(indent):] for line in text.split("\n"))
        if language == "sh":
            commands += re.findall(r"^ *(?:\$ )?(?:build/bin/)?skycc ([a-z]\w*)", text, re.M)
        if (language, marker) == ("sh", "run"):
            ran.append((line_number, text))
        elif (language, marker) == ("text", "demo"):
            demo.append((line_number, text))
        elif (language, marker) == ("text", "output"):
            output.append((line_number, text))
    known = subprocess.run([f"{build}/bin/skycc", "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"^  ([a-z]+)  ", known, re.M))
    for command in sorted(set(commands) - known):
        require(False, f"{page} names skycc {command}, which is no command")
    if demo:
        with open(f"{source}/docs/demo.txt", encoding="utf-8") as file:
            check_quotes(demo, "docs/demo.txt", file.read())
    if ran:
        with tempfile.TemporaryDirectory(prefix="skycc-test-") as root:
            make_root(root)
            check_quotes(output, "the output", run(ran, root))
    print(f"{page}: {len(ran)} blocks run, {len(demo) + len(output)} quoted, {len(commands)} commands named")


main()
sys.exit(failed())
