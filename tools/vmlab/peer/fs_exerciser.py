# SPDX-License-Identifier: GPL-2.0
"""Exercises a file system, and knows what each file has to hold: as fsx one file, as fsstress trees of files.

    fs_exerciser.py run FOLDER KEPT SEED ALIGN OVER     goes on until the file OVER is there; prints a line of JSON
    fs_exerciser.py check FOLDER KEPT                   after another mount: everything is as it was

Each worker is a process with a folder of its own below FOLDER, and a model in memory: `ONE` workers do to one file
what a system call can do to its bytes, `TREE` workers make, rename, link and remove files and folders. What a worker
does follows from SEED and its number, and every byte that is read is compared with the model. At the end each model is
kept in the folder KEPT, outside of the file system. Direct IO is done in multiples of ALIGN, the disk's logical block.
"""
from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import pickle
import random
import sys
import traceback
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

ONE, TREE = 2, 2
LONGEST, FILE_LONGEST = 256 << 10, 48 << 10
BLOCK = 4096
# The rest of fallocate(2)'s modes (include/uapi/linux/falloc.h).
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO_RANGE, INSERT = 1, 2, 8, 16, 32
# A file system may refuse these; then nothing has happened.
REFUSALS = (errno.EOPNOTSUPP, errno.ENOSPC)
MOST_NAMES = 60
LAST_STEPS = 25


class Wrong(Exception):
    """A thing is not as the model says."""


def compare(what: str, found: bytes, wanted: bytes, at: int = 0) -> None:
    """Says where two contents differ first."""
    if found == wanted:
        return
    if len(found) != len(wanted):
        raise Wrong(f"{what}: {len(found)} bytes at {at}, expected {len(wanted)}")
    first = next(n for n, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other)
    count = sum(one != other for one, other in zip(found, wanted, strict=True))
    raise Wrong(f"{what}: {count} wrong bytes from {at + first} on: {found[first:first + 16].hex()}, "
                f"expected {wanted[first:first + 16].hex()}")


class Worker:
    """The parts that both kinds have: a folder, random numbers, counts, and the steps before a fault."""

    def __init__(self, folder: str, chance: random.Random, align: int) -> None:
        self.folder, self.chance, self.align = folder, chance, align
        self.counts: Counter[str] = Counter()
        self.steps: deque[str] = deque(maxlen=LAST_STEPS)
        self._libc = ctypes.CDLL(None, use_errno=True)

    def step(self) -> None:
        """One random deed."""
        deeds = self.deeds()
        deed = self.chance.choices(list(deeds), list(deeds.values()))[0]
        self.counts[deed.__name__] += 1
        try:
            deed()
        except OSError as error:
            if error.errno not in REFUSALS:
                raise
            self.counts[f"{deed.__name__} refused"] += 1

    def deeds(self) -> dict[Callable[[], None], int]:
        """The steps that there are, and how often of all each is done."""
        raise NotImplementedError

    def check(self) -> None:
        """Compares everything with the model."""
        raise NotImplementedError

    def note(self, *words: object) -> None:
        """Keeps a step for the report of a fault."""
        self.steps.append(" ".join(map(str, words)))

    def bytes(self, count: int) -> bytes:
        """Random ones; some can be told apart by eye."""
        return self.chance.randbytes(count) if self.chance.random() < 0.7 else self.chance.randbytes(1) * count

    def fallocate(self, fd: int, mode: int, at: int, count: int) -> None:
        """fallocate(2), of which Python has one mode."""
        if self._libc.fallocate(ctypes.c_int(fd), ctypes.c_int(mode), ctypes.c_long(at), ctypes.c_long(count)):
            raise OSError(ctypes.get_errno(), f"fallocate mode {mode}")


class OneFile(Worker):
    """One file, and every way to change its bytes and its size, as fsx has them."""

    def __init__(self, folder: str, chance: random.Random, align: int) -> None:
        super().__init__(folder, chance, align)
        self.model = bytearray()
        self.fd = os.open(f"{folder}/file", os.O_RDWR | os.O_CREAT, 0o644)
        self.direct = os.open(f"{folder}/file", os.O_RDWR | os.O_DIRECT)
        self.room = mmap.mmap(-1, 3 * LONGEST)

    def deeds(self) -> dict[Callable[[], None], int]:
        """See `Worker`."""
        return {self.write: 12, self.read: 8, self.write_mapped: 6, self.read_mapped: 5, self.write_direct: 10,
                self.read_direct: 10, self.truncate: 4, self.punch: 4, self.zero: 4, self.collapse: 2, self.insert: 2,
                self.fsync: 2, self.forget: 4}

    def _range(self, limit: int = LONGEST, unit: int = 1) -> tuple[int, int]:
        """A place and a length below a limit, both multiples of a unit; most are short."""
        at = self.chance.randrange(max(1, limit // unit))
        longest = min(limit // unit - at, max(1, (self.chance.choice((8192, 65536, LONGEST))) // unit))
        return at * unit, self.chance.randint(1, max(1, longest)) * unit

    def _put(self, at: int, data: bytes) -> None:
        self.model.extend(bytes(max(0, at + len(data) - len(self.model))))
        self.model[at:at + len(data)] = data

    def write(self) -> None:
        """Through the page cache."""
        at, count = self._range()
        data = self.bytes(count)
        self.note("write", at, count)
        if os.pwrite(self.fd, data, at) != count:
            raise Wrong("a short write")
        self._put(at, data)

    def read(self) -> None:
        """Through the page cache."""
        at, count = self._range()
        self.note("read", at, count)
        compare("read", os.pread(self.fd, count, at), bytes(self.model[at:at + count]), at)

    def write_mapped(self) -> None:
        """Stores to a mapping."""
        if not self.model:
            return
        at, count = self._range(len(self.model))
        data = self.bytes(count)
        self.note("write mapped", at, count)
        with mmap.mmap(self.fd, len(self.model)) as mapped:
            mapped[at:at + count] = data
            if self.chance.random() < 0.3:
                mapped.flush()
        self._put(at, data)

    def read_mapped(self) -> None:
        """Loads from a mapping."""
        if not self.model:
            return
        at, count = self._range(len(self.model))
        self.note("read mapped", at, count)
        with mmap.mmap(self.fd, len(self.model), prot=mmap.PROT_READ) as mapped:
            compare("mapped", mapped[at:at + count], bytes(self.model[at:at + count]), at)

    def _place(self, count: int) -> memoryview:
        """Memory for direct IO: at any multiple of 512 bytes, so pieces are odd."""
        start = self.chance.randrange(64) * 512
        return memoryview(self.room)[start:start + count]

    def write_direct(self) -> None:
        """Past the page cache."""
        at, count = self._range(unit=self.align)
        place = self._place(count)
        place[:] = data = self.bytes(count)
        self.note("write direct", at, count)
        if os.pwritev(self.direct, [place], at) != count:
            raise Wrong("a short direct write")
        self._put(at, data)

    def read_direct(self) -> None:
        """Past the page cache."""
        at, count = self._range(unit=self.align)
        place = self._place(count)
        self.note("read direct", at, count)
        got = os.preadv(self.direct, [place], at)
        compare("direct read", bytes(place[:got]), bytes(self.model[at:at + count]), at)

    def truncate(self) -> None:
        """Shorter or longer."""
        size = self.chance.randrange(LONGEST)
        self.note("truncate", size)
        os.ftruncate(self.fd, size)
        if size < len(self.model):
            del self.model[size:]
        else:
            self._put(size, b"")

    def punch(self) -> None:
        """A hole, which reads as zeroes."""
        at, count = self._range()
        self.note("punch", at, count)
        self.fallocate(self.fd, PUNCH_HOLE | KEEP_SIZE, at, count)
        end = min(at + count, len(self.model))
        if end > at:
            self.model[at:end] = bytes(end - at)

    def zero(self) -> None:
        """Zeroes, perhaps beyond the end."""
        at, count = self._range()
        keeps = self.chance.random() < 0.5
        self.note("zero", at, count, keeps)
        self.fallocate(self.fd, ZERO_RANGE | (KEEP_SIZE if keeps else 0), at, count)
        end = min(at + count, len(self.model)) if keeps else at + count
        if end > at:
            self._put(at, bytes(end - at))

    def collapse(self) -> None:
        """Blocks go, what is behind moves."""
        at, count = self._range(unit=BLOCK)
        if at + count >= len(self.model):
            return
        self.note("collapse", at, count)
        self.fallocate(self.fd, COLLAPSE, at, count)
        del self.model[at:at + count]

    def insert(self) -> None:
        """A hole comes, what is behind moves."""
        at, count = self._range(unit=BLOCK)
        if at >= len(self.model) or len(self.model) + count > LONGEST:
            return
        self.note("insert", at, count)
        self.fallocate(self.fd, INSERT, at, count)
        self.model[at:at] = bytes(count)

    def fsync(self) -> None:
        """Makes it safe."""
        self.note("fsync")
        os.fsync(self.fd)

    def forget(self) -> None:
        """The pages leave the cache: the disk is read."""
        self.note("forget")
        os.fsync(self.fd)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def check(self) -> None:
        """See `Worker`."""
        self.forget()
        compare("file", os.pread(self.fd, 2 * LONGEST, 0), bytes(self.model))

    def kept(self) -> dict[str, Node]:
        """The model, as that of a tree."""
        return {"file": Node(self.model)}


@dataclass(eq=False)
class Node:
    """A file with its bytes, a folder (None), or a symbolic link with its text."""

    what: bytearray | str | None


class Tree(Worker):
    """Files and folders that come, change their names and go, as those of fsstress do."""

    def __init__(self, folder: str, chance: random.Random, align: int) -> None:
        super().__init__(folder, chance, align)
        self.nodes: dict[str, Node] = {}
        self._number = 0

    def deeds(self) -> dict[Callable[[], None], int]:
        """See `Worker`."""
        few = len(self.nodes) < MOST_NAMES
        return {self.create: 14 if few else 1, self.mkdir: 5 if few else 1, self.symlink: 3 if few else 1,
                self.link: 3 if few else 1, self.rename: 8, self.change: 12, self.truncate: 4, self.remove: 10,
                self.read: 12, self.list: 6}

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}" if name else self.folder

    def _names(self, kind: type) -> list[str]:
        return [name for name, node in self.nodes.items() if isinstance(node.what, kind)]

    def _one(self, kind: type) -> str:
        names = self._names(kind)
        return self.chance.choice(names) if names else ""

    def _file(self) -> tuple[str, bytearray]:
        """A file and its model; no name if there is none."""
        name = self._one(bytearray)
        model = self.nodes[name].what if name else None
        return name, model if isinstance(model, bytearray) else bytearray()

    def _new(self) -> str:
        """A name that is not there, in a folder that is."""
        folders = [name for name in self._names(type(None)) if name.count("/") < 3]
        folder = self.chance.choice(["", *folders])
        self._number += 1
        name = f"n{self._number}" + "x" * self.chance.choice((0, 0, 0, 30, 200))
        return f"{folder}/{name}" if folder else name

    def create(self) -> None:
        """A new file with content."""
        name, data = self._new(), self.bytes(self.chance.randrange(FILE_LONGEST))
        self.note("create", name[:20], len(data))
        with open(self._path(name), "xb") as file:
            file.write(data)
            if self.chance.random() < 0.2:
                os.fsync(file.fileno())
        self.nodes[name] = Node(bytearray(data))

    def mkdir(self) -> None:
        """A new folder."""
        name = self._new()
        self.note("mkdir", name[:20])
        os.mkdir(self._path(name))
        self.nodes[name] = Node(None)

    def symlink(self) -> None:
        """A new symbolic link; long texts are in a block of their own."""
        name, text = self._new(), "t" * self.chance.randint(1, 900)
        self.note("symlink", name[:20], len(text))
        os.symlink(text, self._path(name))
        self.nodes[name] = Node(text)

    def link(self) -> None:
        """One more name of a file."""
        if not (old := self._one(bytearray)):
            return
        name = self._new()
        self.note("link", old[:20], name[:20])
        os.link(self._path(old), self._path(name))
        self.nodes[name] = self.nodes[old]

    def rename(self) -> None:
        """Another name for anything, or the place of another file."""
        if not self.nodes:
            return
        old = self.chance.choice(list(self.nodes))
        new = self._new()
        if isinstance(self.nodes[old].what, bytearray) and self.chance.random() < 0.4:
            new = self._one(bytearray)
        if new.startswith(f"{old}/") or self.nodes.get(new) is self.nodes[old]:
            return      # into itself; and two names of a file stay as they are
        self.note("rename", old[:20], new[:20])
        os.rename(self._path(old), self._path(new))
        moved = {name: node for name, node in self.nodes.items() if name == old or name.startswith(f"{old}/")}
        for name in moved:
            del self.nodes[name]
        self.nodes |= {new + name[len(old):]: node for name, node in moved.items()}

    def change(self) -> None:
        """Writes somewhere into a file, or at its end."""
        name, model = self._file()
        if not name:
            return
        at = len(model) if self.chance.random() < 0.4 else self.chance.randrange(FILE_LONGEST)
        data = self.bytes(self.chance.randrange(1, 8192))
        if at + len(data) > FILE_LONGEST:
            return
        self.note("change", name[:20], at, len(data))
        with open(self._path(name), "r+b") as file:
            file.seek(at)
            file.write(data)
        model.extend(bytes(max(0, at + len(data) - len(model))))
        model[at:at + len(data)] = data

    def truncate(self) -> None:
        """Another size for a file."""
        name, model = self._file()
        if not name:
            return
        size = self.chance.randrange(FILE_LONGEST)
        self.note("truncate", name[:20], size)
        os.truncate(self._path(name), size)
        del model[size:]
        model.extend(bytes(size - len(model)))

    def remove(self) -> None:
        """A name goes; a folder only if it is empty."""
        if not self.nodes:
            return
        name = self.chance.choice(list(self.nodes))
        path = self._path(name)
        self.note("remove", name[:20])
        if self.nodes[name].what is not None:
            os.unlink(path)
        elif any(other.startswith(f"{name}/") for other in self.nodes):
            try:
                os.rmdir(path)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                return
            raise Wrong(f"{name}: a folder with names in it was removed")
        else:
            os.rmdir(path)
        del self.nodes[name]

    def read(self) -> None:
        """Compares a file, half of the times from the disk."""
        name, model = self._file()
        if not name:
            return
        with open(self._path(name), "rb") as file:
            if self.chance.random() < 0.5:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            compare(name, file.read(), bytes(model))

    def list(self) -> None:
        """Compares the names of a folder."""
        folder = self.chance.choice(["", *self._names(type(None))])
        compare_names(self._path(folder), folder, self.nodes)

    def check(self) -> None:
        """See `Worker`."""
        check_tree(self.folder, self.nodes)

    def kept(self) -> dict[str, Node]:
        """The model."""
        return self.nodes


def compare_names(path: str, folder: str, nodes: dict[str, Node]) -> None:
    """A folder has the names of the model, and no other."""
    start = f"{folder}/" if folder else ""
    wanted = sorted(name[len(start):] for name in nodes if name.startswith(start) and "/" not in name[len(start):])
    if (found := sorted(os.listdir(path))) != wanted:
        raise Wrong(f"{path}: {sorted(set(found) ^ set(wanted))[:3]} are in one of folder and model")


def check_tree(top: str, nodes: dict[str, Node]) -> None:
    """Checks that everything below a folder is as the model says."""
    compare_names(top, "", nodes)
    for name, node in nodes.items():
        path = f"{top}/{name}"
        if node.what is None:
            compare_names(path, name, nodes)
        elif isinstance(node.what, str):
            if os.readlink(path) != node.what:
                raise Wrong(f"{path}: another link")
        else:
            with open(path, "rb") as file:
                compare(path, file.read(), bytes(node.what))


def work(number: int, folder: str, kept: str, seed: str, align: int, over: str) -> None:
    """A worker, until it is over."""
    mine = f"{folder}/{number}"
    os.mkdir(mine)
    kind = OneFile if number < ONE else Tree
    worker = kind(mine, random.Random(f"{seed} {number}"), align)
    try:
        while not os.path.exists(over) or sum(worker.counts.values()) < 50:
            worker.step()
        worker.check()
    except (OSError, Wrong, ValueError) as error:
        where = "".join(traceback.format_exception(error)[-2:])
        sys.exit(f"worker {number}: {error}\n{where}after: {'; '.join(worker.steps)}")
    with open(f"{kept}/{number}", "wb") as file:
        pickle.dump(worker.kept(), file)
    with open(f"{kept}/{number}.json", "w", encoding="ascii") as text:
        json.dump(worker.counts, text)


def run(folder: str, kept: str, seed: str, align: str, over: str) -> None:
    """All workers; the sum of what they have done."""
    os.makedirs(kept, exist_ok=True)
    children = []
    for number in range(ONE + TREE):
        if not (child := os.fork()):
            work(number, folder, kept, seed, int(align), over)
            sys.stdout.flush()
            os._exit(0)
        children.append(child)
    bad = 0
    for _ in children:
        _child, status = os.wait()
        if status and not bad:
            bad = status
            with open(over, "w", encoding="ascii"):
                pass        # one has found something: the others end
    if bad:
        sys.exit(f"seed {seed}")
    done: Counter[str] = Counter()
    for number in range(ONE + TREE):
        with open(f"{kept}/{number}.json", encoding="ascii") as text:
            done.update(json.load(text))
    print(json.dumps(done))


def check(folder: str, kept: str) -> None:
    """Checks that what the workers have left is there."""
    for number in range(ONE + TREE):
        with open(f"{kept}/{number}", "rb") as file:
            check_tree(f"{folder}/{number}", pickle.load(file))
    print("ok")


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:])
    else:
        check(*sys.argv[2:])
