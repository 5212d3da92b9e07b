"""Runs between sites: each starts its own, on a host of its own, and they meet over a network."""
import json
import os
import subprocess
import time

from case import case, expect
from mpi_cases import compile_nano, losses, write_data
from network import Link

STEPS = 40
OPTIONS = ["--seed", "5", "--quiet", "--checkpoint-every", "10"]
PORT = 7400


class Sites:
    """Two or three sites: a folder compiled for them, keys, and the same in one stage, for comparison."""

    def __init__(self, bench, net, names, inward_only=(), hosts=()):
        """`hosts`: by name of a site, the hosts of its devices, one each; sites that are not there have one device
        where they start."""
        self.net, self.names, self.runs, self.environment = net, names, {}, dict(os.environ)
        cluster = ["sites:"]
        for name in names:
            key = bench.command([bench.skycc, "key", f"{net.folder}/{name}"]).split()[-1]
            address = "" if name in inward_only else f'address: "{net[name].address}:{PORT}", '
            cluster.append(f"  - {{name: {name}, {address}key: '{key}'}}")
        cluster.append("devices:")
        for name in names:
            for host in dict(hosts).get(name, ["localhost"]):
                cluster.append(f"  - {{name: d-{name}-{host}, site: {name}, host: {host}, threads: 1, memory: 1GiB}}")
        if hosts:
            cluster.append("ports: 20000-20999")
        self.folder = compile_nano(bench, net, "\n".join(cluster) + "\n", "sites")
        self.alone = compile_nano(bench, net, "devices:\n  - {name: one, threads: 1, memory: 1GiB}\n", "alone")
        write_data(f"{net.folder}/data")

    def start(self, name, *options, steps=STEPS):
        """Its output goes to a file of the network's folder."""
        folder = self.net.folder
        with open(f"{folder}/{name}.out", "a") as output:
            self.runs[name] = self.net[name].start(
                f"{self.folder}/{name}/train", "--data", f"{folder}/data", "--key", f"{folder}/{name}.key", "--log",
                f"{folder}/{name}.csv", "--checkpoint", f"{folder}/saved-{name}", "--steps", steps, *OPTIONS, *options,
                stdout=output, stderr=output,
                env={**self.environment, "OMP_WAIT_POLICY": "passive", "SECRET_OF_MINE": "open sesame"})

    def said(self, name):
        with open(f"{self.net.folder}/{name}.out", errors="replace") as file:
            return file.read()

    def end(self, name, limit=180):
        try:
            code = self.runs[name].wait(limit)
        except subprocess.TimeoutExpired:
            expect(False, f"{name} still runs after {limit} seconds: {self.said(name)}")
        expect(code == 0, f"{name} ended with {code}: {self.said(name)}")

    def undisturbed(self, steps=STEPS):
        path = f"{self.net.folder}/alone.csv"
        self.net[self.names[0]].check(f"{self.alone}/train", "--data", f"{self.net.folder}/data", "--log", path,
                                      "--steps", steps, "--seed", "5", "--quiet",
                                      env={**os.environ, "OMP_WAIT_POLICY": "passive"})
        return losses(path)

    def compare(self, steps=STEPS):
        """Somebody's log must tell what one stage alone does, to the last digit."""
        logs = [
            f"{self.net.folder}/{name}.csv" for name in self.names if os.path.exists(f"{self.net.folder}/{name}.csv")
        ]
        expect(logs, "no site wrote a log")
        expected = self.undisturbed(steps)
        expect(len(expected) == steps + 1, "the run alone is short")
        for log in logs:
            expect(
                losses(log) == expected,
                f"other losses in {os.path.basename(log)}: {losses(log)[-2:]} instead of {expected[-2:]}")


def captured(net, path):
    net.ask("capture")
    with open(path, "rb") as file:
        return file.read()


@case("sites: two, of which one is behind NAT", quick=True)
def two(bench):
    with bench.network(["paris", "tokyo"], Link(latency=0.005, bandwidth=25e6)) as net:
        net.ask("inward", "tokyo", "no")
        sites = Sites(bench, net, ["paris", "tokyo"], inward_only=["tokyo"])
        net.ask("capture", f"{net.folder}/capture.pcap")
        for name in sites.names:
            sites.start(name)
        for name in sites.names:
            sites.end(name)
        data = captured(net, f"{net.folder}/capture.pcap")
        sites.compare()
        expect(net.traffic("tokyo", "paris")["carried"][0] > 0, "nothing was sent")
        for word in (b"SECRET_OF_MINE", b"open sesame", b"encoder", b"input_ids", b"stage-0", b"skycc", b"d-tokyo"):
            expect(word not in data, f"{word} can be read on the network")
        return f"{len(data)} bytes captured"


@case("sites: two, of which one has two hosts", quick=True)
def apart(bench):
    """Its ranks reach the gateway of their site, on another host, by its key."""
    with bench.network(["paris", "nancy", "tokyo"], Link(latency=0.001, bandwidth=25e6)) as net:
        sites = Sites(bench, net, ["paris", "tokyo"], hosts={"paris": ["nancy", "paris"]})
        sites.environment["PATH"] = f"{net.serve_ssh()}:{os.environ['PATH']}"
        for name in sites.names:
            sites.start(name)
        for name in sites.names:
            sites.end(name)
        sites.compare()
        expect(net.traffic("nancy", "paris")["carried"][0] > 0, "nothing came from the other host")
        expect(net.traffic("nancy", "tokyo")["carried"][0] == 0, "the other host spoke with the other site")


def steps_done(net, name):
    """Lines that the site has logged; the run writes one for every step."""
    path = f"{net.folder}/{name}.csv"
    if not os.path.exists(path):
        return 0
    with open(path) as file:
        return max(0, sum(1 for _ in file) - 1)


def wait_for_step(sites, name, step):
    limit = time.monotonic() + 180
    while steps_done(sites.net, name) < step:
        expect(time.monotonic() < limit, f"step {step} does not come: {sites.said(name)}")
        expect(sites.runs[name].poll() is None, f"{name} ended early: {sites.said(name)}")
        time.sleep(0.05)


def writer(sites):
    """The site that logs: the one with the last stage, or the first rank."""
    limit = time.monotonic() + 180
    while time.monotonic() < limit:
        for name in sites.names:
            if steps_done(sites.net, name):
                return name
        time.sleep(0.05)
    expect(False, "no site logs: " + "".join(map(sites.said, sites.names)))


@case("sites: a link that is cut for a while costs that while, and no step")
def cut(bench):
    with bench.network(["paris", "tokyo"], Link(latency=0.02, bandwidth=25e6)) as net:
        sites = Sites(bench, net, ["paris", "tokyo"], inward_only=["tokyo"])
        for name in sites.names:
            sites.start(name, steps=60)
        log = writer(sites)
        wait_for_step(sites, log, 5)
        start, before = time.monotonic(), steps_done(net, log)
        net.cut("paris", "tokyo")
        time.sleep(30)
        during = steps_done(net, log)
        net.heal("paris", "tokyo")
        wait_for_step(sites, log, during + 1)
        pause = time.monotonic() - start
        for name in sites.names:
            sites.end(name)
        sites.compare(steps=60)
        expect("going on from" not in sites.said("paris") + sites.said("tokyo"), "a site began anew")
        return (f"cut for 30 s, the next step came after {pause:.1f} s; "
                f"{during - before} steps came from what was on its way")


# Against a port of a gateway: nothing of it may disturb it. Runs on a third host.
STRANGER = r'''
import os, random, socket, struct, sys, time
host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
draw, limit, tried, held = random.Random(1), time.monotonic() + seconds, 0, []
greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15) + b"\x00" + bytes(31)
def attempt(kind):
    channel = socket.create_connection((host, port), 5)
    if kind == 0: pass  # a port scan
    elif kind == 1: channel.sendall(draw.randbytes(draw.randrange(1, 5000)))
    elif kind == 2: channel.sendall(greeting + draw.randbytes(300))
    elif kind == 3: channel.sendall(b"GET / HTTP/1.0\r\n\r\n")
    elif kind == 4: channel.sendall(greeting + b"\x06\xff\xff\xff\xff\xff\xff\xff\xff")  # a frame of all that there is
    else:  # slow: a byte now and then, for as long as it lasts
        channel.sendall(greeting[:draw.randrange(1, 60)])
        held.append(channel)
        return
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    channel.close()
while time.monotonic() < limit:
    try:
        attempt(draw.randrange(6))
        tried += 1
    except OSError:
        pass
    for channel in held[-50:]:
        try: channel.send(b"\x00")
        except OSError: pass
    time.sleep(0.002)
print(tried)
'''


def disguise(bench, net, folder, site):
    """A copy of the site's folder with a key of mallory's own in the place of the site's: its gateway, on mallory's
    host."""
    own = bench.command([bench.skycc, "key", f"{net.folder}/mallory"]).split()[-1]
    os.mkdir(f"{net.folder}/disguise")
    with open(f"{folder}/{site}/site.json") as file:
        place = json.load(file)
    next(other for other in place["sites"] if other["name"] == site)["key"] = own
    with open(f"{net.folder}/disguise/site.json", "w") as file:
        json.dump(place, file)
    return net["mallory"].start(f"{folder}/{site}/gateway", "--site", f"{net.folder}/disguise/site.json", "--key",
                                f"{net.folder}/mallory.key", "--local", "ipc:///tmp/gateway", stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)


@case("sites: strangers at the port, without a key and with one of their own, disturb nothing")
def strangers(bench):
    with bench.network(["paris", "tokyo", "mallory"], Link(latency=0.002, bandwidth=25e6)) as net:
        sites = Sites(bench, net, ["paris", "tokyo"], inward_only=["tokyo"])
        for name in sites.names:
            sites.start(name, steps=2000)
        log = writer(sites)
        disguised = disguise(bench, net, sites.folder, "tokyo")
        attack = net["mallory"].start("/usr/bin/python3", "-c", STRANGER, net["paris"].address, PORT, 4,
                                      stdout=subprocess.PIPE, text=True)
        tried = int(attack.communicate(timeout=120)[0])
        after = steps_done(net, log)
        disguised.terminate()
        told = disguised.communicate(timeout=60)[0]
        stayed_out = "connected" not in told and "received: 0 (0 bytes)" in told
        expect(stayed_out, f"with a key of its own mallory got in: {told}")
        for name in sites.names:
            sites.end(name, 300)
        sites.compare(steps=2000)
        for name in sites.names:
            expect("starting it again" not in sites.said(name), f"{name} was disturbed: {sites.said(name)}")
        expect("turned away" in sites.said("paris"), f"nobody was turned away: {sites.said('paris')}")
        expect(after < 2000, "the run had ended before the strangers came")
        expect(tried > 100, f"only {tried} connections were tried")
        return f"{tried} connections tried, {after} of 2000 steps done by then"


@case("sites: a link that is cut for good ends the run, which goes on later")
def lost(bench):
    with bench.network(["paris", "tokyo"], Link(latency=0.002, bandwidth=25e6)) as net:
        sites = Sites(bench, net, ["paris", "tokyo"], inward_only=["tokyo"])
        for name in sites.names:
            sites.start(name, "--site-timeout", "5", steps=600)
        wait_for_step(sites, writer(sites), 12)
        net.cut("paris", "tokyo")
        for name in sites.names:
            code = sites.runs[name].wait(180)
            expect(code == 6, f"{name} ended with {code}: {sites.said(name)}")
        net.heal("paris", "tokyo")
        for name in sites.names:
            sites.start(name, "--resume", steps=600)
        for name in sites.names:
            sites.end(name, 300)
        sites.compare(steps=600)


@case("sites: three, on slow and unequal links")
def three(bench):
    with bench.network(["paris", "tokyo", "lima"], Link(latency=0.02, bandwidth=25e6)) as net:
        net.set_link("tokyo", "lima", Link(latency=0.1, bandwidth=12.5e6))
        net.ask("inward", "lima", "no")
        sites = Sites(bench, net, ["paris", "tokyo", "lima"], inward_only=["lima"])
        for name in sites.names:
            sites.start(name, steps=20)
        for name in sites.names:
            sites.end(name)
        sites.compare(steps=20)
