#!/usr/bin/python3 -B
"""Traffic whose results tell what a network is like, in the standard library alone. Prints one JSON object.

usage: traffic.py ping HOST COUNT [SECONDS]    seconds of every round trip; null where no answer came within that time
(2)
       traffic.py receive PORT                 TCP: prints "ready", then bytes, and seconds of the second half of them
       traffic.py send HOST PORT BYTES         TCP: seconds until the other end has everything
       traffic.py connect HOST PORT SECONDS    TCP: whether a connection can be made within that time
       traffic.py shower HOST PORT COUNT       UDP: that many datagrams of 100 bytes
"""
import json
import os
import socket
import struct
import sys
import time


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def answers(channel, process, number, seconds):
    """Whether that echo is answered; others' answers are passed over."""
    limit = time.monotonic() + seconds
    while (left := limit - time.monotonic()) > 0:
        channel.settimeout(left)
        try:
            packet = channel.recv(2000)
        except OSError:
            return False
        kind, _, _, whose, which = struct.unpack("!BBHHH", packet[20:28])
        if (kind, whose, which) == (0, process, number):
            return True
    return False


def ping(host, count, seconds=2):
    channel = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    process, trips = os.getpid() & 0xffff, []
    for number in range(int(count)):
        head = struct.pack("!BBHHH", 8, 0, 0, process, number)
        start = time.monotonic()
        channel.sendto(head[:2] + struct.pack("!H", checksum(head)) + head[4:], (host, 0))
        trips.append(time.monotonic() - start if answers(channel, process, number, float(seconds)) else None)
    return {"trips": trips}


def receive(port):
    listener = socket.create_server(("", int(port)))
    print("ready", flush=True)
    channel, _ = listener.accept()
    times, total = [], 0
    while True:
        size = len(channel.recv(1 << 20))
        if size == 0:
            break
        total += size
        times.append((time.monotonic(), total))
    channel.sendall(b".")
    middle = next(entry for entry in times if entry[1] >= total / 2)
    return {"bytes": total, "half_bytes": total - middle[1], "half_seconds": times[-1][0] - middle[0]}


def send(host, port, size):
    channel = socket.create_connection((host, int(port)))
    start, left = time.monotonic(), int(size)
    while left > 0:
        channel.sendall(bytes(min(left, 1 << 20)))
        left -= min(left, 1 << 20)
    channel.shutdown(socket.SHUT_WR)
    channel.recv(1)
    return {"seconds": time.monotonic() - start}


def connect(host, port, seconds):
    try:
        socket.create_connection((host, int(port)), float(seconds)).close()
    except OSError as error:
        return {"connected": False, "error": str(error)}
    return {"connected": True}


def shower(host, port, count):
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for number in range(int(count)):
        channel.sendto(struct.pack("!I", number) + bytes(96), (host, int(port)))
        if number % 50 == 49:
            time.sleep(0.001)
    return {"sent": int(count)}


print(
    json.dumps({"ping": ping, "receive": receive, "send": send, "connect": connect,
                "shower": shower}[sys.argv[1]](*sys.argv[2:])))
