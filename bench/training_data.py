"""What the benchmarks train on."""

import json
import struct
import sys

SEQUENCE, VOCABULARY, CLASSES = 128, 30522, 3


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

    numpy.savez(path, **{tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(model).graph.initializer})


if __name__ == "__main__":
    write_weights(*sys.argv[1:])
