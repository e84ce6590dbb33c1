# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest of the server: `python3 rioc_backing_deeds.py NAME ADDRESS FOLDER` does one thing to the store
`bb`, whose objects have files in the folder, and judges what it answers; prints `ok` at the end."""
from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path

import rioc_wire as w
from rioc_deeds import fill, refused
from rioc_wire import BLOCK, Object, Rioc

Deed = Callable[[str, Path], None]
DEEDS: dict[str, Deed] = {}
OBJECTS, BLOCKS = 32, 16


def deed(function: Deed) -> Deed:
    """Registers one under its function's name."""
    DEEDS[function.__name__] = function
    return function


def edges(blocks: int) -> range:
    """Where two bytes are written: the last one of a block, and the first one of the next."""
    return range(BLOCK - 1, blocks * BLOCK, 2 * BLOCK)


def content(number: int) -> bytearray:
    """The bytes of an object."""
    array = bytearray(BLOCKS * BLOCK - BLOCK + 1)
    for at in edges(BLOCKS):
        array[at:at + 2] = bytes([at // BLOCK % 251 + 1, number])
    return array


def there() -> dict[Object, bytearray]:
    """What `objects_are_left` leaves: twice the memory."""
    all_of = {(number, 7): content(number) for number in range(OBJECTS)}
    del all_of[4, 7]
    del all_of[3, 7][10_000:]
    all_of[5, 7][2 * BLOCK + 5:2 * BLOCK + 9] = b"part"
    all_of[100, 7] = bytearray(100) + all_of[8, 7][BLOCK + 100:5 * BLOCK + 100]
    all_of[101, 7] = bytearray(all_of[6, 7])
    all_of[102, 7] = bytearray()
    return all_of


def compare(c: Rioc, all_of: dict[Object, bytearray]) -> None:
    """Objects are as they should be, at the edges of each third block, which are others in each object."""
    assert c.list() == set(all_of), c.list() ^ set(all_of)
    for of, array in all_of.items():
        assert c.stat(of)[0] == len(array), (of, c.stat(of), len(array))
        for at in range((of[0] % 3 + 1) * BLOCK - 2, len(array), 3 * BLOCK):
            found = c.get(of, at, 5)
            assert found == array[at:at + 5], (of, at, found, array[at:at + 5])


@deed
def objects_are_left(address: str, folder: Path) -> None:
    """Leaves objects that do not fit into the memory, all of them flushed, and changes that are not."""
    c, all_of = Rioc(address).begin(), there()
    assert c.has_backing and not c.is_durable
    for number in range(OBJECTS):
        array = content(number)
        for at in edges(BLOCKS):
            c.put((number, 7), at, bytes(array[at:at + 2]), w.FLAG_CREATE)
    c.delete((4, 7))
    c.truncate((3, 7), 10_000)
    c.put((5, 7), 2 * BLOCK + 5, b"part")
    c.copy((8, 7), BLOCK + 100, 4 * BLOCK, (100, 7), 100, w.FLAG_CREATE)
    c.snapshot((6, 7), (101, 7))
    c.create((102, 7))
    compare(c, all_of)
    for of in (*all_of, (4, 7)):
        c.ask(w.FLUSH, of)
    names = {f"{high:016x}{low:016x}": array for (high, low), array in all_of.items()}
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert files.keys() - names.keys() <= {"of somebody else"}, files.keys() ^ names.keys()
    assert all(files[name] == array for name, array in names.items()), "the files"
    compare(c, all_of)


@deed
def objects_are_found(address: str, _folder: Path) -> None:
    """All of them are there, and go on."""
    c, all_of = Rioc(address, name=b"behind").begin(), there()
    compare(c, all_of)
    assert c.get((7, 7), 0, 8) == bytes(8)
    c.put((7, 7), 3, b"new")
    c.ask(w.FLUSH, (7, 7))
    # This is written when the store ends.
    c.put((7, 7), 3, bytes(3))


@deed
def a_file_is_there(address: str, _folder: Path) -> None:
    """Leaves an object whose file has other bytes than those that follow."""
    c, of = Rioc(address, name=b"before").begin(), (1, 1)
    c.put(of, BLOCK - 1, b"ab", w.FLAG_CREATE)
    c.ask(w.FLUSH, of)


@deed
def a_flush_fails(address: str, _folder: Path) -> None:
    """It is EIO, and loses nothing: a read has what was written, again and again."""
    c, of = Rioc(address).begin(), (1, 1)
    c.put(of, BLOCK - 1, b"xy", w.FLAG_CREATE)
    for _ in range(3):
        refused(errno.EIO, lambda: c.ask(w.FLUSH, of))
        assert c.get(of, BLOCK - 2, 4) == b"\0xy"


@deed
def a_flush_hangs(address: str, _folder: Path) -> None:
    """It is answered when its store is deleted, and says nothing of what is written."""
    c, of = Rioc(address).begin(), (1, 1)
    c.put(of, BLOCK - 1, b"xy", w.FLAG_CREATE)
    refused(errno.ENODEV, lambda: c.ask(w.FLUSH, of))


@deed
def a_flush_goes_on(address: str, folder: Path) -> None:
    """What could not be written is there, and is written now."""
    c, of = Rioc(address, name=b"behind").begin(), (1, 1)
    assert c.get(of, BLOCK - 2, 4) == b"\0xy"
    c.ask(w.FLUSH, of)
    assert (folder / f"{1:016x}{1:016x}").read_bytes() == bytes(BLOCK - 1) + b"xy"


@deed
def files_are_full(address: str, _folder: Path) -> None:
    """Writes are ENOSPC when memory and files are full; all that was acknowledged is there, and room helps."""
    c, done = Rioc(address).begin(), 0
    try:
        while done < 100:
            fill(c, done)
            done += 1
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    assert 16 <= done < 100, done
    for number in range(done):
        assert c.get((number, 0), BLOCK - 2, 5) == b"\0xx\0\0", number
    for number in range(done):
        c.delete((number, 0))
    c.ask(w.FLUSH, (0, 0))
    for number in range(200, 218):
        fill(c, number)
    for number in range(200, 218):
        assert c.get((number, 0), BLOCK - 2, 5) == b"\0xx\0\0", number
        c.delete((number, 0))


if __name__ == "__main__":
    DEEDS[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
    print("ok")
