"""What the benchmarks train on."""

import json
import struct

SEQUENCE, VOCABULARY, CLASSES = 128, 30522, 3


def write_data(path, rows):
    """A data set of pseudo-random rows, as `skycc tokenize` would write it."""
    state = 12345

    def draw(bound):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % bound

    tensors = {
        "input_ids": [draw(VOCABULARY) for _ in range(rows * SEQUENCE)],
        "attention_mask": [1] * (rows * SEQUENCE),
        "token_type_ids": [0] * (rows * SEQUENCE),
        "labels": [draw(CLASSES) for _ in range(rows)],
    }
    header, offset = {}, 0
    for name, values in tensors.items():
        size = 4 * len(values)
        shape = [rows] if name == "labels" else [rows, SEQUENCE]
        header[name] = {"dtype": "I32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(struct.pack(f"<{len(values)}i", *values))
