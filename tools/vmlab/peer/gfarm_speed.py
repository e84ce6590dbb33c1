# SPDX-License-Identifier: GPL-2.0
"""Measures how fast files are read. Prints how much was done, in units of the job, and the seconds that it took.

    gfarm_speed.py make FOLDER COUNT    makes small files (units: files)
    gfarm_speed.py fill FOLDER COUNT BYTES  makes files of so many bytes (units: files)
    gfarm_speed.py calls FOLDER BYTES   reads each file of a folder by calls of so many bytes (units: bytes)
    gfarm_speed.py map FOLDER           maps each file and looks at each of its pages (units: bytes)
    gfarm_speed.py read FILE            reads a file from its beginning to its end (units: bytes)
    gfarm_speed.py stat FOLDER          asks for the attributes of each file (units: files)
    gfarm_speed.py scan FOLDER          the same, and reads it: what a search or a copy does (units: files)
    gfarm_speed.py cycle FILE COUNT     opens, reads and closes one file again and again (units: times)
"""
from __future__ import annotations

import mmap
import os
import sys
import time

PART = 1 << 20
SMALL_BYTES = 2048


def make(folder: str, count: str) -> int:
    """Files of 1 to 4096 bytes."""
    os.makedirs(folder, exist_ok=True)
    text = b"The quick brown fox. " * 200
    for number in range(int(count)):
        with open(f"{folder}/{number:05}", "wb", buffering=0) as file:
            file.write(text[:1 + number * 1031 % (2 * SMALL_BYTES)])
    return int(count)


def fill(folder: str, count: str, size: str) -> int:
    """Files of random bytes."""
    os.makedirs(folder, exist_ok=True)
    for number in range(int(count)):
        with open(f"{folder}/{number:05}", "wb", buffering=0) as file:
            file.write(os.urandom(int(size)))
    return int(count)


def calls(folder: str, size: str) -> int:
    """Reads by calls, as stdio, Python and cp do."""
    buffer = bytearray(int(size))
    return sum(_read(f"{folder}/{name}", buffer) for name in sorted(os.listdir(folder)))


def maps(folder: str) -> int:
    """Reads by maps, as a loader of programs does."""
    found = 0
    for name in sorted(os.listdir(folder)):
        with open(f"{folder}/{name}", "rb", buffering=0) as file, \
                mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as seen:
            found += len(seen[::4096]) and len(seen)
    return found


def _read(path: str, buffer: bytearray) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    found = 0
    while part := os.readv(descriptor, [buffer]):
        found += part
    os.close(descriptor)
    return found


def read(path: str) -> int:
    """One file."""
    return _read(path, bytearray(PART))


def stat(folder: str) -> int:
    """All names of a folder, and the attributes of each."""
    names = sorted(os.listdir(folder))
    for name in names:
        os.stat(f"{folder}/{name}")
    return len(names)


def scan(folder: str) -> int:
    """The same, and the contents."""
    buffer, names = bytearray(2 * SMALL_BYTES), sorted(os.listdir(folder))
    for name in names:
        path = f"{folder}/{name}"
        size = os.stat(path).st_size
        if _read(path, buffer) != size:
            sys.exit(f"{path} has not {size} bytes")
    return len(names)


def cycle(path: str, count: str) -> int:
    """The same file again and again."""
    buffer = bytearray(2 * SMALL_BYTES)
    for _time in range(int(count)):
        _read(path, buffer)
    return int(count)


def main(job: str, *arguments: str) -> None:
    """Does a job and prints its figures."""
    began = time.perf_counter()
    jobs = {"make": make, "fill": fill, "read": read, "calls": calls, "map": maps, "stat": stat, "scan": scan,
            "cycle": cycle}
    done = jobs[job](*arguments)
    print(done, time.perf_counter() - began)


main(*sys.argv[1:])
