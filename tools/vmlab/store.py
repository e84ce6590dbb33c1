# SPDX-License-Identifier: GPL-2.0
"""The lab's folder in the cache: things that are made once, named by what they are made of."""
from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmlab.assets import cache_dir


def store() -> Path:
    """The folder."""
    folder = cache_dir() / "vmlab"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Only one process at a time makes a thing of this name."""
    with open(store() / f"{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def digest(*parts: str | bytes) -> str:
    """One name for all these inputs."""
    total = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        total.update(len(raw).to_bytes(8, "little") + raw)
    return total.hexdigest()[:16]


def stamp(path: Path) -> str:
    """The mark that tells one making of a file from another."""
    info = path.stat()
    return f"{path.name} {info.st_size} {info.st_mtime_ns}"


def use(path: Path) -> Path:
    """Notes that it is in use: the time of access is that of the last use, the time of change that of the making."""
    os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    return path


def remove(path: Path) -> None:
    """Removes a file or a folder that may be gone already."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def prune(pattern: str, kept: int) -> None:
    """Keeps those of a kind that were used last. A running machine goes on with a file that was removed."""
    found = sorted(store().glob(pattern), key=lambda p: p.stat().st_atime_ns, reverse=True)
    for path in found[kept:]:
        remove(path)
