# SPDX-License-Identifier: GPL-2.0
"""Answers of the fake servers of Gfarm as lists of named fields, a script of lies about them, and the files.

An answer is a list of fields, (name, bytes). A lie makes of it what is sent instead: bytes, pauses (seconds), CLOSE or
SILENT. The script has at most one lie for each *spot*, which is a server and what it answers: "gfmd.attributes".
"""
from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

OK = b"\0\0\0\0"
CLOSE: Final = "close"
SILENT: Final = "silent"
# Commands of gfmd, and those of a gfsd.
BEGIN, END, PUT_FD, GET_FD, OPEN_ROOT, OPEN, CLOSE_FD, VERIFY_TYPE, FSTAT = 64, 65, 67, 68, 80, 82, 84, 85, 96
SCHEDULE, READLINK, SEEK, LIST, STATFS, PROCESS_ALLOC = 102, 117, 120, 121, 178, 224
(GFS_PROCESS_SET, GFS_OPEN, GFS_CLOSE, GFS_PREAD, GFS_FSTAT, GFS_PROCESS_RESET, GFS_BULKREAD) = 0, 2, 3, 4, 8, 24, 27
DIRECTORY, REGULAR, LINK = 4, 8, 10
ENOENT, BAD_FD, BUSY, NOT_DIRECTORY = 2, 9, 11, 20
READ_MAX = 1 << 20

Field = tuple[str, bytes]
Fields = list[Field]
Turn = bytes | float | str
Lie = Callable[[Fields], Iterable[Turn]]


def u32(number: int) -> bytes:
    """`i`, of a number that may be negative."""
    return struct.pack(">I", number & 0xFFFFFFFF)


def u64(number: int) -> bytes:
    """`l`."""
    return struct.pack(">Q", number & 0xFFFFFFFFFFFFFFFF)


def text(data: bytes) -> bytes:
    """`s` and `b`."""
    return u32(len(data)) + data


def status(error: int = 0) -> Fields:
    """The field that each answer begins with."""
    return [("status", u32(error))]


class Script:
    """The lies that are told now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lies: dict[str, tuple[Lie, int | None]] = {}
        self.told: dict[str, int] = {}

    def arm(self, spot: str, lie: Lie, times: int | None = None) -> None:
        """Has the next answers of this spot be lies, all of them or so many."""
        with self._lock:
            self._lies[spot] = (lie, times)

    def disarm(self) -> dict[str, int]:
        """Ends all lies; how often each spot has lied since the last time."""
        with self._lock:
            self._lies.clear()
            told, self.told = self.told, {}
            return told

    def turns(self, spot: str, fields: Fields) -> Iterable[Turn]:
        """The turns that are sent for an answer."""
        with self._lock:
            lie, times = self._lies.get(spot, (None, None))
            if lie is None:
                return [b"".join(data for _name, data in fields)]
            self.told[spot] = self.told.get(spot, 0) + 1
            if times is not None:
                if times <= 1:
                    del self._lies[spot]
                else:
                    self._lies[spot] = (lie, times - 1)
        return lie(list(fields))


@dataclass(frozen=True)
class Node:
    """An object: what it is follows from its name, and what is in it from its number."""

    name: str
    inum: int
    kind: int
    size: int = 0

    @property
    def mode(self) -> int:
        """The mode, with its type."""
        return self.kind << 12 | (0o755 if self.kind == DIRECTORY else 0o644)

    def bytes_at(self, offset: int, length: int) -> bytes:
        """The file's bytes."""
        return content(self.inum, self.size)[offset:offset + length]


_CONTENTS: dict[int, bytes] = {}


def content(inum: int, size: int) -> bytes:
    """The bytes of a file: those of others are others."""
    if inum not in _CONTENTS:
        while len(_CONTENTS) > 8:
            _CONTENTS.pop(next(iter(_CONTENTS)), None)
        _CONTENTS[inum] = random.Random(inum).randbytes(size)
    return _CONTENTS[inum]


ROOT = Node("", 2, DIRECTORY)
TARGET = b"target/of/a/link"
# First letter of a name: what it is, and the number of its first object, far from those of the others.
SMALL_BYTES, BIG_BYTES = 100_003, 4 << 20
KINDS = {"f": (REGULAR, 0x1000_0000, SMALL_BYTES), "b": (REGULAR, 0x2000_0000, BIG_BYTES),
         "d": (DIRECTORY, 0x3000_0000, 0), "l": (LINK, 0x4000_0000, len(TARGET)),
         "h": (REGULAR, 0x7777_0000_0000, SMALL_BYTES)}
ENTRIES = 10


def find(name: str) -> Node | None:
    """The object of a name, f12 or l3, which is the same in each directory; None for others."""
    kind, number = KINDS.get(name[:1]), name[1:]
    if kind is None or not number.isdigit():
        return None
    return Node(name, kind[1] + int(number), kind[0], kind[2])


def entries_of(node: Node) -> list[Node]:
    """The entries of a directory."""
    number = (node.inum & 0xFFFF) * ENTRIES
    found = [Node(".", node.inum, DIRECTORY), Node("..", ROOT.inum, DIRECTORY)]
    return found + [entry for n in range(ENTRIES) if (entry := find(f"f{0x100000 + number + n}"))]


def attributes(node: Node) -> Fields:
    """The attributes, as FSTAT tells them."""
    times: Fields = []
    for which in ("atime", "mtime", "ctime"):
        times += [(which, u64(1_790_000_000)), (f"{which}_ns", u32(5))]
    return [("inum", u64(node.inum)), ("gen", u64(1 if node.kind == REGULAR else 0)), ("mode", u32(node.mode)),
            ("nlink", u64(1)), ("user", text(b"root")), ("group", text(b"gfarmadm")), ("size", u64(node.size)),
            ("ncopy", u64(1)), *times]


def live(node: Node) -> Fields:
    """The attributes, as a gfsd tells them."""
    return [*status(), ("size", u64(node.size)), ("atime", u64(1_790_000_000)), ("atime_ns", u32(5)),
            ("mtime", u64(1_790_000_000)), ("mtime_ns", u32(5))]


def host(name: bytes, port: int, load: int = 0) -> Fields:
    """A gfsd, as SCHEDULE_FILE names it."""
    return [("host", text(name)), ("port", u32(port)), ("ncpu", u32(1)), ("load", u32(load)), ("rest", bytes(36)),
            ("flags", u32(3))]
