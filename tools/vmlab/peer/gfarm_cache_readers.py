# SPDX-License-Identifier: GPL-2.0
"""Readers of one file on several mounts, which start together, each a process; what they read is compared.

    gfarm_cache_readers.py WAY SEED ORIGINAL PATH...

ORIGINAL is a local file with the same content. Prints for each reader how many pieces were wrong, its SHA-256 if it
has read all in order, the seconds that it took, and the milliseconds of its slowest and its 99th slowest piece of 100.
"""
from __future__ import annotations

import hashlib
import json
import mmap
import os
import random
import sys
import time
from collections.abc import Iterator

PIECE = 1 << 17
PAGE = 4096
# Every so-manieth piece is read by `strided`, and so many runs by `random`.
STRIDE = 4
RUN = 1 << 16


def places(way: str, size: int, number: int, chance: random.Random) -> Iterator[tuple[int, int]]:
    """Offsets and lengths, in the order in which a reader reads them."""
    if way == "sequential":
        yield from ((start, PIECE) for start in range(0, size, PIECE))
    elif way == "strided":
        yield from ((start, PIECE) for start in range(number % STRIDE * PIECE, size, STRIDE * PIECE))
    elif way == "partial":
        start = size // 3 // PAGE * PAGE
        yield from ((at, PIECE) for at in range(start, start + size // 4, PIECE))
    else:
        runs = list(range(0, size, RUN))
        chance.shuffle(runs)
        yield from ((start, RUN) for start in runs)


def read(way: str, path: str, number: int, original: mmap.mmap, chance: random.Random) -> dict[str, object]:
    """One reader."""
    size, wrong, took, digest = len(original), 0, [], hashlib.sha256()
    file = os.open(path, os.O_RDONLY)
    mapped = mmap.mmap(file, size, prot=mmap.PROT_READ) if way == "mmap" else None
    began = time.monotonic()
    for start, length in places(way, size, number, chance):
        at = time.monotonic()
        part = mapped[start:start + length] if mapped else os.pread(file, length, start)
        took.append(time.monotonic() - at)
        wrong += part != original[start:start + length]
        digest.update(part)
    took.sort()
    return {"wrong": wrong, "sha256": digest.hexdigest(), "seconds": time.monotonic() - began,
            "p99_ms": took[len(took) * 99 // 100] * 1000, "max_ms": took[-1] * 1000, "pieces": len(took)}


def main() -> None:
    """Starts all readers at once, and collects what they have found."""
    way, seed, local, *paths = sys.argv[1:]
    with open(local, "rb") as file:
        original = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    held, go = os.pipe()
    ends = []
    for number, path in enumerate(paths):
        end, said = os.pipe()
        if os.fork() == 0:
            os.close(go)
            os.read(held, 1)    # until all are there
            found = read(way, path, number, original, random.Random(int(seed) + number))
            os.write(said, json.dumps(found).encode())
            os._exit(0)
        os.close(said)
        ends.append(end)
    os.close(go)
    print(json.dumps([json.loads(os.read(end, 4096) or "null") for end in ends]))


main()
