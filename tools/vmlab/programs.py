# SPDX-License-Identifier: GPL-2.0
"""Gathers programs, with the libraries they load, from a foreign Debian root."""
from __future__ import annotations

import os
import subprocess
from pathlib import Path

from vmlab import elf
from vmlab.assets import AssetError
from vmlab.cpio import Archive

LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib")
PROGRAM_FOLDERS = ("usr/bin", "usr/sbin", "usr/lib/systemd")

# Real programs; everything else that a shell script wants is one of busybox's.
PROGRAMS = (
    "bash", "busybox", "fio", "python3", "ip", "rdma", "tc", "nvme", "ibv_devinfo",
    "mkfs.ext4", "e2fsck", "resize2fs", "dumpe2fs", "blkdiscard", "blockdev", "lsblk", "blkid",
    "sfdisk", "losetup", "dmsetup", "udevadm", "dd", "cp", "cmp", "od", "timeout", "stat", "md5sum",
    "sha256sum", "truncate", "sort", "seq", "sync", "mount", "umount", "fallocate",
)
# Loaded by name at run time, so no ELF file asks for them.
EXTRA_LIBRARIES = ("librdmacm.so.1", "libibverbs/librxe-rdmav*.so", "libgcc_s.so.1")
EXTRA_FILES = ("etc/libibverbs.d/rxe.driver",)
UDEV_RULES = ("50-udev-default.rules", "60-block.rules", "60-persistent-storage.rules", "80-debian-compat.rules")

PYTHON = "usr/lib/python3.13"
# Packages of Python's library that a test in the guest may want; the plain modules come all.
PYTHON_PACKAGES = ("collections", "encodings", "json", "re", "importlib", "ctypes", "lib-dynload")
PYTHON_LEFT_OUT = ("antigravity", "pydoc", "turtle", "doctest", "_sqlite3", "_ssl", "_tkinter", "_test",
                   "_dbm", "_gdbm")


class Root:
    """A Debian root that is only read. Its absolute links are followed inside of it."""

    def __init__(self, top: Path) -> None:
        self.top = top

    def resolve(self, path: str) -> Path | None:
        """The file behind a path of the root, None if there is none."""
        here = self.top / path.lstrip("/")
        for _ in range(40):
            here = here.parent.resolve() / here.name
            if not here.is_symlink():
                return here if here.exists() else None
            target = os.readlink(here)
            here = self.top / target.lstrip("/") if target.startswith("/") else here.parent / target
        return None

    def program(self, name: str) -> tuple[str, Path]:
        """Where a program belongs, and the file that it is."""
        for folder in PROGRAM_FOLDERS:
            found = self.resolve(f"{folder}/{name}")
            if found:
                return f"{folder}/{name}", found
        raise AssetError(f"the Debian root at {self.top} lacks the program {name}")

    def library(self, name: str, runpath: tuple[str, ...] = ()) -> tuple[str, Path]:
        """The same for a library."""
        folders = [folder.strip("/") for folder in runpath if not folder.startswith("$")]
        for folder in (*LIBRARY_FOLDERS, *folders):
            found = self.resolve(f"{folder}/{name}")
            if found:
                return f"{folder}/{name}", found
        raise AssetError(f"the Debian root at {self.top} lacks the library {name}")


class Gatherer:
    """Puts files of a root into an archive, each once, libraries after their users."""

    def __init__(self, root: Root, archive: Archive) -> None:
        self._root, self._archive = root, archive
        self._added: set[str] = set()

    def add(self, path: str, source: Path) -> None:
        """One file, and what it needs to be loaded."""
        if path in self._added:
            return
        self._added.add(path)
        self._archive.copy(path, source)
        image = source.read_bytes()
        if not elf.is_elf(image):
            return
        wants = elf.dynamic(image)
        if wants.interpreter:
            loader = wants.interpreter.replace("/lib64/", "usr/lib64/").lstrip("/")
            found = self._root.resolve(loader)
            if not found:
                raise AssetError(f"the Debian root lacks {wants.interpreter}")
            self.add(loader, found)
        origin = tuple(entry.replace("$ORIGIN", str(Path(path).parent)) for entry in wants.runpath)
        for name in wants.needed:
            if not name.startswith("ld-linux"):
                self.add(*self._root.library(name, origin))

    def has(self, name: str) -> bool:
        """Whether a program of this name is there already."""
        return any(f"{folder}/{name}" in self._added for folder in PROGRAM_FOLDERS)


def _add_python(gatherer: Gatherer, root: Root) -> None:
    """Python's library, without what no guest needs; compiled files come along for speed."""
    top = root.top / PYTHON
    if not top.is_dir():
        raise AssetError(f"the Debian root at {root.top} lacks {PYTHON}")
    folders = [top, *(top / name for name in PYTHON_PACKAGES)]
    for folder in folders:
        for pattern in ("*.py", "*.so", "__pycache__/*.cpython-313.pyc"):
            for path in sorted(folder.glob(pattern)):
                found = root.resolve(str(path.relative_to(root.top)))
                if found and not path.name.startswith(PYTHON_LEFT_OUT):
                    gatherer.add(str(path.relative_to(root.top)), found)


def add_all(archive: Archive, top: Path) -> None:
    """Everything of the root that a lab machine has."""
    root = Root(top)
    for name in ("bin", "sbin", "lib", "lib64"):
        archive.link(name, f"usr/{name}")
    for folder in (*PROGRAM_FOLDERS, *LIBRARY_FOLDERS):
        archive.folder(folder)
    gatherer = Gatherer(root, archive)
    for name in PROGRAMS:
        gatherer.add(*root.program(name))
    for pattern in EXTRA_LIBRARIES:
        for path in sorted((top / LIBRARY_FOLDERS[0]).glob(pattern)):
            gatherer.add(str(path.relative_to(top)), root.resolve(str(path.relative_to(top))) or path)
    for name in (*EXTRA_FILES, *(f"usr/lib/udev/rules.d/{rule}" for rule in UDEV_RULES)):
        found = root.resolve(name)
        if found:
            gatherer.add(name, found)
    _add_python(gatherer, root)
    archive.link("usr/lib/systemd/systemd-udevd", "/usr/bin/udevadm")
    archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/bash\n")
    archive.file("etc/group", b"root:x:0:\ndisk:x:6:\n")
    archive.link("etc/mtab", "/proc/self/mounts")
    busybox = root.program("busybox")[1]
    applets = subprocess.run([str(busybox), "--list"], capture_output=True, text=True, check=True)
    for applet in applets.stdout.split():
        if not gatherer.has(applet):
            archive.link(f"usr/bin/{applet}", "busybox")
