#!/usr/bin/python3
"""The tensors that differ most between two safetensors files, by their largest difference relative to their largest
element.

    tests/common/compare.py ONE.safetensors OTHER.safetensors
"""
import sys

import numpy as np

from safetensors_files import read

one, other = ({name: array.astype(float) for name, array in read(path).items()} for path in sys.argv[1:3])
for name in sorted(one.keys() ^ other.keys()):
    print("only in one  ", name)
for name in one.keys() & other.keys():
    largest = np.abs(one[name]).max(initial=0)
    one[name] = np.abs(one[name] - other[name]).max(initial=0) / largest if largest else 0.0
for error, name in sorted(((one[name], name) for name in one.keys() & other.keys()), reverse=True):
    print(f"{error:12.1e}  {name}")
