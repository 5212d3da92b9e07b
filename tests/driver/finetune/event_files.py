"""Reads the event files that TensorBoard reads, and checks their checksums."""
import struct


def crc32c(data):
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82f63b78 if number & 1 else 0)
        table.append(number)
    crc = 0xffffffff
    for byte in data:
        crc = table[(crc ^ byte) & 0xff] ^ crc >> 8
    crc ^= 0xffffffff
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


assert crc32c(b"123456789") == (((0xe3069283 >> 15 | 0xe3069283 << 17) + 0xa282ead8) & 0xffffffff)  # the usual example


def records(path):
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        head = data[at:at + 8]
        size, check = struct.unpack("<QI", data[at:at + 12])
        body = data[at + 12:at + 12 + size]
        assert check == crc32c(head) and struct.unpack("<I", data[at + 12 + size:at + 16 + size])[0] == crc32c(body)
        yield body
        at += 16 + size


def fields(message):
    """(number, value) of every field of a protocol buffers message."""
    def varint(at):
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 0x7f) << shift, shift + 7
            if byte < 0x80:
                return value, at

    at = 0
    while at < len(message):
        key, at = varint(at)
        kind = key & 7
        if kind == 0:
            value, at = varint(at)
        else:
            size, at = (8, at) if kind == 1 else (4, at) if kind == 5 else varint(at)
            value, at = message[at:at + size], at + size
        yield key >> 3, value


def numbers(path):
    """{name: [(step, value), ...]}"""
    found = {}
    for number, record in enumerate(records(path)):
        event = dict(fields(record))
        assert 1.7e9 < struct.unpack("<d", event[1])[0] < 1e11  # seconds since 1970
        if number == 0:
            assert event[3] == b"brain.Event:2"
        if 5 in event:
            value = dict(fields(dict(fields(event[5]))[1]))
            found.setdefault(value[1].decode(), []).append((event[2], struct.unpack("<f", value[2])[0]))
    return found
