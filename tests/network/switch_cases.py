"""Whether the networks are what they are said to be. What a busy machine can delay is tried until it was in time; what
must never be, such as a round trip faster than the latency allows, is wrong at once."""
import struct
import subprocess

from case import TRAFFIC, case, eventually, expect, measure, transfer
from network import Link


@case("switch: hosts have names and files of their own", quick=True)
def own_files(bench):
    net = bench.pair(Link())
    for host in ("one", "other"):
        net[host].check("sh", "-c", f"for folder in /tmp /dev/shm /run; do echo {host} >$folder/name; done")
    for host in ("one", "other"):
        found = net[host].check("sh", "-c", "hostname; cat /tmp/name /dev/shm/name /run/name").split()
        expect(found == [host] * 4, f"{host} has {found}")
    processes = net["one"].check("sh", "-c", "ls -d /proc/[0-9]*").split()
    expect(len(processes) < 8, f"it sees processes of others: {processes}")


@case("switch: a round trip takes twice the latency", quick=True)
def latency(bench):
    seconds = 0.015
    net, best = bench.pair(Link(latency=seconds, bandwidth=12.5e6)), []

    def in_time():
        trips = [trip for trip in measure(net["one"], "ping", "other", 10)["trips"] if trip is not None]
        expect(not trips or min(trips) >= 2 * seconds,
               f"{min(trips, default=0)} seconds are less than twice the latency")
        best[:] = [min(trips + best)] if trips or best else []
        return best and best[0] <= 2 * seconds + 0.002
    eventually(in_time, "no round trip in time")
    return f"{best[0] * 1e3:.2f} ms of {2e3 * seconds:g}"


@case("switch: a TCP stream gets the bandwidth", quick=True)
def bandwidth(bench):
    rate, size = 2.5e6, 1500000
    net, ports, share = bench.pair(Link(latency=0.005, bandwidth=rate)), iter(range(5000, 6000)), []

    def full():
        sent = transfer(net, "one", "other", next(ports), size)
        expect(sent["bytes"] == size, f"{sent['bytes']} bytes arrived of {size}")
        expect(sent["seconds"] >= size / rate, f"{size} bytes took {sent['seconds']} seconds, faster than the link")
        share[:] = [sent["half_bytes"] / sent["half_seconds"] / rate]
        return share[0] >= 0.9
    eventually(full, "no stream gets 0.9 of the bandwidth")
    return f"{share[0]:.3f} of it"


@case("switch: what hosts hand over at once crosses a link as frames", quick=True)
def large_frames(bench):
    rate, size, found = 2.5e6, 300000, []
    for large in (False, True):
        with bench.network(["one", "other"], Link(latency=0.005, bandwidth=rate, queue=1 << 20), large=large) as net:
            before = net.traffic("one", "other")["carried"]
            sent = transfer(net, "one", "other", 5000, size)
            expect(sent["bytes"] == size, f"{sent['bytes']} bytes arrived of {size}")
            expect(sent["seconds"] >= size / rate, f"{size} bytes took {sent['seconds']} seconds, faster than the link")
            found.append([after - begun for after, begun in zip(net.traffic("one", "other")["carried"], before)])
    small, large = found
    expect(
        abs(small[0] - large[0]) <= 8 and abs(small[1] - large[1]) <= 8 * 80,
        f"{small} frames and bytes, but large {large}")
    return f"{large[0]} frames of {large[1]} bytes, {small[0]} of {small[1]} else"


@case("switch: frames are lost as often as was set", quick=True)
def loss(bench):
    with bench.network(["one", "other"], Link(loss=0.05), seed=3) as net:
        measure(net["one"], "shower", "other", 5000, 4000)

        def all_there():
            traffic = net.traffic("one", "other")
            return traffic if traffic["carried"][0] + traffic["lost"][0] >= 4000 else None
        traffic = eventually(all_there, "the switch did not see all")
        expect(160 <= traffic["lost"][0] <= 240, f"{traffic['lost'][0]} of 4000 frames were lost instead of about 200")
        return f"{traffic['lost'][0]} of 4000"


@case("switch: a cut link carries nothing, a healed one does", quick=True)
def cut(bench):
    net = bench.pair(Link(latency=0.001))
    net.cut("one", "other")
    before = net.traffic("one", "other")
    expect(measure(net["one"], "ping", "other", 1, 0.2)["trips"] == [None], "an answer came through a cut link")
    after = net.traffic("one", "other")
    expect(after["severed"][0] == before["severed"][0] + 1 and after["carried"] == before["carried"],
           f"{before} became {after}")
    net.heal("one", "other")
    eventually(lambda: measure(net["one"], "ping", "other", 1)["trips"] != [None],
               "no answer came when the link was healed")


@case("switch: nobody connects to a host behind NAT, which itself connects", quick=True)
def inward(bench):
    net = bench.pair(Link(latency=0.001))
    net.ask("inward", "other", "no")
    with net["other"].start(TRAFFIC, "receive", 6001, stdout=subprocess.PIPE, text=True) as receiver:
        receiver.stdout.readline()
        expect(not measure(net["one"], "connect", "other", 6001, 0.2)["connected"],
               "a connection from outside was made")
        expect(net.traffic("one", "other")["refused"] > 0, "nothing was refused")
        receiver.kill()
    eventually(lambda: transfer(net, "other", "one", 6002, 10000)["bytes"] == 10000, "it cannot connect")
    net.ask("inward", "other", "yes")


@case("switch: captures hold what was sent", quick=True)
def capture(bench):
    net = bench.pair(Link())
    path = f"{net.folder}/capture.pcap"
    net.ask("capture", path)
    net["one"].check("/usr/bin/python3", "-c",
                     "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'in plain text', ('other', 7000))")
    net.ask("capture")
    with open(path, "rb") as file:
        captured = file.read()
    expect(struct.unpack("<IHH", captured[:8]) == (0xa1b23c4d, 2, 4), "it is no capture")
    expect(b"in plain text" in captured, "what was sent is not in the capture")


@case("switch: three networks: latency and bandwidth")
def three(bench):
    """Those on which sites are tried, with the numbers that they reach here."""
    said = []
    for name, link in (("1 ms, 1 Gbit/s", Link(0.001, 125e6)), ("20 ms, 200 Mbit/s", Link(
            0.02, 25e6)), ("100 ms, 100 Mbit/s", Link(0.1, 12.5e6))):
        with bench.network(["one", "other"], link, mtu=9000 if link.bandwidth > 1e8 else 1500) as net:
            trips = sorted(trip for trip in measure(net["one"], "ping", "other", 20)["trips"] if trip is not None)
            expect(trips and trips[0] >= 2 * link.latency, f"{name}: a round trip is faster than the latency allows")
            sent = transfer(net, "one", "other", 5000, int(link.bandwidth * 6))
            rate = sent["half_bytes"] / sent["half_seconds"]
            said.append(
                f"{name}: {trips[len(trips) // 2] * 1e3:.2f} ms there and back, {rate / link.bandwidth:.3f} of the "
                "bandwidth"
            )
    return "; ".join(said)
