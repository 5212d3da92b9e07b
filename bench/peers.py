"""The PyTorch that skycc is compared with: Debian's, or that of the interpreter SKYCC_PEER_PYTHON."""

import glob
import json
import os
import shutil
import subprocess

BENCH = os.path.dirname(os.path.abspath(__file__))
BLAS = {"libblis4-openmp": "/usr/lib/*/blis-openmp", "libopenblas0-pthread": "/usr/lib/*/openblas-pthread"}
DEBIAN_PYTHON = "/usr/bin/python3"  # Debian's modules belong to Debian's interpreter
PEER_PYTHON = os.environ.get("SKYCC_PEER_PYTHON", DEBIAN_PYTHON)


def find_modules(python, modules, packages):
    """Whether the interpreter imports the modules, after saying that it does not."""
    check = [python, "-c", f"import {modules}"]
    if shutil.which(python) and subprocess.run(check, stderr=subprocess.DEVNULL).returncode == 0:
        return True
    print(f"No comparison: {python} does not import {modules} ({packages}; SKYCC_PEER_PYTHON names another).")
    return False


def find_libraries(python=PEER_PYTHON):
    """The folders of the BLAS libraries that this PyTorch may use ([None]: it brings its own).

    Prints which ones are not installed, and then returns none."""
    for interpreter, modules in ((python, "torch, numpy"), (DEBIAN_PYTHON, "onnx, numpy")):
        if not find_modules(interpreter, modules, "python3-torch, python3-onnx"):
            return []
    if python != DEBIAN_PYTHON:
        return [None]
    found = {package: glob.glob(pattern) for package, pattern in BLAS.items()}
    absent = [package for package, folders in found.items() if not folders]
    if absent:
        print(
            f"No comparison: {' and '.join(absent)} not installed, and with another BLAS PyTorch may be no fair peer."
        )
        return []
    return [folders[0] for folders in found.values()]


def write_weights(folder):
    """Of model.onnx in that folder, where run_torch's programs find them."""
    subprocess.run(
        [DEBIAN_PYTHON, f"{BENCH}/training_data.py", f"{folder}/model.onnx", f"{folder}/weights.npz"], check=True
    )


def run_torch(program, folder, arguments, threads, python=PEER_PYTHON, blas=None):
    """What the program of this folder prints about the weights and the data of `folder`; memory is never given back."""
    environment = {
        **os.environ,
        **({"LD_LIBRARY_PATH": blas} if blas else {}),
        "OMP_NUM_THREADS": str(threads),
        "MALLOC_TOP_PAD_": "536870912",
        "MALLOC_MMAP_THRESHOLD_": "1073741824",
        "MALLOC_TRIM_THRESHOLD_": "4294967296",
    }
    command = [
        python, f"{BENCH}/{program}", f"{folder}/weights.npz", f"{folder}/data.safetensors", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE).stdout)
