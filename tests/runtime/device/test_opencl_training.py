#!/usr/bin/python3
"""test_opencl_training.py SKYCC [LIMITED]: pipelines with a stage on an OpenCL device train as those on CPUs.

A BERT of one block on one, two and four devices, of which one is reached by OpenCL (PoCL, where there is no GPU):
packed rows with dropout and an evaluation, a parameter that two stages share, low-rank branches. Losses are those of
CPUs within 1e-5, with codecs on the link within 1e-4. A checkpoint of either kind of device resumes on the other.
What was built is kept for the next run. PoCL takes long for each kernel: it optimises those of one pipeline only, keeps
those of one, and builds each for all sizes of groups at once. skycc probe measures the device. What cannot run is
refused: the folder LIMITED has a loader with worse devices (limited_opencl.c).
"""
import csv
import ctypes
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "common"))
import safetensors_files  # noqa: E402
from checks import LESS  # noqa: E402

ROWS, SEQUENCE, SKIPPED = 24, 16, 77
FIXED = ["--dim", "batch=12", "--dim", "seq=16", "--microbatches", "2"]


def devices(count, kind):
    """The first is of that kind, or of four the second."""
    lines = ["  - {name: d%d%s}\n" % (d, kind if d == count // 4 else "") for d in range(count)]
    return "devices:\n" + "".join(lines)


def has_device():
    try:
        loader = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        return False
    count = ctypes.c_uint32(0)
    return loader.clGetPlatformIDs(0, None, ctypes.byref(count)) == 0 and count.value > 0


def loader_path():
    """Where the loader is that programs find."""
    ctypes.CDLL("libOpenCL.so.1")
    with open("/proc/self/maps") as file:
        return next(line.split()[-1] for line in file if "libOpenCL.so" in line)


class Folder:
    def __init__(self, skycc, folder, limited):
        self.skycc, self.folder = skycc, folder
        self.limited = {"LD_LIBRARY_PATH": limited, "LIMITED_OPENCL": loader_path()} if limited else {}
        self.environment = {"POCL_CACHE_DIR": f"{folder}/pocl", "POCL_EXTRA_BUILD_FLAGS": "-cl-opt-disable",
                            "POCL_WORK_GROUP_SPECIALIZATION": "0", **os.environ}
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
        assert done.returncode in ((0, 6) if fails is None else (fails,)), (command, done.returncode, done.stdout)
        return done.stdout

    def compile(self, out, count, kind, head="seqcls", options=(), keeps=False, **more):
        with open(f"{self.folder}/cluster.yaml", "w") as file:
            file.write(devices(count, kind))
        said = self.run(self.skycc, "compile", f"{head}.onnx", "-d", "cluster.yaml", "-o", out, "--quiet", "--allocate",
                        "even", *options, **more)
        for stage in range(0 if keeps or more else count):  # what is in the way of what would be kept
            kept = f"{self.folder}/{out}/opencl-{stage:02}.bin"
            if os.path.isfile(kept):
                os.remove(kept)
            os.makedirs(f"{kept}/kept", exist_ok=True)
        return said

    def train(self, out, head="seqcls", *options, **more):
        return self.run(f"{out}/train", "--data", head, "--seed", "1", "--lr", "1e-2", "--log", "log", "--quiet",
                        *options, **more)

    def losses(self, *columns):
        with open(f"{self.folder}/log") as file:
            rows = list(csv.DictReader(file))
        return np.array([[float(row[c] or 0) for c in ("loss", *columns)] for row in rows])

    def is_opencl(self, out, stage):
        with open(f"{self.folder}/{out}/stage-{stage:02}", "rb") as file:
            return b"__kernel " in file.read()

    def compare(self, what, count, head="seqcls", compile_options=(), train_options=(), columns=(), within=1e-5,
                keeps=False, **more):
        found = []
        for kind in ("", ", target: opencl"):
            out = f"{what}{len(kind)}"
            self.compile(out, count, kind, head, compile_options, keeps)
            self.train(out, head, "--steps", "4", *train_options, **more)
            found.append(self.losses(*columns))
        far = np.max(np.abs(found[0] - found[1]) / np.maximum(np.abs(found[0]), 1e-3))
        assert sum(self.is_opencl(out, stage) for stage in range(count)) == 1
        print(f"{what}: {count} stages, {len(found[0])} losses within {far:.1e} of the CPU's")
        assert found[0].shape == found[1].shape and len(found[0]) == 4 and far < within, found
        return f"{what}0", f"{what}{len(', target: opencl')}"


def check_resume(folder, cpu, opencl, **more):
    """Four steps in one go, or two on each kind of device."""
    folder.train(cpu, "seqcls", "--steps", "4")
    expected = folder.losses()
    for first, second in ((cpu, opencl), (opencl, cpu)):
        kept = ["--steps", "4", "--checkpoint", f"kept-{first}"]
        folder.train(first, "seqcls", *kept, "--stop-after", "2", **more)
        folder.train(second, "seqcls", *kept, "--resume", **more)
        found = folder.losses()
        assert np.allclose(found[-2:], expected[2:], rtol=1e-5), (first, found, expected)


def check_list(folder):
    """What is listed can stand in a cluster file."""
    said = folder.run(folder.skycc, "probe", "--devices")
    named = [line for line in said.splitlines() if line.startswith("opencl: {platform: ")]
    assert said.startswith("native\n") and named and "memory" in said, said
    folder.compile("listed", 1, ", target: opencl, " + named[0], "seqcls", FIXED, keeps=True)
    assert "none: there is no OpenCL platform" in folder.run(folder.skycc, "probe", "--devices",
                                                             OCL_ICD_VENDORS="/nowhere")
    said = folder.run(folder.skycc, "probe", "--devices", "seqcls.onnx", fails=2)
    assert "--devices lists what this host has" in said, said


def check_refusals(folder, opencl):
    said = folder.train(opencl, "seqcls", "--steps", "1", fails=6, OCL_ICD_VENDORS="/nowhere")
    assert "no OpenCL platform on this host" in said, said
    none = ", target: opencl, opencl: {device: 'no such*'}"
    said = folder.compile("none", 1, none, "seqcls", FIXED)
    assert "warning: d0: training cannot start on this host: no OpenCL device" in said, said
    said = folder.compile("none", 1, none + ", memory: auto", "seqcls", FIXED, fails=6)
    assert "d0: memory: auto is not known here: no OpenCL device of this host matches" in said, said
    added = [*FIXED, "--add", "name=x,like=d0,target=native"]
    said = folder.compile("none", 1, none + ", memory: auto", "seqcls", added, fails=2)
    assert "memory: auto, which 'd0' has, is for devices of target opencl" in said, said
    said = folder.train("none", "seqcls", "--steps", "1", fails=6)
    assert "error: d0: no OpenCL device of this host matches platform '*', device 'no such*'; there is '" in said, said
    said = folder.compile("wrong", 1, ", opencl: {device: 0}", "seqcls", FIXED, fails=1)
    assert "opencl is for devices of target opencl" in said, said


def check_kept(folder, opencl):
    """The second run takes what the first built, unless it is damaged or of something else; compiling replaces it.

    Of the two micro-batches, the device copies the first's activations to the host while it computes the second's.
    """
    kept, copies = f"{folder.folder}/{opencl}/opencl-00.bin", f"{folder.folder}/copies"
    before = os.stat(kept)
    folder.train(opencl, "mlm", "--steps", "1", LIMITED_SOURCE="__kernel", LIMITED_COPIES=copies, **folder.limited)
    assert os.stat(kept).st_mtime_ns == before.st_mtime_ns
    with open(copies) as file:
        assert int(file.read()) > 0, "kernels wait for copies to the host"
    with open(kept, "rb") as file:
        whole = file.read()
    for place in (0, len(whole) // 2):  # the key, or what the driver built
        with open(kept, "wb") as file:
            file.write(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1:])
        folder.train(opencl, "mlm", "--steps", "1", fails=6, LIMITED_SOURCE="__kernel", **folder.limited)
    folder.train(opencl, "mlm", "--steps", "1")
    with open(kept, "rb") as file:
        assert file.read(16) == whole[:16]
    folder.compile(opencl, 2, ", target: opencl", "mlm", FIXED, keeps=True)
    assert os.path.getsize(kept) == 0, "what was built of other kernels is kept"


def check_probe(folder):
    """What is measured is what plans use, and `memory: auto` is the device's."""
    kind = ", target: opencl, memory: auto"
    with open(f"{folder.folder}/cluster.yaml", "w") as file:
        file.write(devices(2, kind))
    said = folder.run(folder.skycc, "probe", "seqcls.onnx", "-d", "cluster.yaml", *FIXED[:4], "-o", "profile.json")
    assert said.count("Device d0: layer 1 of 5") == 1, said
    with open(f"{folder.folder}/profile.json") as file:
        measured = json.load(file)["devices"][0]
    assert measured["device"] == "d0" and measured["kernels"] and measured["copy_in_Bps"] > 0, measured
    said = folder.compile("measured", 2, kind, "seqcls", [*FIXED, "--profile", "profile.json"])
    assert "gflops" not in said, said
    with open(f"{folder.folder}/measured/costs.json") as file:
        costs = json.load(file)
    assert costs["devices"][0]["memory_bytes"] == measured["memory_bytes"], costs["devices"]
    assert 0 < costs["links"]["bandwidth_Bps"][0][1] < 1e17, costs["links"]
    folder.compile("unmeasured", 1, kind, "seqcls", FIXED)
    said = folder.compile("elsewhere", 1, kind + ", host: far", "seqcls", FIXED, fails=1)
    assert "memory: auto is not known here: the device is on host 'far'" in said and "skycc probe" in said, said


def check_lost(folder, opencl):
    """Whenever the device is lost, the run ends with what happened to which."""
    ends, calls = set(), 20
    while "" not in ends:
        said = folder.train(opencl, "seqcls", "--steps", "1", fails=None, LIMITED_LOST=str(calls), **folder.limited)
        assert not said or "error: d0: OpenCL device '" in said and "CL_DEVICE_NOT_AVAILABLE" in said, (calls, said)
        ends.add(said.partition("\n")[0])
        calls += calls // 3
    assert len(ends) > 3, ends


def check_limits(folder, opencl):
    for limit, expected in (
            ({"LIMITED_DOUBLES": "none"}, "has no float64 (cl_khr_fp64)"),
            ({"LIMITED_LOCAL": "512"}, "bytes of local memory: 512, of "),
            ({"LIMITED_GROUP": "8"}, "work items of a group: 8, of 16 needed"),
            ({"LIMITED_KERNEL": "15"}, "work items, and the device runs 15"),
            ({"LIMITED_MEMORY": "5000"}, "(it has 5000 bytes in all, and promises "),
            ({"LIMITED_SOURCE": "ROW_GROUP"}, "even a program without kernels does not compile"),
            ({"LIMITED_SOURCE": "/* LayerNormalization"}, "kernel 'LayerNormalization' does not compile")):
        kept = f"{folder.folder}/{opencl}/opencl-00.bin"
        if os.path.exists(kept):
            os.remove(kept)
        files = sorted(os.listdir(f"{folder.folder}/{opencl}"))
        said = folder.train(opencl, "seqcls", "--steps", "1", fails=6, **limit, **folder.limited)
        assert expected in said and ("LIMITED_SOURCE" in limit) == ("this driver cannot do that" in said), (limit, said)
        left = sorted(os.listdir(f"{folder.folder}/{opencl}"))
        assert left == files, (limit, left)
    with open(f"{folder.folder}/shared.yaml", "w") as file:
        file.write("devices: [{name: a, target: opencl, memory: auto, count: 2}, {name: b, target: opencl}]\n")
    folder.run(folder.skycc, "compile", "seqcls.onnx", "-d", "shared.yaml", *FIXED, "--emit", "costs", "-o", "costs",
               LIMITED_MEMORY="2000000", **folder.limited)
    with open(f"{folder.folder}/costs") as file:
        shared = [device["memory_bytes"] for device in json.load(file)["devices"][:2]]
    assert shared == [1000000, 1000000], shared
    folder.compile("several", 1, ", target: opencl, opencl: {device: '*?'}", "seqcls", FIXED)
    said = folder.train("several", "seqcls", "--steps", "1", fails=6, LIMITED_TWICE="1", **folder.limited)
    assert "several OpenCL devices of this host match" in said and "(device: 1)" in said, said
    os.mkdir(f"{folder.folder}/empty")
    open(f"{folder.folder}/empty/libOpenCL.so.1", "w").close()
    said = folder.train(opencl, "seqcls", "--steps", "1", fails=6, LD_LIBRARY_PATH=f"{folder.folder}/empty")
    assert "there is no OpenCL on this host" in said and "ocl-icd" in said, said


def main():
    if not has_device():
        print("skipped: this machine has no OpenCL device (Debian: pocl-opencl-icd)")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as name:
        limited = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 and os.path.exists(sys.argv[2]) else None
        folder = Folder(os.path.abspath(sys.argv[1]), name, limited)
        packed = ["--batch", "24", "--dim", "seq=auto:16", "--lengths", "seqcls", "--dropout", "0.1"]
        evaluated = ["--eval-data", "seqcls", "--eval-every", "2"]
        programs = folder.compare("packed", 1, "seqcls", packed, evaluated, ["eval_loss"])
        coded = folder.compare("coded", 2, "mlm", [*FIXED, "--codec", "q8"], within=1e-4, keeps=True)
        if not LESS:
            check_resume(folder, *programs)
            optimised = {"POCL_EXTRA_BUILD_FLAGS": ""}
            low_rank = [*FIXED, "--lora", "r=2,targets=query,value"]
            check_resume(folder, *folder.compare("low-rank", 4, "seqcls", low_rank, **optimised), **optimised)
        check_list(folder)
        check_refusals(folder, programs[1])
        check_probe(folder)
        if folder.limited:
            check_kept(folder, coded[1])
            check_limits(folder, "listed")
            check_lost(folder, "listed")
        else:
            print("skipped: limits of devices, whose loader is for x86-64")


if __name__ == "__main__":
    main()
