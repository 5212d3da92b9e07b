"""What the benchmarks train on, and what they run on."""

import json
import lzma
import os
import random
import struct
import subprocess
import sys

SEQUENCE, VOCABULARY, CLASSES = 128, 30522, 3
GLUE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models", "glue")


def write_data(path, rows):
    """A data set of pseudo-random rows, as `skycc tokenize` would write it."""
    write_rows(path, [SEQUENCE] * rows, SEQUENCE)


def write_rows(path, lengths, longest):
    """The same of rows of these lengths, padded to the longest."""
    state = 12345

    def draw(bound):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % bound

    rows = len(lengths)
    tensors = {
        "input_ids": [draw(VOCABULARY) if i < length else 0 for length in lengths for i in range(longest)],
        "attention_mask": [int(i < length) for length in lengths for i in range(longest)],
        "token_type_ids": [0] * (rows * longest),
        "labels": [draw(CLASSES) for _ in range(rows)],
    }
    header, offset = {}, 0
    for name, values in tensors.items():
        size = 4 * len(values)
        shape = [rows] if name == "labels" else [rows, longest]
        header[name] = {"dtype": "I32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(struct.pack(f"<{len(values)}i", *values))


def write_weights(model, path):
    """The initializers of an ONNX file, as numpy.load reads them: not every interpreter that has PyTorch has onnx."""
    import numpy
    import onnx
    import onnx.numpy_helper

    numpy.savez(
        path, **{tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(model).graph.initializer}
    )


def write_mnli(skycc, path, longest):
    """The sentence pairs of models/glue in a drawn order."""
    with lzma.open(f"{GLUE}/mnli-dev-matched-num.tsv.xz") as file:
        header, *lines = file.read().splitlines(keepends=True)
    random.Random(1).shuffle(lines)
    command = [skycc, "tokenize", "--vocab", f"{GLUE}/bert-base-uncased-vocab.txt", "--text", "sentence1,sentence2"]
    command += ["--label", "gold_label", "--max-length", str(longest), "-q", "-", "-o", path]
    subprocess.run(command, check=True, input=header + b"".join(lines))


def processor():
    with open("/proc/cpuinfo") as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    facts = {name.strip(): value.strip() for name, value in lines.items()}
    flags = [flag for flag in ("avx512f", "avx512_bf16", "amx_bf16") if flag in facts.get("flags", "").split()]
    load = f"load {os.getloadavg()[0]:.1f}"
    model = f"family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}"
    name = facts.get("model name", "an unnamed processor")
    return f"{name} ({model}; {', '.join(flags) or 'no AVX-512'}), {os.cpu_count()} cores, {load}"


if __name__ == "__main__":
    write_weights(*sys.argv[1:])
