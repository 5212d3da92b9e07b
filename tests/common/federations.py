"""What federations on this host are made of: keys, clusters, rows, federation.yaml, and an address that nobody else
takes."""
import os
import subprocess

import numpy as np

import safetensors_files


class Scene:
    """Files in a folder. `sites`: by name the numbers of devices and of rows in a step."""

    allocation = ["--allocate", "even"]

    def __init__(self, skycc, model, folder, sites, local_steps):
        self.skycc, self.model, self.folder, self.sites, self.local_steps = skycc, model, folder, sites, local_steps
        # Ports below those that systems give away, hosts by process.
        number = os.getpid()
        self.address = f"127.{1 + number % 250}.{number // 250 % 250}.7:{20000 + number % 10000}"
        for devices in {devices for devices, _ in sites.values()}:
            with open(f"{folder}/{devices}.yaml", "w", encoding="utf-8") as file:
                file.write(self.cluster(devices))
        for name in [*sites, "coordinator"]:
            subprocess.run([skycc, "key", name], cwd=folder, check=True, capture_output=True, text=True)

    def cluster(self, devices):
        return "devices: [{name: device, count: %d, memory: 4GiB}]\n" % devices

    def write_rows(self, rows=32, length=16):
        """Of every site its own, of several lengths, with three labels."""
        for number, name in enumerate(self.sites):
            random = np.random.default_rng(number)
            ends = random.integers(4, length + 1, rows)
            safetensors_files.write(f"{self.folder}/{name}.safetensors", {
                "input_ids": random.integers(1, 256, (rows, length)).astype("i4"),
                "attention_mask": (np.arange(length) < ends[:, None]).astype("i4"),
                "token_type_ids": random.integers(0, 2, (rows, length)).astype("i4"),
                "labels": random.integers(0, 3, rows).astype("i4")})

    def public_key(self, name):
        with open(f"{self.folder}/{name}.pub", encoding="utf-8") as file:
            return file.read().strip()

    def federate(self, output, *rules, sites=None, dims=("batch=4", "seq=16"), options=(), own=(), model=None):
        """`skycc federate` of these sites (all) with further lines of federation.yaml; what became of it."""
        with open(f"{self.folder}/federation.yaml", "w", encoding="utf-8") as file:
            print("sites:", file=file)
            for name in sites or self.sites:
                devices, rows = self.sites[name]
                print(
                    f'  - {{name: {name}, cluster: {devices}.yaml, key: "{self.public_key(name)}", '
                    f"rows_per_step: {rows}{', own_options: true' if name in own else ''}}}",
                    file=file)
            print(f'coordinator: {{address: "{self.address}", key: "{self.public_key("coordinator")}"}}', file=file)
            print(f"local_steps: {self.local_steps}", *rules, sep="\n", file=file)
        sizes = [word for dim in dims for word in ("--dim", dim)]
        return subprocess.run([
            self.skycc, "federate", model or self.model, "-c", "federation.yaml", "-o", output, *sizes,
            *self.allocation, *options
        ], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
