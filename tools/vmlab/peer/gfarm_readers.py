# SPDX-License-Identifier: GPL-2.0
"""Readers of every kind, of files that a writer changes meanwhile: what each byte says is checked.

    gfarm_readers.py write FOLDER LEDGER SEED           a writer of all files, in a mount that can be written
    gfarm_readers.py read FOLDER LEDGER SEED SECONDS    a reader, in the mount under test

The writer goes on until there is a file LEDGER.end, the reader for so long and until it has read each file in each
way. Each prints a line of JSON. The first versions of all files are there when there is a file LEDGER. It is shared
memory: of each file the version that was begun last, and the one that was completed last.

A file consists of cells of 16 bytes: its number with the version, and the cell's place. Before them is the head of a
program that writes its own file to its standard output, so that executing the file is a way to read it.

The rules, for an open between whose begin and whose last byte the ledger has told the versions FIRST (completed before
the open) to LAST (begun before the last byte was there):

- No cell is of another version, at another place, or of another file; a cell of zeroes was never written.
- Is FIRST also LAST, nothing was written meanwhile: then each byte and the size are those of this version.
- A file that is replaced by a rename, or removed before, is one version for an open file, from begin to end.
- What is read again by the same open file is not older than before.
"""
from __future__ import annotations

import ctypes
import errno
import io
import itertools
import json
import mmap
import operator
import os
import random
import struct
import subprocess
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

HEAD, CELL, PAGE = 256, 16, 4096
REPLACE, REMOVE, REWRITE, UPDATE = "replace", "remove", "rewrite", "update"
ANEW = (REPLACE, REMOVE)        # each version is another file
# Where the program is loaded to, and the longest file, which it writes as far as it goes.
BASE, LONGEST = 0x400000, 1 << 18
WRITE_BYTES, READ_BYTES = 16 << 10, 30_000
PAUSE_SECONDS, BETWEEN_SECONDS = 0.3, 0.2
NR_URING_SETUP, NR_URING_ENTER, OP_READ, WAIT = 425, 426, 22, 1
PARTS, SHOWN = 8, 5


@dataclass(frozen=True)
class File:
    """A file that has versions."""

    number: int
    kind: str
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name in its folder."""
        return f"{self.kind}{self.number}"

    def size(self, version: int) -> int:
        """The bytes of a version."""
        return self.sizes[version % len(self.sizes)]

    def tag(self, version: int) -> int:
        """The first half of each cell of a version."""
        return self.number << 32 | version

    def content(self, version: int) -> bytes:
        """All bytes of a version."""
        cells = (self.size(version) - HEAD) // CELL
        words = array("Q", bytes(cells * CELL))
        words[0::2] = array("Q", [self.tag(version)]) * cells
        words[1::2] = array("Q", range(cells))
        return PROGRAM + words.tobytes()


# A file is replaced by another one, removed before that, written anew from its beginning, or changed in its place.
FILES = (
    File(1, REPLACE, (65_536, 20_496, 131_072, 4096, 50_000)), File(2, REPLACE, (272, 8192, 70_000)),
    File(3, REWRITE, (65_536, 20_496, 131_072, 4096, 50_000)), File(4, REWRITE, (8192, 272, 70_000, 8176)),
    File(5, UPDATE, (131_072,)), File(6, UPDATE, (20_496,)), File(7, REMOVE, (20_496, 65_536, 272)),
)


def _program() -> bytes:
    """The head of each file: for x86-64, loaded as a whole, writes itself until a write fails."""
    code = (b"\xbe" + struct.pack("<I", BASE) + b"\xbb" + struct.pack("<I", LONGEST)    # rsi = BASE, ebx = LONGEST
            + b"\xbf\1\0\0\0\x89\xda\xb8\1\0\0\0\x0f\x05"                               # write(1, rsi, ebx)
            + b"\x48\x85\xc0\x7e\x07\x48\x01\xc6\x29\xc3\x75\xe6"                       # again, for what is left
            + b"\x31\xff\xb8\xe7\0\0\0\x0f\x05")                                        # exit_group(0)
    entry = BASE + 64 + 56
    elf = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 62, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, LONGEST, LONGEST, PAGE)
    return (elf + load + code).ljust(HEAD, b"\0")


PROGRAM = _program()


class Ledger:
    """Versions that were begun and completed, shared by all processes. Each number is written by one instruction."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), PAGE)).cast("I")

    def begin(self, file: File, version: int) -> None:
        """Bytes of the version may be seen from now on."""
        self._words[2 * file.number] = version

    def complete(self, file: File, version: int) -> None:
        """Notes that a process that opens the file from now on sees this version, or a later one."""
        self._words[2 * file.number + 1] = version

    def begun(self, file: File) -> int:
        """The latest version that was begun."""
        return self._words[2 * file.number]

    def completed(self, file: File) -> int:
        """The latest version that is complete."""
        return self._words[2 * file.number + 1]


# -- the writer --------------------------------------------------------------------------------------------


class Writer:
    """Writes one version after the other."""

    def __init__(self, folder: str, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance

    def _write(self, path: str, flags: int, text: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | flags, 0o755)
        try:
            for at in range(0, len(text), WRITE_BYTES):
                os.write(fd, text[at:at + WRITE_BYTES])
                if self.chance.random() < 0.2:
                    time.sleep(0.02)
        finally:
            os.close(fd)
        # gfarm2fs closes the file after close(2) has returned. With one thread it answers this after it has.
        os.statvfs(self.folder)

    def first(self, file: File) -> None:
        """Makes a file."""
        self._write(f"{self.folder}/{file.name}", os.O_CREAT | os.O_EXCL, file.content(1))

    def next(self, ledger: Ledger, file: File) -> None:
        """Writes the next version of a file."""
        version = ledger.completed(file) + 1
        path, text = f"{self.folder}/{file.name}", file.content(version)
        if file.kind in ANEW:
            self._write(f"{path}.new", os.O_CREAT | os.O_EXCL, text)
            ledger.begin(file, version)
            if file.kind == REMOVE:
                os.unlink(path)
            os.rename(f"{path}.new", path)
        else:
            ledger.begin(file, version)
            self._write(path, os.O_TRUNC if file.kind == REWRITE else 0, text)
        ledger.complete(file, version)


def write(folder: str, path: str, seed: str) -> dict[str, object]:
    """Writes until it is over."""
    chance = random.Random(f"writer{seed}")
    writer = Writer(folder, chance)
    for file in FILES:
        writer.first(file)
    with open(f"{path}.new", "wb") as made:
        made.truncate(PAGE)
    ledger = Ledger(f"{path}.new")
    for file in FILES:
        ledger.begin(file, 1)
        ledger.complete(file, 1)
    os.rename(f"{path}.new", path)
    while not os.path.exists(f"{path}.end"):
        writer.next(ledger, chance.choice(FILES))
        time.sleep(chance.uniform(0, PAUSE_SECONDS))
    return {"versions": {file.name: ledger.completed(file) for file in FILES}}


# -- ways to read ------------------------------------------------------------------------------------------


def _memory() -> io.FileIO:
    """A file in memory."""
    return open(os.memfd_create("target"), "w+b", buffering=0)


def _collected(file: io.FileIO) -> bytes:
    """The content, from its beginning."""
    file.seek(0)
    return file.read()


def by_read(fd: int) -> bytes:
    """read(2), some pages at a time."""
    os.lseek(fd, 0, os.SEEK_SET)
    return b"".join(iter(lambda: os.read(fd, READ_BYTES), b""))


def joined(parts: list[bytes], size: int) -> bytes:
    """Parts of this size that follow one another, as far as the first that is short: there was the end of the file."""
    whole = next((index for index, part in enumerate(parts) if len(part) < size), len(parts))
    return b"".join(parts[:whole + 1])


def by_pread(fd: int) -> bytes:
    """pread(2), from the end to the beginning: nothing is read ahead."""
    parts = [os.pread(fd, READ_BYTES, at) for at in reversed(range(0, os.fstat(fd).st_size, READ_BYTES))]
    return joined(parts[::-1], READ_BYTES)


def by_mmap(fd: int) -> bytes:
    """A shared mapping. A system call takes the bytes from there: it ends behind the file's end, and no signal does."""
    try:
        mapped = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    except ValueError:      # an empty file
        return b""
    size, done = len(mapped), 0
    with _memory() as target, mapped, memoryview(mapped) as view:
        while done < size:
            try:
                with view[done:] as rest:
                    done += os.write(target.fileno(), rest)
            except OSError as why:
                if why.errno != errno.EFAULT:
                    raise
                break
        return _collected(target)


def by_splice(fd: int) -> bytes:
    """splice(2): the pages themselves are in the pipe."""
    os.lseek(fd, 0, os.SEEK_SET)
    source, sink = os.pipe()
    parts = []
    try:
        while count := os.splice(fd, sink, READ_BYTES):
            while count:
                parts.append(os.read(source, count))
                count -= len(parts[-1])
    finally:
        os.close(source)
        os.close(sink)
    return b"".join(parts)


def by_sendfile(fd: int) -> bytes:
    """sendfile(2) to a file in memory."""
    os.lseek(fd, 0, os.SEEK_SET)
    with _memory() as target:
        while os.sendfile(target.fileno(), fd, None, 1 << 20):
            pass
        return _collected(target)


def by_direct(fd: int) -> bytes:
    """O_DIRECT, with which the file was opened: past the page cache."""
    at, parts = 0, list[bytes]()
    with mmap.mmap(-1, 1 << 16) as room:
        while count := os.preadv(fd, [room], at):
            parts.append(room[:count])
            at += count
    return b"".join(parts)


class Ring:
    """io_uring without a library: so many reads are submitted and awaited by one call."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        told = (ctypes.c_uint32 * 30)()
        self._fd = self._call(NR_URING_SETUP, PARTS, told)
        # Of the rings: where head, tail, mask and entries are (include/uapi/linux/io_uring.h).
        self._sq, self._cq = list(told[10:20]), list(told[20:30])
        self._sq_ring = mmap.mmap(self._fd, self._sq[6] + 4 * told[0], offset=0)
        self._cq_ring = mmap.mmap(self._fd, self._cq[5] + 16 * told[1], offset=0x8000000)
        self._entries = mmap.mmap(self._fd, 64 * told[0], offset=0x10000000)

    def _call(self, number: int, *arguments: object) -> int:
        result = self._libc.syscall(ctypes.c_long(number), *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"system call {number}")
        return int(result)

    @staticmethod
    def _word(ring: mmap.mmap, at: int) -> int:
        return int(struct.unpack_from("=I", ring, at)[0])

    def submit(self, entries: list[bytes]) -> list[int]:
        """Does what up to `PARTS` entries say, whose user data are their places in the list; the result of each."""
        tail, mask = self._word(self._sq_ring, self._sq[1]), self._word(self._sq_ring, self._sq[2])
        for slot, entry in ((tail + number & mask, entry) for number, entry in enumerate(entries)):
            self._entries[64 * slot:64 * slot + 64] = entry
            struct.pack_into("=I", self._sq_ring, self._sq[6] + 4 * slot, slot)
        struct.pack_into("=I", self._sq_ring, self._sq[1], (tail + len(entries)) & 0xffffffff)
        self._call(NR_URING_ENTER, self._fd, len(entries), len(entries), WAIT, None, 0)
        head, mask = self._word(self._cq_ring, self._cq[0]), self._word(self._cq_ring, self._cq[2])
        results: dict[int, int] = dict(struct.unpack_from("=Qi", self._cq_ring, self._cq[5] + 16 * (place & mask))
                                       for place in range(head, head + len(entries)))
        struct.pack_into("=I", self._cq_ring, self._cq[0], (head + len(entries)) & 0xffffffff)
        return [results[number] for number in range(len(entries))]

    def read(self, fd: int, ranges: list[tuple[int, int]]) -> list[bytes]:
        """Reads ranges (position, length) of a file at the same time."""
        rooms = [ctypes.create_string_buffer(max(1, length)) for _at, length in ranges]
        results = self.submit([struct.pack("=BBHiQQIIQ24x", OP_READ, 0, 0, fd, *ranges[n][:1], ctypes.addressof(room),
                                           ranges[n][1], 0, n) for n, room in enumerate(rooms)])
        if (worst := min(results)) < 0:
            raise OSError(-worst, os.strerror(-worst), "io_uring")
        return [room.raw[:result] for room, result in zip(rooms, results, strict=True)]

    def __call__(self, fd: int) -> bytes:
        """Reads a whole file, eight parts of it at a time."""
        size = os.fstat(fd).st_size
        part = max(PAGE, -(-size // PARTS))
        return joined(self.read(fd, [(at, part) for at in range(0, size, part)]), part) if size else b""


def by_exec(path: str) -> bytes:
    """Executes the file: the kernel maps it, and it writes itself."""
    return subprocess.run([path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False).stdout


Way = Callable[[int], bytes]
MAPPED = ("mmap", "exec")


def ways() -> dict[str, Way | None]:
    """All but exec are told a descriptor."""
    return {"read": by_read, "pread": by_pread, "mmap": by_mmap, "splice": by_splice, "sendfile": by_sendfile,
            "direct": by_direct, "io_uring": Ring(), "exec": None}


# -- the checker -------------------------------------------------------------------------------------------


def is_version(file: File, seen: bytes, version: int, is_mapped: bool) -> bool:
    """Whether these are all bytes of a version; a mapping has zeroes behind them, up to the end of the page."""
    size = file.size(version)
    if len(seen) != size and not (is_mapped and size < len(seen) <= -(-size // PAGE) * PAGE):
        return False
    return seen[:size] == file.content(version) and not any(seen[size:])


def tags(seen: bytes) -> array[int]:
    """The first halves of all cells."""
    return array("Q", seen[HEAD:HEAD + max(0, len(seen) - HEAD) // CELL * CELL])[0::2]


def wrong_cell(file: File, seen: bytes, first: int, last: int, is_mapped: bool) -> str:
    """The first cell that cannot be; "" if there is none."""
    words = array("Q", seen[HEAD:HEAD + max(0, len(seen) - HEAD) // CELL * CELL])
    found, places = words[0::2], words[1::2]
    least, most = file.tag(first), file.tag(last)
    if not found or (places == array("Q", range(len(places))) and least <= min(found) and max(found) <= most):
        return ""
    for index, (tag, place) in enumerate(zip(found, places, strict=True)):
        at = HEAD + CELL * index
        if place == index and least <= tag <= most:
            continue
        # Behind the end that the file had when a page of it was read there are zeroes, up to the end of the page.
        if is_mapped and at % PAGE and not any(seen[at:-(-at // PAGE) * PAGE]):
            continue
        return f"at {at} is version {tag & 0xffffffff} of file {tag >> 32}, for place {place * CELL + HEAD}"
    return ""


def complaint(file: File, seen: bytes, first: int, last: int, is_mapped: bool) -> str:
    """The fault of the bytes of an open file, "" if there is none."""
    versions = f"{len(seen)} bytes, versions {first} to {last} may be there"
    if first == last or file.kind in ANEW:
        if any(is_version(file, seen, version, is_mapped) for version in range(first, last + 1)):
            return ""
        counted = dict(Counter(tag & 0xffffffff for tag in tags(seen)))
        return f"{versions}: not one whole version: {counted}, {wrong_cell(file, seen, first, last, False)}"
    if file.kind == UPDATE and not is_mapped and len(seen) != file.size(first):
        return f"{versions}: another size"
    if seen[:HEAD] != PROGRAM[:len(seen)] and not (is_mapped and not any(seen)):
        return f"{versions}: another head"
    wrong = wrong_cell(file, seen, first, last, is_mapped)
    return f"{versions}: {wrong}" if wrong else ""


def is_older(before: bytes, now: bytes) -> bool:
    """Whether a cell is of an earlier version than when the same open file was read before. Zeroes are judged above."""
    pairs = tags(before), tags(now)
    return not all(map(operator.le, *pairs)) and any(0 < new < old for old, new in zip(*pairs, strict=False))


# -- the reader --------------------------------------------------------------------------------------------


class Reader:
    """Opens files and reads them, one after the other."""

    def __init__(self, folder: str, ledger: Ledger, chance: random.Random) -> None:
        self.folder, self.ledger, self.chance = folder, ledger, chance
        self.ways = ways()
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []

    def _judge(self, file: File, way: str, seen: bytes, first: int, last: int) -> None:
        kind = "quiet" if first == last else "changing"
        self.counts[f"{kind} {way}"] += 1
        self.counts[f"{kind} {file.kind}"] += 1
        if wrong := complaint(file, seen, first, last, way in MAPPED):
            self.faults.append(f"{file.name} by {way}: {wrong}")

    def _execute(self, file: File) -> None:
        first = self.ledger.completed(file)
        try:
            seen = by_exec(f"{self.folder}/{file.name}")
        except OSError as why:
            if why.errno != errno.ENOEXEC or file.kind != REWRITE or first == self.ledger.begun(file):
                raise
            self.counts["short exec"] += 1      # what was cut off is no program while it is short
            return
        self._judge(file, "exec", seen, first, self.ledger.begun(file))

    def _open(self, file: File, flags: int) -> int | None:
        """A file that is replaced twice while its name is looked up is stale for open(2)."""
        try:
            return os.open(f"{self.folder}/{file.name}", os.O_RDONLY | flags)
        except OSError as why:
            if why.errno != errno.ESTALE or file.kind not in ANEW:
                raise
            self.counts["stale"] += 1
            return None

    def _read(self, file: File, name: str, way: Way) -> None:
        """Opens a file and reads it once, or again after pauses, in which versions come and go."""
        first = self.ledger.completed(file)
        fd = self._open(file, os.O_DIRECT if name == "direct" else 0)
        if fd is None:
            return
        try:
            before = b""
            for turn in range(self.chance.choice((1, 1, 3))):
                if turn:
                    time.sleep(self.chance.uniform(0, BETWEEN_SECONDS))
                if self.chance.random() < 0.3:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                seen = way(fd)
                self._judge(file, name, seen, first, self.ledger.begun(file))
                if turn and (before != seen if file.kind in ANEW else is_older(before, seen)):
                    self.faults.append(f"{file.name} by {name}: other bytes than before, or older ones")
                before = seen
        finally:
            os.close(fd)

    def round(self) -> list[tuple[File, str]]:
        """Each file with each way, in some order."""
        pairs = [(file, name) for file in FILES for name in self.ways]
        return self.chance.sample(pairs, len(pairs))

    def turn(self, file: File, name: str) -> None:
        """Reads a file in a way."""
        way, first = self.ways[name], self.ledger.completed(file)
        try:
            self._execute(file) if way is None else self._read(file, name, way)
        except OSError as why:
            if file.kind != REMOVE or why.errno != errno.ENOENT or first == self.ledger.begun(file):
                self.faults.append(f"{file.name} by {name}: {why}")


def read(folder: str, path: str, seed: str, seconds: float) -> dict[str, object]:
    """Reads for so long, and each file in each way, or until too much is wrong."""
    reader, end = Reader(folder, Ledger(path), random.Random(f"reader{seed}")), time.monotonic() + seconds
    for number, (file, name) in enumerate(itertools.chain.from_iterable(iter(reader.round, []))):
        if len(reader.faults) >= SHOWN or (number >= len(FILES) * len(reader.ways) and time.monotonic() >= end):
            break
        reader.turn(file, name)
    return {"counts": reader.counts, "faults": reader.faults[:SHOWN]}


def main(arguments: list[str]) -> int:
    """Runs one command."""
    match arguments:
        case ["write", folder, ledger, seed]:
            print(json.dumps(write(folder, ledger, seed)))
        case ["read", folder, ledger, seed, seconds]:
            print(json.dumps(read(folder, ledger, seed, float(seconds))))
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
