# SPDX-License-Identifier: GPL-2.0
"""Writes the archive format of the kernel's initramfs ("newc"), unprivileged and in pure Python."""
from __future__ import annotations

import stat
from pathlib import Path
from typing import BinaryIO

MAGIC = b"070701"
TRAILER = "TRAILER!!!"


class Archive:
    """An archive that is being written. Parents of a member are made on the way.

    Owner and group are always root. Modification times are kept, because Python trusts a compiled
    file only if its source has the time written in it.
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._inode = 0
        self._folders: set[str] = set()

    def folder(self, path: str) -> None:
        """Adds a folder and its parents, once."""
        path = path.strip("/")
        if not path or path in self._folders:
            return
        self.folder(path.rpartition("/")[0])
        self._folders.add(path)
        self._member(path, stat.S_IFDIR | 0o755, b"")

    def file(self, path: str, data: bytes, mode: int = 0o644, mtime: int = 0) -> None:
        """Adds a regular file."""
        self.folder(path.strip("/").rpartition("/")[0])
        self._member(path.strip("/"), stat.S_IFREG | mode, data, mtime)

    def link(self, path: str, target: str) -> None:
        """Adds a symbolic link."""
        self.folder(path.strip("/").rpartition("/")[0])
        self._member(path.strip("/"), stat.S_IFLNK | 0o777, target.encode())

    def copy(self, path: str, source: Path) -> None:
        """Adds a host file (what a link points to, not the link), executable if the source is."""
        info = source.stat()
        mode = 0o755 if info.st_mode & 0o100 else 0o644
        self.file(path, source.read_bytes(), mode, int(info.st_mtime))

    def close(self) -> None:
        """Writes the trailer; the stream stays open, another archive may follow it."""
        self._member(TRAILER, 0, b"")

    def _member(self, name: str, mode: int, data: bytes, mtime: int = 0) -> None:
        self._inode += 1
        raw = name.encode() + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        numbers = (self._inode, mode, 0, 0, links, mtime, len(data), 0, 0, 0, 0, len(raw), 0)
        head = MAGIC + b"".join(b"%08X" % number for number in numbers) + raw
        for part in (head, data):
            self._out.write(part)
            self._out.write(bytes(-len(part) % 4))
