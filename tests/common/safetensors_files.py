"""Safetensors files as dictionaries of numpy arrays."""
import json

import numpy as np

TYPES = {"I16": "<i2", "F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "BOOL": "?",
         "U8": "u1"}


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    size = int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            data = np.frombuffer(content[8 + size + begin : 8 + size + end], TYPES[entry["dtype"]])
            tensors[name] = data.reshape(entry["shape"])
    return tensors


def metadata(path):
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(size)).get("__metadata__", {})


def write(path, tensors, metadata=None):
    names = {np.dtype(text): name for name, text in TYPES.items()}
    header, offset, blobs = {"__metadata__": metadata or {}}, 0, []
    for name, array in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        array = np.asarray(array, order="C")
        header[name] = {
            "dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]
        }
        offset += array.nbytes
        blobs.append(array.tobytes())
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(blobs))
