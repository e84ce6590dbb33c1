# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: `python3 huge_reads.py DISK SIZE` reads SIZE bytes directly into a huge page, at several offsets.

A piece of a huge page is one segment of a request, whatever its offset in a page is. The disk's blocks of 4096 bytes
begin with their numbers.
"""
from __future__ import annotations

import mmap
import os
import sys

HUGE = 2 << 20
OFFSETS = (0, 4, 100, 512, 2048, 4096, 4608, 8192 - 4)

if __name__ == "__main__":
    disk, size = sys.argv[1], int(sys.argv[2])
    memory = mmap.mmap(-1, HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)    # MAP_HUGETLB
    file = os.open(disk, os.O_RDONLY | os.O_DIRECT)
    for offset in OFFSETS:
        memory[:] = bytes(HUGE)
        with memoryview(memory)[offset:offset + size] as into:
            try:
                done = os.preadv(file, [into], 0)
            except OSError as e:
                sys.exit(f"{size} bytes at offset {offset}: {e}")
            numbers = [int.from_bytes(into[at:at + 8], "little") for at in range(0, size, 4096)]
        if done != size or numbers != list(range(1, len(numbers) + 1)):
            sys.exit(f"{size} bytes at offset {offset}: {done} were read, of {len(numbers)} blocks the first is "
                     f"{numbers[0]}, the last {numbers[-1]}")
        rest = memory[:offset], memory[offset + size:]
        # any() of bytes would make an object of each: half a second in an emulated machine.
        if any(part.strip(b"\0") for part in rest):
            sys.exit(f"{size} bytes at offset {offset}: bytes beside them were written")
