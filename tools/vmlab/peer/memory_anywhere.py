# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: `python3 memory_anywhere.py DISK`: direct IO with memory that begins anywhere in a page.

What is written from one offset is read to another one. Then the memory comes in pieces that cut a block in two: those
that meet at page boundaries are taken, others are refused.
"""
from __future__ import annotations

import errno
import mmap
import os
import sys

PAGE = 4096
OFFSETS = (4, 8, 100, 508, PAGE - 4)
LARGE = (97 << 10, 512 << 10, 31 << 10, 128 << 10, 8 << 10)     # bytes from each; more than a request, too
ROOM = (512 << 10) + 2 * PAGE

Piece = tuple[int, int]     # offset in a page, bytes


def in_pages(pieces: list[Piece]) -> list[memoryview]:
    """Memory for these pieces."""
    return [memoryview(mmap.mmap(-1, offset + size))[offset:] for offset, size in pieces]


class Disk:
    """Direct IO to the start of a disk."""

    def __init__(self, path: str) -> None:
        with open(f"/sys/block/{os.path.basename(path)}/queue/logical_block_size") as file:
            self.block = int(file.read())
        self.file = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.data = os.urandom(ROOM)
        self.source = mmap.mmap(-1, ROOM)
        self.source[:] = self.data

    def whole(self, size: int, out: int, back: int) -> None:
        """Writes `size` bytes that begin at offset `out` of a page, and reads them to offset `back`."""
        target = mmap.mmap(-1, back + size + PAGE)
        done = (os.pwritev(self.file, [memoryview(self.source)[out:out + size]], 7 * self.block),
                os.preadv(self.file, [memoryview(target)[back:back + size]], 7 * self.block))
        if done != (size, size) or target[back:back + size] != self.data[out:out + size]:
            sys.exit(f"{size} bytes from offset {out} to {back}: wrong data, moved {done}")
        if (target[:back] + target[back + size:]).strip(b"\0"):
            sys.exit(f"{size} bytes from offset {out} to {back}: bytes beside them were written")

    def takes(self, pieces: list[Piece]) -> bool:
        """The same with these pieces, each in pages of its own; whether they are taken."""
        source, target = map(in_pages, (pieces, pieces))
        at = 0
        for piece in source:
            piece[:] = self.data[at:at + len(piece)]
            at += len(piece)
        try:
            done = os.pwritev(self.file, source, 0), os.preadv(self.file, target, 0)
        except OSError as e:
            if e.errno != errno.EINVAL:
                raise
            return False
        if done != (at, at) or b"".join(target) != self.data[:at]:
            sys.exit(f"{pieces}: wrong data, moved {done}")
        return True


if __name__ == "__main__":
    disk = Disk(sys.argv[1])
    block = disk.block
    for number, out in enumerate(OFFSETS):
        for least in (1, PAGE, LARGE[number]):
            disk.whole(-(-least // block) * block, out, OFFSETS[number - 1])
    for head in (4, 100, PAGE - 4):
        if not disk.takes([(PAGE - head, head), (0, PAGE), (0, PAGE + block - head)]):
            sys.exit(f"refused: a page, {head} bytes in front of it, and the rest behind it")
    if not disk.takes([(4, block), (8, block)]):
        sys.exit("refused: two blocks with a gap between them")
    if disk.takes([(0, block // 2), (0, block - block // 2)]):
        sys.exit("taken: a block with a gap in it")
