#!/usr/bin/python3
"""Passes that ask for a property of operators ask the operator's row (graph/opcodes.h) and compare with no operator.
Those that recognise a pattern, as dropout's places in BERT, may.

    test_traits.py SOURCE_DIRECTORY
"""
import glob
import os
import re
import sys

PATTERNS = {"fold.c", "fusion.c", "insert_dropout.c", "gradient_rows.c", "loss.c", "pack_nodes.c", "pack_values.c",
            "recompute.c", "skip_masked.c", "slice_loss.c", "store_frozen.c"}
NAMED = re.compile(r"(?:[=!]= *|case +)(OP_(?!NONE)\w+)")

files = [path for folder in ("passes", "analysis") for path in glob.glob(f"{sys.argv[1]}/graph/{folder}/*.c")]
named = {path: NAMED.findall(open(path, encoding="utf-8").read()) for path in files}
failures = [f"{path} compares with {', '.join(names)}: ask for a trait of graph/opcodes.h"
            for path, names in named.items() if names and os.path.basename(path) not in PATTERNS]
failures += [f"{name} compares with no operator: take it off the list" for name in PATTERNS
             if not any(names for path, names in named.items() if os.path.basename(path) == name)]
print("\n".join(failures))
sys.exit(bool(failures) or len(files) < 20)
