#!/usr/bin/python3
"""Every folder of more than ten files has a README.md that names each of its files; ARCHITECTURE.md's counts of lines
are true.

    tests/test_readmes.py SOURCE_DIRECTORY

A file is named by a word in `backquotes`: its name, its stem (a header and its source have one), or a pattern such as
`cost*.[ch]` or `{one,two}.c`. Source files need a pattern that begins with at least four letters of theirs. Folders
that hold only data need no README.
"""
import fnmatch
import os
import re
import sys

MOST_WITHOUT_README = 10
SOURCE = re.compile(r"\.([ch]|py|sh)$")


def alternatives(word):
    """`{a,b}.c` as a.c and b.c."""
    group = re.search(r"\{([^{}]*)\}", word)
    if not group:
        return [word]
    return [found for part in group[1].split(",")
            for found in alternatives(word[:group.start()] + part.strip() + word[group.end():])]


def names(word, file):
    stem = os.path.splitext(file)[0]
    if word in (file, stem) or re.sub(r"\.[ch]$", "", word) == stem:
        return True
    literal = re.match(r"[^*?\[]*", word)[0]
    loose = "*" in word and SOURCE.search(file) and len(literal) < 4
    return not loose and any(fnmatch.fnmatchcase(name, word) for name in (file, stem))


def is_source(path):
    if SOURCE.search(path):
        return True
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def main():
    os.chdir(sys.argv[1])
    failures, folders = [], 0
    for where, below, files in os.walk("."):
        below[:] = sorted(name for name in below if not re.match(r"\.|build|__pycache__$|demo-run$", name))
        folder = where[2:]
        files = sorted(
            name for name in files if not name.startswith(".") and name not in ("README.md", "CMakeLists.txt"))
        listed = [name for name in files if os.path.isfile(os.path.join(where, name))]
        if not folder or not any(is_source(os.path.join(where, name)) for name in listed):
            continue
        # The README itself and CMakeLists.txt count, but need not be named.
        counted = [name for name in os.listdir(where) if os.path.isfile(os.path.join(where, name)) and name[0] != "."]
        if len(counted) <= MOST_WITHOUT_README:
            continue
        folders += 1
        page = os.path.join(where, "README.md")
        if not os.path.exists(page):
            failures.append(f"{folder} has {len(listed)} files and no README.md")
            continue
        text = open(page, encoding="utf-8").read()
        words = [name for quoted in re.findall(r"`([^`\n]+)`", text) for word in quoted.split()
                 for name in alternatives(word.rstrip(".,;:"))]
        failures += [
            f"{page[2:]} does not name {file}" for file in listed if not any(names(word, file) for word in words)
        ]
    with open("ARCHITECTURE.md", encoding="utf-8") as page:
        counts = re.findall(r"`([\w/]+\.c)` \((\d+) lines\)", page.read())
    for path, told in counts:
        with open(path, "rb") as file:
            lines = file.read().count(b"\n")
        if lines != int(told):
            failures.append(f"ARCHITECTURE.md says that {path} has {told} lines; it has {lines}")
    if len(counts) != 3:
        failures.append(f"ARCHITECTURE.md tells the lengths of {len(counts)} files, not of three")
    print("\n".join(failures))
    print(f"{folders} folders checked, {len(failures)} files or READMEs missing")
    return bool(failures) or folders < 25


sys.exit(main())
