# SPDX-License-Identifier: GPL-2.0
"""Messages and chunks of the CRC32/UMR example byte by byte, true by default; every field may be made a lie.

A second implementation, from Documentation/crc32-umr.md and the specification: nothing is taken from the modules.
"""
from __future__ import annotations

import struct
import zlib

DATA, CHUNK = 4048, 4096
READ, WRITE, RDMA = 0, 1, 0x80
DONE, PAYLOAD, RANGE, BAD_CHUNK, PLACE, IO = range(6)


def hello(magic: bytes = b"C32U", version: int = 1) -> bytes:
    """The data that an initiator sends with its connection."""
    return magic + struct.pack("<H", version)


def welcome(depth: int = 4, chunks: int = 4096, magic: bytes = b"C32U", version: int = 1) -> bytes:
    """The data that a target answers."""
    return magic + struct.pack("<HHQ", version, depth, chunks)


def request(number: int, size: int, kind: int, block: int = 0, *, payload: bytes = b"", signature: int = 0,
            address: int = 0, key: int = 0, flip: int | None = None) -> bytes:
    """A request; `flip` is a bit of it, without the payload, that is changed behind the checksum's back."""
    head = struct.pack("<QHB", number, size, kind)
    rest = struct.pack("<IQQI", signature, block, address, key)
    rest += struct.pack("<I", zlib.crc32(head + rest))
    if flip is not None:
        both = bytearray(head + rest)
        both[flip // 8] ^= 1 << flip % 8
        head, rest = bytes(both[:11]), bytes(both[11:])
    return head + payload + rest


def inline_write(number: int, block: int, data: bytes, signature: int | None = None) -> bytes:
    """A write with its data in the message."""
    return request(number, len(data), WRITE, block, payload=data,
                   signature=zlib.crc32(data) if signature is None else signature)


def parse(message: bytes) -> tuple[int, int, int, int, int]:
    """(number, size, type, address, key) of a request without payload."""
    number, size, kind = struct.unpack_from("<QHB", message)
    _signature, _block, address, key = struct.unpack_from("<IQQI", message, 11)
    return number, size, kind, address, key


def response(number: int, status: int = DONE) -> bytes:
    """A response."""
    return struct.pack("<QB", number, status)


def chunk(number: int, data: bytes, reserved: bytes = bytes(36)) -> bytes:
    """A chunk as it is on the medium."""
    signed = data.ljust(DATA, b"\0") + struct.pack("<Q", number) + reserved
    return signed + struct.pack("<I", zlib.crc32(signed))
