# SPDX-License-Identifier: GPL-2.0
"""Two questions to a 64-bit little-endian ELF file: which libraries, and which module information.

Enough to gather a program with its libraries from a foreign root without running anything in it.
"""
from __future__ import annotations

import struct
from dataclasses import dataclass

SHT_STRTAB_LINK = 6         # index of sh_link in the section header tuple
SHT_DYNAMIC = 6
DT_NULL, DT_NEEDED, DT_RPATH, DT_RUNPATH = 0, 1, 15, 29
PT_INTERP = 3


class ElfError(Exception):
    """Not an ELF file that this reader understands."""


@dataclass(frozen=True)
class Section:
    """One section header, reduced to what is used here."""

    name: str
    kind: int
    data: bytes
    link: int


@dataclass(frozen=True)
class Dynamic:
    """What the loader would look for: interpreter, libraries, extra folders."""

    interpreter: str | None
    needed: tuple[str, ...]
    runpath: tuple[str, ...]


def is_elf(image: bytes) -> bool:
    """Whether this is a 64-bit little-endian ELF file."""
    return image[:6] == b"\x7fELF\x02\x01"


def _string(table: bytes, at: int) -> str:
    return table[at:table.index(b"\0", at)].decode()


def sections(image: bytes) -> list[Section]:
    """All sections of the file."""
    if not is_elf(image):
        raise ElfError("not a 64-bit little-endian ELF file")
    offset, = struct.unpack_from("<Q", image, 40)
    size, count, names_at = struct.unpack_from("<HHH", image, 58)
    heads = [struct.unpack_from("<IIQQQQII", image, offset + i * size) for i in range(count)]
    names = image[heads[names_at][4]:][:heads[names_at][5]]
    return [Section(_string(names, h[0]), h[1], image[h[4]:h[4] + h[5]], h[SHT_STRTAB_LINK])
            for h in heads]


def _interpreter(image: bytes) -> str | None:
    offset, = struct.unpack_from("<Q", image, 32)
    size, count = struct.unpack_from("<HH", image, 54)
    for i in range(count):
        kind, _flags, at, _vaddr, _paddr, length = struct.unpack_from("<IIQQQQ", image, offset + i * size)
        if kind == PT_INTERP:
            return image[at:at + length].rstrip(b"\0").decode()
    return None


def dynamic(image: bytes) -> Dynamic:
    """The dynamic section; empty for a static program."""
    every = sections(image)
    needed: list[str] = []
    runpath: list[str] = []
    for section in every:
        if section.kind != SHT_DYNAMIC:
            continue
        strings = every[section.link].data
        for tag, value in struct.iter_unpack("<QQ", section.data):
            if tag == DT_NULL:
                break
            if tag == DT_NEEDED:
                needed.append(_string(strings, value))
            elif tag in (DT_RPATH, DT_RUNPATH):
                runpath += _string(strings, value).split(":")
    return Dynamic(_interpreter(image), tuple(needed), tuple(runpath))


def modinfo(image: bytes) -> list[tuple[str, str]]:
    """The `key=value` pairs of a kernel module, in file order."""
    for section in sections(image):
        if section.name == ".modinfo":
            pairs = (entry.decode().partition("=") for entry in section.data.split(b"\0") if entry)
            return [(key, value) for key, _, value in pairs]
    raise ElfError("no .modinfo section")
