# SPDX-License-Identifier: GPL-2.0
"""Reads and writes a disk with tuples of its own by io_uring, and asks what the disk can do. Prints `ok` at the end.

    uring_pi.py DISK SHIFTED FORMAT INTERVAL STORED     SHIFTED is the same disk's blocks from SHIFT_BYTES on
"""
from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import mmap
import os
import random
import struct
import sys

from gfarm_readers import Ring

OP_READ, OP_WRITE, ATTRIBUTE_PI = 22, 23, 1
# include/uapi/linux/fs.h: what is to be checked, and the question for the disk's metadata.
GUARD, REFERENCE, APPLICATION = 1, 2, 4
GETLBMD_CAP = 3 << 30 | 16 << 16 | 0x15 << 8 | 2
# LBMD_PI_CAP_*, LBMD_PI_CSUM_*.
CAN_STORE, HAS_REFERENCE = 1, 2
CHECKSUMS = {"t10": 2, "crc64": 4}
SHIFT_BYTES = 1 << 20
ESCAPE = 0xffff
PIECES = 32


def _table(polynomial: int, bits: int, reflected: bool) -> list[int]:
    """The remainders of all bytes."""
    entries = []
    for byte in range(256):
        value = byte if reflected else byte << (bits - 8)
        for _ in range(8):
            if reflected:
                value = value >> 1 ^ (polynomial if value & 1 else 0)
            else:
                value = value << 1 ^ (polynomial if value >> (bits - 1) & 1 else 0)
        entries.append(value & ((1 << bits) - 1))
    return entries


T10_TABLE = _table(0x8bb7, 16, False)
NVME_TABLE = _table(0x9a6c9329ac4bc9b5, 64, True)


@functools.cache
def crc16(data: bytes) -> int:
    """CRC16 of T10-DIF."""
    value = 0
    for byte in data:
        value = (value << 8 & 0xffff) ^ T10_TABLE[value >> 8 ^ byte]
    return value


@functools.cache
def crc64(data: bytes) -> int:
    """CRC64 of NVMe."""
    value = (1 << 64) - 1
    for byte in data:
        value = value >> 8 ^ NVME_TABLE[(value ^ byte) & 0xff]
    return value ^ ((1 << 64) - 1)


@functools.cache
def pieces(interval: int) -> list[bytes]:
    """Different contents of an interval. They are few, as their CRCs take long in an emulated machine."""
    return [os.urandom(interval) for _ in range(PIECES)]


def some(count: int, interval: int, first: int) -> bytes:
    """The data of so many intervals, from a number of a piece on: each is different from those around it."""
    return b"".join(pieces(interval)[(first + number) % PIECES] for number in range(count))


class Wrong(Exception):
    """The disk did something else."""


def must(found: object, wanted: object, what: str) -> None:
    """Expects two equal values."""
    if found != wanted:
        raise Wrong(f"{what}: found {found}, expected {wanted}")


class Disk:
    """A block device with tuples."""

    def __init__(self, path: str, kind: str, interval: int) -> None:
        self.kind, self.interval = kind, interval
        self.fd = os.open(path, os.O_RDWR | os.O_DIRECT)
        self._ring = Ring()
        self._room, self._tuples = mmap.mmap(-1, 1 << 20), mmap.mmap(-1, 1 << 16)

    @property
    def tuple_bytes(self) -> int:
        """The length of a tuple."""
        return 16 if self.kind == "crc64" else 8

    def tuples(self, data: bytes, first: int, app: int = 0) -> bytes:
        """Tuples of data that begins at an address."""
        found = b""
        for number, at in enumerate(range(0, len(data), self.interval)):
            piece, reference = data[at:at + self.interval], first + number
            if self.kind == "crc64":
                found += struct.pack(">QH", crc64(piece), app) + reference.to_bytes(6, "big")
            else:
                found += struct.pack(">HHI", crc16(piece), app, reference)
        return found

    def _do(self, op: int, at: int, size: int, tuples_len: int, seed: int, checks: int) -> int:
        room = ctypes.addressof(ctypes.c_char.from_buffer(self._room))
        place = ctypes.addressof(ctypes.c_char.from_buffer(self._tuples))
        told = ctypes.create_string_buffer(struct.pack("=HHIQQQ", checks, 0, tuples_len, place, seed, 0))
        entry = struct.pack("=BBHiQQIIQHHiQQ", op, 0, 0, self.fd, at, room, size, 0, 0, 0, 0, 0,
                            ctypes.addressof(told), ATTRIBUTE_PI)
        return self._ring.submit([entry])[0]

    def write(self, at: int, data: bytes, tuples: bytes, seed: int) -> int:
        """Writes both; the result of the system call."""
        self._room[:len(data)], self._tuples[:len(tuples)] = data, tuples
        return self._do(OP_WRITE, at, len(data), len(tuples), seed, GUARD | REFERENCE)

    def read(self, at: int, size: int, seed: int) -> tuple[int, bytes, bytes]:
        """Reads both; the result of the system call, data and tuples."""
        tuples_len = size // self.interval * self.tuple_bytes
        self._room[:size], self._tuples[:tuples_len] = bytes(size), bytes(tuples_len)
        result = self._do(OP_READ, at, size, tuples_len, seed, GUARD | REFERENCE)
        return result, self._room[:size], self._tuples[:tuples_len]

    def plain(self, at: int, size: int) -> bytes:
        """Reads without tuples."""
        with mmap.mmap(-1, size) as room:
            os.preadv(self.fd, [room], at)
            return room[:size]


def capabilities(disk: Disk, stored: bool) -> None:
    """FS_IOC_GETLBMD_CAP."""
    answer = bytearray(16)
    fcntl.ioctl(disk.fd, GETLBMD_CAP, answer)
    flags, interval, size, opaque, _at, pi_size, pi_at, kind, app, reference, storage, _pad = struct.unpack(
        "=IH10B", answer)
    must(flags, HAS_REFERENCE | (CAN_STORE if stored else 0), "flags")
    must((interval, size, pi_size, pi_at), (disk.interval, disk.tuple_bytes, disk.tuple_bytes, 0), "layout")
    must((opaque, kind, app, storage), (0, CHECKSUMS[disk.kind], 2, 0), "what a tuple is")
    must(reference, 6 if disk.kind == "crc64" else 4, "bytes of address")


def right_ones(disk: Disk, seed: int, base: int, count: int, app: int) -> None:
    """Writes with right tuples, and reads data and tuples back, application tags too if they are stored."""
    data = some(count, disk.interval, random.randrange(PIECES))
    tuples = disk.tuples(data, seed, app)
    must(disk.write(base, data, tuples, seed), len(data), f"a write of {count} intervals with right tuples")
    result, found, back = disk.read(base, len(data), seed)
    must(result, len(data), f"a read of {count} intervals")
    must(found, data, "the data")
    must(back, tuples, f"the tuples of {count} intervals")
    must(disk.plain(base, len(data)), data, "the data without tuples")


def wrong_ones(disk: Disk, seed: int, base: int, stored: bool) -> None:
    """A wrong guard or address in any tuple refuses the write, and nothing of it is on the disk."""
    count = 5
    before, data = (some(count, disk.interval, first) for first in (0, count))
    must(disk.write(base, before, disk.tuples(before, seed), seed), len(before), "a write with right tuples")
    tuples = disk.tuples(data, seed)
    for which in (0, count - 1):
        for name, byte in (("guard", 0), ("address", disk.tuple_bytes - 1)):
            bad = bytearray(tuples)
            bad[which * disk.tuple_bytes + byte] ^= 1
            result = disk.write(base, data, bytes(bad), seed)
            must(result, -errno.EILSEQ, f"a write with a wrong {name} in tuple {which}")
            must(disk.plain(base, len(before)), before, f"the data after a wrong {name}")
    result = disk.write(base, data, disk.tuples(before, seed), seed)
    must(result, -errno.EILSEQ, "a write with the tuples of other data")
    must(disk.write(base, data, tuples[:-1], seed), -errno.EINVAL, "a write with too few bytes of tuples")
    must(disk.plain(base, len(before)), before, "the data after writes that were refused")
    if stored:
        return      # disks that store tuples may take escapes or refuse them
    must(disk.write(base, data, disk.tuples(bytes(len(data)), 77, ESCAPE), seed), len(data), "a write with escapes")
    must(disk.plain(base, len(data)), data, "the data of a write with escapes")


def main(path: str, shifted: str, kind: str, interval: str, stored: str) -> None:
    """All of it."""
    disk = Disk(path, kind, int(interval))
    capabilities(disk, stored == "stored")
    app = 0x1234 if stored == "stored" else 0
    sizes = (1, 2, 7, 31, 32, 63) if disk.interval == 4096 else (1, 2, 7, 8, 9, 31, 247, 248, 249, 511)
    for base in (0, 3 * disk.interval, 64 << 10):
        for count in sizes:
            right_ones(disk, base // disk.interval, base, count, app)
    wrong_ones(disk, 0, 0, stored == "stored")
    wrong_ones(disk, 11, 11 * disk.interval, stored == "stored")
    # Tuples whose addresses begin at a seed of the user: what is on the disk is the place there.
    right_ones(disk, 0x12345, 5 * disk.interval, 9, app)
    part = Disk(shifted, kind, disk.interval)
    right_ones(part, 0, 0, 9, app)
    first = SHIFT_BYTES // disk.interval
    if stored == "stored":
        data = disk.plain(SHIFT_BYTES, 9 * disk.interval)
        result, _data, tuples = disk.read(SHIFT_BYTES, len(data), first)
        must((result, tuples), (len(data), disk.tuples(data, first, app)), "tuples of a part, seen on the whole disk")
    wrong_ones(part, 0, 0, stored == "stored")
    wrong_ones(part, 500, 3 * disk.interval, stored == "stored")
    print("ok")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Wrong as wrong:
        sys.exit(f"wrong: {wrong}")
