#!/usr/bin/python3
"""What ARCHITECTURE.md says of the main path's longest files, and of what is linked into stage programs, is true.

    tests/docs/test_architecture.py SOURCE_DIRECTORY
"""
import os
import re
import sys

os.chdir(sys.argv[1])
sys.path.insert(0, "tests/common")
from checks import failed, require

TOLERANCE = 0.25  # of a file's length: small changes need no edit of the page


def lines(path):
    with open(path, encoding="utf-8") as file:
        return len(file.readlines())


with open("ARCHITECTURE.md", encoding="utf-8") as file:
    page = file.read()
flow, table = page[:page.index("| folder |")], page[page.index("| folder |"):page.index("**Rules.**")]

path_files = sorted(set(re.findall(r"[a-z_/]+/[a-z_]+\.c\b", flow)))
said = re.findall(r"`([a-z_/]+\.c)` \((\d+) lines\)", flow)
require(len(path_files) >= 10, "the flow names", path_files)
require(len(said) == 3, "the flow names the three longest files with their lengths, not", said)
for path, length in said:
    require(abs(lines(path) - int(length)) <= TOLERANCE * lines(path), f"{path} has {lines(path)} lines, not {length}")
shortest = min(lines(path) for path, _ in said)
for path in set(path_files) - {path for path, _ in said}:
    require(
        lines(path) * (1 - TOLERANCE) <= shortest, f"{path} with {lines(path)} lines is one of the three longest files")

rows = re.findall(r"^\| `([a-z_/]+)/` \| ([a-z, ]+) \|", table, re.M)
require(
    len(rows) == len(re.findall(r"^\| `", table, re.M)),
    "a row of the table does not say what its folder is linked into")
with open("runtime/train/CMakeLists.txt", encoding="utf-8") as file:
    linked = set(re.findall(r"TARGET_OBJECTS:(\w+)>", file.read()))
marked = {folder.replace("/", "_") for folder, where in rows if where in ("both", "programs")}
require(marked == linked, "libskyrt.a has", sorted(linked), "and the table says", sorted(marked))
print(f"{len(path_files)} files on the main path, {len(rows)} folders, {len(linked)} of them in stage programs")
sys.exit(failed())
