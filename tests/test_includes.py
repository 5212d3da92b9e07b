#!/usr/bin/python3
"""Includes follow the flow: a folder includes only itself and what stands above it in ARCHITECTURE.md's table, and no
files of a folder include each other in a circle. A header and the source of the same name are one there.

    tests/test_includes.py SOURCE_DIRECTORY
"""
import os
import re
import sys

INCLUDE = re.compile(r'^ *# *include *"([^"]+)"', re.M)


def folders_of(page):
    """The folders in the order of the table's rows; each row begins with one or more `folder/`."""
    rows = re.findall(r"^\| (`[a-z_/`, ]+`) \|", open(page, encoding="utf-8").read(), re.M)
    return [name.rstrip("/") for row in rows for name in re.findall(r"`([a-z_/]+)`", row)]


def sources(folder):
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith((".c", ".h")))


def circles(edges):
    """Strongly connected components of more than one node (Tarjan 1972)."""
    number, low, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for after in edges.get(node, ()):
            if after not in number:
                visit(after)
            if after in stack:
                low[node] = min(low[node], low[after])
        if low[node] == number[node]:
            part = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(part) > 1:
                found.append(sorted(part))

    for node in edges:
        if node not in number:
            visit(node)
    return found


def main():
    os.chdir(sys.argv[1])
    folders = folders_of("ARCHITECTURE.md")
    failures, checked, edges = [], 0, {}
    for place, folder in enumerate(folders):
        for path in sources(folder):
            text = open(path, encoding="utf-8").read()
            for included in INCLUDE.findall(text):
                checked += 1
                if "/" not in included or included.startswith("onnx/"):
                    continue  # generated, in a build directory
                if os.path.dirname(included) not in folders[:place + 1]:
                    failures.append(f"{path} includes {included}, which does not stand above it")
                if os.path.dirname(included) == folder:
                    edges.setdefault(os.path.splitext(path)[0], set()).add(os.path.splitext(included)[0])
    for module, others in edges.items():
        others.discard(module)
    failures += ["a circle: " + ", ".join(circle) for circle in circles(edges)]
    listed = {path for folder in folders for path in sources(folder)}
    for top in sorted({folder.split("/")[0] for folder in folders}):
        for where, _, names in os.walk(top):
            for name in names:
                path = os.path.join(where, name)
                if name.endswith((".c", ".h")) and path not in listed:
                    failures.append(f"{path} is in a folder that ARCHITECTURE.md's table lacks")
    print("\n".join(failures))
    print(f"{checked} includes of {len(folders)} folders checked, {len(failures)} against the flow")
    return bool(failures) or checked < 300


sys.exit(main())
