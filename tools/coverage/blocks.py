# SPDX-License-Identifier: GPL-2.0
"""Finds the code of the modules that machines have executed, from the translation blocks that translated.c has written.

A block has an address and its bytes. Where a module was loaded is not known, and changes with each load: the bytes
tell. Relocations are left out of the comparison, and a few bytes may differ, as the kernel patches modules when it
loads them.
"""
from __future__ import annotations

import bisect
import collections
import pathlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

KEY_BYTES = 8
VOTES_MIN = 3
SAME_MIN = 0.75
PAGE = 4096
EXECUTABLE, RELA = 4, 4         # SHF_EXECINSTR, SHT_RELA
R_X86_64_64 = 1


@dataclass
class Module:
    """The .text of a module, and which bytes of it were executed."""

    path: pathlib.Path
    text: bytes = b""
    compared: bytearray = field(default_factory=bytearray)     # 1: as it is in memory; 0: relocated
    executed: bytearray = field(default_factory=bytearray)
    other_sizes: frozenset[int] = frozenset()                   # of the executable sections beside .text

    @classmethod
    def read(cls, path: pathlib.Path) -> Module:
        """Reads a relocatable ELF file for x86-64."""
        data = path.read_bytes()
        (start,), (entry, count, names_at) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HHH", data, 58)
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + entry * n) for n in range(count)]
        names = data[headers[names_at][4]:]
        title = [names[row[0]:names.index(b"\0", row[0])].decode() for row in headers]
        number = title.index(".text")
        text = data[headers[number][4]:headers[number][4] + headers[number][5]]
        module = cls(path, text, bytearray(b"\1" * len(text)), bytearray(len(text)),
                     frozenset(row[5] for row, name in zip(headers, title, strict=True)
                               if row[2] & EXECUTABLE and name != ".text"))
        for row in headers:
            if row[1] == RELA and row[7] == number:
                module._leave_out(data[row[4]:row[4] + row[5]])
        return module

    def _leave_out(self, relocations: bytes) -> None:
        for offset, kind, _symbol, _addend in struct.iter_unpack("<QIIq", relocations):
            # Before it is the operation of a call or a jump, which may be patched with it.
            first, size = max(0, offset - 1), 8 if kind == R_X86_64_64 else 4
            self.compared[first:offset + size] = bytes(offset + size - first)

    def fits(self, offset: int, block: bytes) -> bool:
        """Whether the block is what is at this offset."""
        if offset < 0 or offset + len(block) > len(self.text):
            return False
        mask = self.compared[offset:offset + len(block)]
        same = sum(a == b for a, b, m in zip(self.text[offset:], block, mask, strict=False) if m)
        return same >= SAME_MIN * sum(mask)


class Index:
    """Finds where in which module some bytes are."""

    def __init__(self, modules: list[Module]) -> None:
        self.modules = modules
        self._places: dict[bytes, list[tuple[int, int]]] = collections.defaultdict(list)
        for number, module in enumerate(modules):
            for offset in range(len(module.text) - KEY_BYTES):
                if all(module.compared[offset:offset + KEY_BYTES]):
                    self._places[module.text[offset:offset + KEY_BYTES]].append((number, offset))

    def bases(self, blocks: Iterable[tuple[int, bytes]]) -> list[tuple[int, int]]:
        """(address, module) of the loads that these blocks of one machine tell of."""
        votes: collections.Counter[tuple[int, int]] = collections.Counter()
        for address, block in blocks:
            found = {(address + at - offset, number) for at in range(0, len(block) - KEY_BYTES, 4)
                     for number, offset in self._places.get(block[at:at + KEY_BYTES], ())}
            votes.update(place for place in found if place[0] % PAGE == 0)
        return sorted(place for place, count in votes.items() if count >= VOTES_MIN)

    def mark(self, blocks: list[tuple[int, bytes]]) -> None:
        """Notes what of the modules these blocks of one machine have executed."""
        bases = self.bases(blocks)
        longest = max((len(module.text) for module in self.modules), default=0)
        for address, block in blocks:
            first = bisect.bisect_left(bases, (address - longest, 0))
            for base, number in bases[first:bisect.bisect_right(bases, (address, len(self.modules)))]:
                module, offset = self.modules[number], address - base
                if module.fits(offset, block):
                    module.executed[offset:offset + len(block)] = b"\1" * len(block)


def read(file: pathlib.Path) -> Iterator[tuple[int, bytes]]:
    """The blocks of one machine. Its QEMU may have been killed while it wrote the last line."""
    for line in file.read_text(encoding="ascii").splitlines():
        address, _, text = line.partition(" ")
        if text and len(text) % 2 == 0:
            yield int(address, 16), bytes.fromhex(text)
