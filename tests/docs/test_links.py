#!/usr/bin/python3
"""What documents and comments refer to exists: linked pages and their headings, and files named with their folder.

    tests/docs/test_links.py SOURCE_DIRECTORY
"""
import os
import re
import sys

LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
FILE = re.compile(r"(?<![\w/.{*-])((?:[a-z][\w-]*/)+[\w.-]+\.(?:[ch]|md|py|sh|yaml|cmake|svg))\b(?![\w/*.{-])")
TOPS = ("base", "bench", "cluster", "cmake", "codegen", "docs", "driver", "examples", "federation", "frontend", "graph",
        "models", "partitioner", "profiler", "runtime", "tests")
SOURCES = (".c", ".h", ".py", ".sh", ".md", ".txt", ".cmake", ".in")


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"^( *)```.*?^\1```$", "", file.read(), flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", text, re.M)}


def files_of(root):
    for where, below, names in os.walk(root):
        below[:] = sorted(name for name in below if not re.match(r"\.git$|build|__pycache__$|demo-run$|corpus$", name))
        for name in sorted(names):
            yield os.path.join(where, name)


def check_page(path, text, failures):
    for target, anchor in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        there = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not os.path.exists(there):
            failures.append(f"{path} links {target}, which does not exist")
        elif anchor and there.endswith(".md") and anchor[1:] not in anchors(there):
            failures.append(f"{path} links {target}{anchor}, and there is no such heading")


def main():
    os.chdir(sys.argv[1])
    failures, pages, named = [], 0, 0
    for path in files_of("."):
        path = path[2:]
        script = "." not in os.path.basename(path) and os.path.getsize(path) < 200000 and open(path,
                                                                                               "rb").read(2) == b"#!"
        if not path.endswith(SOURCES) and not script or path.startswith("tests/data/"):
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        if path.endswith(".md"):
            pages += 1
            check_page(path, text, failures)
        for file in sorted(set(FILE.findall(text))):
            if file.split("/")[0] in TOPS and "NAME" not in file:
                named += 1
                here = os.path.join(os.path.dirname(path), file)
                if not os.path.exists(file) and not os.path.exists(here):
                    failures.append(f"{path} names {file}, which does not exist")
    print("\n".join(failures))
    print(f"{pages} pages and {named} names of files checked, {len(failures)} wrong")
    return bool(failures) or pages < 20 or named < 500


sys.exit(main())
