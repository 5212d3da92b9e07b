#!/usr/bin/python3
"""test_opencl_training.py SKYCC: pipelines with a stage on an OpenCL device train as those on CPUs.

A BERT of one block on one, two and four devices, of which one is reached by OpenCL (PoCL, where there is no GPU):
packed rows with dropout and an evaluation, a parameter that two stages share, low-rank branches. Losses are those of
CPUs within 1e-5. A checkpoint of either kind of device resumes on the other. What cannot run is refused.
"""
import csv
import ctypes
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "common"))
import safetensors_files  # noqa: E402

ROWS, SEQUENCE, SKIPPED = 24, 16, 77
FIXED = ["--dim", "batch=12", "--dim", "seq=16", "--microbatches", "2"]


def devices(count, kind):
    """The second of several is of that kind, or the only one."""
    lines = ["  - {name: d%d%s}\n" % (d, kind if d == min(1, count - 1) else "") for d in range(count)]
    return "devices:\n" + "".join(lines)


def has_device():
    try:
        loader = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        return False
    count = ctypes.c_uint32(0)
    return loader.clGetPlatformIDs(0, None, ctypes.byref(count)) == 0 and count.value > 0


class Folder:
    def __init__(self, skycc, folder):
        self.skycc, self.folder = skycc, folder
        # A driver's cache of its own: what other runs compiled does not count, and nothing is left.
        self.environment = {**os.environ, "POCL_CACHE_DIR": f"{folder}/pocl"}
        draw = np.random.RandomState(1)
        mask = (np.arange(SEQUENCE) < 4 + np.arange(ROWS)[:, None] % 13).astype(np.int32)
        ids = draw.randint(0, 60, mask.shape).astype(np.int32) * mask
        masked = np.where((draw.rand(*mask.shape) < 0.3) & (mask > 0), ids, -100).astype(np.int32)
        common = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        safetensors_files.write(f"{folder}/seqcls", {**common, "labels": np.arange(ROWS, dtype=np.int32) % 3})
        safetensors_files.write(f"{folder}/mlm", {**common, "labels": masked})
        for head in ("seqcls", "mlm"):
            self.run(skycc, "bert", "--layers", "1", "--hidden", "16", "--heads", "8", "--vocab", "64", "--head", head,
                     "-o", f"{head}.onnx")

    def run(self, *command, fails=0, **more):
        done = subprocess.run(command, cwd=self.folder, env={**self.environment, **more}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == fails, (command, done.returncode, done.stdout)
        return done.stdout

    def compile(self, out, count, kind, head="seqcls", options=(), **more):
        with open(f"{self.folder}/cluster.yaml", "w") as file:
            file.write(devices(count, kind))
        return self.run(self.skycc, "compile", f"{head}.onnx", "-d", "cluster.yaml", "-o", out, "--quiet", "--allocate",
                        "even", *options, **more)

    def train(self, out, head="seqcls", *options, **more):
        return self.run(f"{out}/train", "--data", head, "--seed", "1", "--lr", "1e-2", "--log", "log", "--quiet",
                        *options, **more)

    def losses(self, *columns):
        with open(f"{self.folder}/log") as file:
            rows = list(csv.DictReader(file))
        return np.array([[float(row[c] or 0) for c in ("loss", *columns)] for row in rows])

    def is_opencl(self, out, stage):
        with open(f"{self.folder}/{out}/stage-{stage:02}", "rb") as file:
            return b"__kernel void" in file.read()

    def compare(self, what, count, head="seqcls", compile_options=(), train_options=(), columns=()):
        found = []
        for kind in ("", ", target: opencl"):
            out = f"{what}{len(kind)}"
            self.compile(out, count, kind, head, compile_options)
            self.train(out, head, "--steps", "4", *train_options)
            found.append(self.losses(*columns))
        far = np.max(np.abs(found[0] - found[1]) / np.maximum(np.abs(found[0]), 1e-3))
        assert sum(self.is_opencl(out, stage) for stage in range(count)) == 1
        print(f"{what}: {count} stages, {len(found[0])} losses within {far:.1e} of the CPU's")
        assert found[0].shape == found[1].shape and len(found[0]) == 4 and far < 1e-5, found
        return f"{what}0", f"{what}{len(', target: opencl')}"


def check_resume(folder, cpu, opencl):
    """Four steps in one go, or two on each kind of device."""
    folder.train(cpu, "seqcls", "--steps", "4")
    expected = folder.losses()
    for first, second in ((cpu, opencl), (opencl, cpu)):
        kept = ["--steps", "4", "--checkpoint", f"kept-{first}"]
        folder.train(first, "seqcls", *kept, "--stop-after", "2")
        folder.train(second, "seqcls", *kept, "--resume")
        found = folder.losses()
        assert np.allclose(found[-2:], expected[2:], rtol=1e-5), (first, found, expected)


def check_list(folder):
    """What is listed can stand in a cluster file."""
    said = folder.run(folder.skycc, "probe", "--devices")
    named = [line for line in said.splitlines() if line.startswith("opencl: {platform: ")]
    assert said.startswith("native\n") and named and "memory" in said, said
    folder.compile("listed", 1, ", target: opencl, " + named[0], "seqcls", FIXED)
    assert "none: there is no OpenCL platform" in folder.run(folder.skycc, "probe", "--devices",
                                                             OCL_ICD_VENDORS="/nowhere")
    said = folder.run(folder.skycc, "probe", "--devices", "seqcls.onnx", fails=2)
    assert "--devices lists what this host has" in said, said


def check_refusals(folder, opencl):
    said = folder.train(opencl, "seqcls", "--steps", "1", fails=6, OCL_ICD_VENDORS="/nowhere")
    assert "no OpenCL platform on this host" in said, said
    folder.compile("none", 1, ", target: opencl, opencl: {device: 'no such*'}", "seqcls", FIXED)
    said = folder.train("none", "seqcls", "--steps", "1", fails=6)
    assert "no OpenCL device of this host matches platform '*', device 'no such*'; there is '" in said, said
    said = folder.compile("coded", 2, ", target: opencl", "seqcls", [*FIXED, "--codec", "q8"], fails=5)
    assert "device 'd1' is reached by OpenCL, for which kernel" in said and "codec" in said, said
    assert not os.path.exists(f"{folder.folder}/coded")
    said = folder.compile("wrong", 1, ", opencl: {device: 0}", "seqcls", FIXED, fails=1)
    assert "opencl is for devices of target opencl" in said, said


def main():
    if not has_device():
        print("skipped: this machine has no OpenCL device (Debian: pocl-opencl-icd)")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(os.path.abspath(sys.argv[1]), name)
        packed = ["--batch", "24", "--dim", "seq=auto:16", "--lengths", "seqcls", "--dropout", "0.1"]
        evaluated = ["--eval-data", "seqcls", "--eval-every", "2"]
        programs = folder.compare("packed", 1, "seqcls", packed, evaluated, ["eval_loss"])
        folder.compare("shared", 2, "mlm", FIXED)
        folder.compare("low-rank", 4, "seqcls", [*FIXED, "--lora", "r=2,targets=query,value"])
        check_resume(folder, *programs)
        check_list(folder)
        check_refusals(folder, programs[1])


if __name__ == "__main__":
    main()
