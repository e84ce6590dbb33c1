# SPDX-License-Identifier: GPL-2.0
"""Runs in a guest: changes objects of a session of rioc_client, and knows what each of them has.

    python3 rioc_ledger.py SESSION SEED WRITERS FOLDER

Each writer has objects of its own, which share blocks by copies, and one operation in flight: what it was answered is
there, once, whatever happens to the server meanwhile. Each sector that is written says where, by whom and when. Until
FOLDER/stop is there the writers go on, and say in FOLDER/N how far they are; then all is read. Prints what is not
right, then `ok` and the number of operations.
"""
from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import random
import struct
import sys
from pathlib import Path

from rioc_fuzzer import ATTACH, CALL, COPY, FIELDS, LAYOUT, READ, SNAPSHOT, WRITE

DELETE, TRUNCATE = 4, 9
FLAG_CREATE = 1
BLOCK, SECTOR = 4096, 512
OBJECTS, SIZE_MAX = 4, 40 * BLOCK
ROOM = SIZE_MAX + 16 * BLOCK


class Writer:
    """One open file, and its objects."""

    def __init__(self, session: str, number: int, seed: str) -> None:
        self.chance = random.Random(f"{seed}.{number}")
        self.number, self.done = number, 0
        self.file = os.open("/dev/rioc", os.O_RDWR)
        self.memory = bytearray(ROOM)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.objects: dict[int, bytearray] = {}
        name = session.encode()
        self.memory[:len(name)] = name
        self.call(ATTACH, length=len(name))

    def call(self, kind: int, **asked: int) -> int:
        """Carries out an operation; how many bytes it has given."""
        fields = dict.fromkeys(FIELDS, 0) | {"version": 1, "kind": kind}
        if kind != ATTACH:
            fields["high"] = 100 + self.number
        if kind in (COPY, SNAPSHOT):
            fields["to_high"] = 100 + self.number
        if kind in (ATTACH, READ, WRITE):
            fields["buffer"] = self.address
        if kind in (COPY, WRITE):
            fields["flags"] = FLAG_CREATE
        request = bytearray(LAYOUT.pack(*(value for value in (fields | asked).values())))
        fcntl.ioctl(self.file, CALL, request)
        self.done += kind != READ
        return int(LAYOUT.unpack(request)[FIELDS.index("length")])

    def grown(self, number: int, end: int) -> bytearray:
        """An object that has at least so many bytes."""
        array = self.objects.setdefault(number, bytearray())
        array.extend(bytes(max(end - len(array), 0)))
        return array

    def put(self, number: int, at: int) -> None:
        """Writes sectors that say what they are."""
        count = self.chance.choice((1, 1, 3, 8, 9, 64))
        sectors = (struct.pack("<QII", at + SECTOR * each, self.number, self.done).ljust(SECTOR, b"%d" % (each % 10))
                   for each in range(count))
        data = b"".join(sectors)
        self.memory[:len(data)] = data
        self.call(WRITE, low=number, offset=at, length=len(data))
        self.grown(number, at + len(data))[at:at + len(data)] = data

    def copy(self, number: int, to: int, at: int) -> None:
        """Copies by reference what may not be whole blocks."""
        length, offset = self.chance.choice((SECTOR, BLOCK, 3 * BLOCK)), at % BLOCK + BLOCK * self.chance.randrange(40)
        self.call(COPY, low=number, offset=at, length=length, to_low=to, to_offset=offset)
        data = self.objects[number][at:at + length].ljust(length, b"\0")
        self.grown(to, offset + length)[offset:offset + length] = data

    def step(self) -> None:
        """One operation."""
        number, to = self.chance.sample(range(OBJECTS), 2)
        at, what = SECTOR * self.chance.randrange(SIZE_MAX // SECTOR), self.chance.randrange(20)
        if number not in self.objects or what > 7:
            self.put(number, at)
        elif what > 2:
            self.copy(number, to, at)
        elif what > 1:
            self.call(SNAPSHOT, low=number, to_low=to)
            self.objects[to] = bytearray(self.objects[number])
        elif what:
            self.call(TRUNCATE, low=number, offset=at)
            self.grown(number, at)
            del self.objects[number][at:]
        else:
            self.call(DELETE, low=number)
            del self.objects[number]

    def wrong(self) -> list[str]:
        """What is not as it was acknowledged."""
        found = []
        for number in range(OBJECTS):
            right = self.objects.get(number)
            try:
                length = self.call(READ, low=number, length=ROOM)
            except OSError as error:
                if right is not None or error.errno != errno.ENOENT:
                    found.append(f"writer {self.number}, object {number}: {error}")
                continue
            there = self.memory[:length]
            if there != right:
                known = right or b""
                at = next((at for at in range(0, max(length, len(known)), SECTOR)
                           if there[at:at + SECTOR] != known[at:at + SECTOR]), -1)
                found.append(f"writer {self.number}, object {number}: {length} bytes, not {len(known)}; at {at} "
                             f"{bytes(there[at:at + 16]).hex()}, not {bytes(known[at:at + 16]).hex()}")
        return found


def tell(folder: Path, writer: Writer) -> None:
    """Writes down how much is done; whoever reads that meanwhile finds a number."""
    told = folder / f"{writer.number}.new"
    told.write_text(f"{writer.done}\n", encoding="ascii")
    told.rename(folder / f"{writer.number}")


def write(writer: Writer, folder: Path) -> int:
    """Writes until it is told to stop, then checks all."""
    while not (folder / "stop").exists():
        writer.step()
        if writer.done % 8 == 0:
            tell(folder, writer)
    found = writer.wrong()
    for line in found:
        print(line, flush=True)
    tell(folder, writer)
    return int(bool(found))


def main() -> None:
    """Runs the writers."""
    session, seed, writers, folder = sys.argv[1:]
    children = []
    for number in range(int(writers)):
        child = os.fork()
        if not child:
            os._exit(write(Writer(session, number, seed), Path(folder)))
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    counts = [int((Path(folder) / f"{number}").read_text(encoding="ascii")) for number in range(len(children))]
    if any(codes):
        sys.exit(f"writers ended with {codes}")
    print("ok", sum(counts))


if __name__ == "__main__":
    main()
