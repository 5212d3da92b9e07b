#!/usr/bin/python3
"""Includes and calls follow the flow. A folder includes only itself and what stands above it in ARCHITECTURE.md's
table. The files of a folder neither include nor use each other in a circle; a header and the source of the same name
are one file here.

    tests/test_includes.py SOURCE_DIRECTORY BUILD_DIRECTORY

What a file uses is what nm says of its object: symbols that it lacks and another object of its folder defines.
"""
import os
import re
import subprocess
import sys

INCLUDE = re.compile(r'^ *# *include *"([^"]+)"', re.M)
OBJECT = re.compile(r"(?:.*/)?CMakeFiles/[^/]+\.dir/([^/]+)\.c\.o$")
# By this table of graph/ops those who apply the rules of operators reach them, and the rules call these helpers in
# turn: so a new operator changes no other file.
CALLED_BACK = {"operators"}


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
        for after in sorted(edges.get(node, ())):
            if after not in number:
                visit(after)
            if after in stack:
                low[node] = min(low[node], low[after])
        if low[node] == number[node]:
            part = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(edges):
        if node not in number:
            visit(node)
    return found


def check_includes(folders):
    """Failures, the number of includes, and for each file those of its folder that it includes."""
    failures, checked, edges = [], 0, {}
    for place, folder in enumerate(folders):
        for path in sources(folder):
            for included in INCLUDE.findall(open(path, encoding="utf-8").read()):
                checked += 1
                if "/" not in included or included.startswith("onnx/"):
                    continue  # generated, in a build directory
                if os.path.dirname(included) not in folders[:place + 1]:
                    failures.append(f"{path} includes {included}, which does not stand above it")
                if os.path.dirname(included) == folder:
                    edges.setdefault(os.path.splitext(path)[0], set()).add(os.path.splitext(included)[0])
    for module, others in edges.items():
        others.discard(module)
    listed = {path for folder in folders for path in sources(folder)}
    for top in sorted({folder.split("/")[0] for folder in folders}):
        for where, _, names in os.walk(top):
            for name in names:
                path = os.path.join(where, name)
                if name.endswith((".c", ".h")) and path not in listed:
                    failures.append(f"{path} is in a folder that ARCHITECTURE.md's table lacks")
    return failures + ["a circle of includes: " + ", ".join(circle) for circle in circles(edges)], checked


def symbols(objects):
    """For each object the symbols that it defines and those that it lacks."""
    printed = subprocess.run(["nm", "--print-file-name", "--extern-only", *objects], capture_output=True, text=True,
                             check=True)
    defined, lacking = {}, {}
    for line in printed.stdout.splitlines():
        path, _, rest = line.rpartition(":")
        kind, symbol = rest.split()[-2:]
        (lacking if kind in "Uvw" else defined).setdefault(path, set()).add(symbol)
    return defined, lacking


def uses(build, folder):
    """For each file of a folder those of the folder that it uses, with one symbol for each; and the number of
    objects."""
    objects = {}
    for library in os.scandir(os.path.join(build, folder, "CMakeFiles")):
        if library.name.endswith(".dir"):
            for entry in os.scandir(library.path):
                match = OBJECT.match(entry.path)
                if match and os.path.exists(os.path.join(folder, match[1] + ".c")):  # not of a file that is gone
                    objects[entry.path] = match[1]
    if not objects:
        return {}, 0
    defined, lacking = symbols(sorted(objects))
    owner = {symbol: path for path, names in defined.items() for symbol in names}
    edges = {}
    for path, names in lacking.items():
        for symbol in sorted(names & owner.keys() - CALLED_BACK):
            edges.setdefault(objects[path], {}).setdefault(objects[owner[symbol]], symbol)
    return edges, len(objects)


def check_uses(build, folders):
    failures, objects = [], 0
    for folder in folders:
        edges, number = uses(build, folder)
        objects += number
        for circle in circles(edges):
            inside = [
                f"{file} uses {other} ({symbol})" for file in circle for other, symbol in edges.get(file, {}).items()
                if other in circle
            ]
            text = f"{folder}: a circle of calls: {', '.join(inside)}"
            failures.append(text)
    return failures, objects


def main():
    build = os.path.abspath(sys.argv[2])
    os.chdir(sys.argv[1])
    folders = folders_of("ARCHITECTURE.md")
    failures, includes = check_includes(folders)
    failed, objects = check_uses(build, folders)
    failures += failed
    print("\n".join(failures))
    print(
        f"{includes} includes and {objects} objects of {len(folders)} folders checked, {len(failures)} against the flow"
    )
    return bool(failures) or includes < 300 or objects < 300


sys.exit(main())
