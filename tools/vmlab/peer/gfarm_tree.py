# SPDX-License-Identifier: GPL-2.0
"""A tree of files with odd names, made through one mount and compared between two.

    gfarm_tree.py make FOLDER COUNT         makes COUNT entries in FOLDER, the same ones each time
    gfarm_tree.py compare FOLDER OTHER [without-times]
                                            prints what `digest` does of both, or what differs (status 1)
    gfarm_tree.py digest FOLDER             prints the number of entries and of bytes, and a digest
"""
from __future__ import annotations

import hashlib
import os
import random
import stat
import sys
from collections.abc import Iterator

# Path, kind with mode, size, time of change, content.
Entry = tuple[bytes, str, int, int, str]

LONG = 255
DIRECTORIES, LINKS, FILES = 40, 100, 60     # of each 1,000 entries; the others are empty files
TIMES = 1_000_000_000
# Of a name each, beside its number.
ODD = (" ", "  two  spaces ", "-rf", "ü", "日本語", "🐟", "a\tb", "new\nline", "quo'te", 'quo"te', "back\\slash", "*",
       "?", "$HOME", "`x`", "%s%n", "~", "#", ";", "&", "|", "<>", ".hidden", "...", "\x7f", "\x01", "e\u0301", "(",
       "[x]", "{a,b}", "!", "=", "+", ",", "@", ":", "trailing ", "trailing.", "CON", "é" * 100)


def name(number: int) -> str:
    """The name of an entry: each has its number in it, every tenth is as long as a name can be."""
    text = f"{ODD[number % len(ODD)]}{number}"
    if number % 10 == 7:
        text += "x" * (LONG - len(text.encode()))
    assert len(text.encode()) <= LONG
    return text


def content(number: int) -> bytes:
    """The bytes of a file, of a few sizes."""
    size = (1, 4095, 4096, 4097, 10_007, 65_536)[number % 6]
    return random.Random(number).randbytes(size)


def make(folder: str, count: int) -> int:
    """Directories first, each in the one before or beside it; of the others half are in one of them."""
    places = [os.path.join(folder, "many")]
    os.mkdir(places[0])
    kinds = random.Random(5)
    for number in range(1, count):
        kind = number % 1000
        if kind < DIRECTORIES:
            parent = places[-1] if kind % 4 else folder
            path = os.path.join(parent, name(number))
            os.mkdir(path)
            places.append(path)
            continue
        parent = places[0] if number % 2 else kinds.choice(places)
        path = os.path.join(parent, name(number))
        if kind < DIRECTORIES + LINKS:
            os.symlink(name(number - 1) if number % 3 else "/nowhere/at all", path)
        else:
            with open(path, "xb", buffering=0) as file:
                if kind < DIRECTORIES + LINKS + FILES:
                    file.write(content(number))
            if kind % 7 == 0:
                os.chmod(path, (0o600, 0o755, 0o444, 0o640)[number % 4])
            if kind % 11 == 0:
                os.utime(path, ns=(0, (TIMES + number) * 1_000_000_000 + number))
    return count


def entries(folder: bytes, times: bool = True) -> Iterator[Entry]:
    """Each entry, in an order that does not depend on the file system's."""
    stack = [b""]
    while stack:
        inner = stack.pop()
        with os.scandir(os.path.join(folder, inner)) as found:
            names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)
        for entry, is_directory in names:
            path = os.path.join(inner, entry)
            whole = os.path.join(folder, path)
            told = os.lstat(whole)
            assert is_directory == stat.S_ISDIR(told.st_mode), path
            held = ""
            if stat.S_ISLNK(told.st_mode):
                held = os.readlink(whole).hex()
            elif stat.S_ISREG(told.st_mode) and told.st_size:
                with open(whole, "rb") as file:
                    held = hashlib.file_digest(file, "sha256").hexdigest()
            # gfmd keeps none for links.
            size = told.st_size if stat.S_ISREG(told.st_mode) else 0
            yield path, oct(told.st_mode), size, told.st_mtime_ns if times else 0, held
            if is_directory:
                stack.append(path)


class Summary:
    """Sums of a tree, which are printed."""

    def __init__(self) -> None:
        self.count = self.total = 0
        self._found = hashlib.sha256()

    def add(self, entry: Entry) -> None:
        """One entry more."""
        self.count += 1
        self.total += entry[2]
        self._found.update(repr(entry).encode())

    def __str__(self) -> str:
        return f"{self.count} {self.total} {self._found.hexdigest()}"


def compare(folder: str, other: str, times: bool = True) -> int:
    """Both trees side by side; status 1 at the first difference."""
    both = Summary()
    left, right = entries(os.fsencode(folder), times), entries(os.fsencode(other), times)
    for mine in left:
        its = next(right, None)
        if mine != its:
            print(f"entry {both.count}: {mine} in {folder}, {its} in {other}")
            return 1
        both.add(mine)
    if (more := next(right, None)) is not None:
        print(f"only in {other}: {more}")
        return 1
    print(both)
    return 0


def main(arguments: list[str]) -> int:
    """Runs one command."""
    match arguments:
        case ["make", folder, count]:
            print(make(folder, int(count)))
        case ["compare", folder, other]:
            return compare(folder, other)
        case ["compare", folder, other, "without-times"]:
            return compare(folder, other, times=False)
        case ["digest", folder]:
            summary = Summary()
            for entry in entries(os.fsencode(folder)):
                summary.add(entry)
            print(summary)
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
