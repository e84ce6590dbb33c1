# SPDX-License-Identifier: GPL-2.0
"""The coverage: blocks are found again in a module wherever it was loaded, and lines and functions are counted."""
from __future__ import annotations

import pathlib
import random
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import blocks
import lines

SOURCE = """
pub(crate) fn one(a: u32) -> u32 {
    if a > 1 {
        return 2;
    }
    3
}

trait Two {
    fn declared(&self);

    fn short(&self) -> u32 { 1 }
}

impl Two for u32 {
    fn declared(
        &self,
    ) {
        one(*self);
    }
}
"""


def module(seed: int, size: int = 9000) -> blocks.Module:
    """A module of random code; 4 bytes in each 40 are relocated."""
    text = random.Random(seed).randbytes(size)
    mask = bytearray(0 if n % 40 < 4 else 1 for n in range(size))
    return blocks.Module(pathlib.Path(f"{seed}.ko"), text, mask, bytearray(size))


class Blocks(unittest.TestCase):
    """Blocks of code that was executed."""

    def setUp(self) -> None:
        """Two modules of ours."""
        self.modules = [module(1), module(2)]
        self.index = blocks.Index(self.modules)

    def loaded(self, number: int, base: int, offset: int, size: int) -> tuple[int, bytes]:
        """A block of a module that was loaded at `base`: what is relocated has other bytes."""
        part = self.modules[number]
        return base + offset, bytes(byte if same else 0xAA for byte, same in zip(
            part.text[offset:offset + size], part.compared[offset:offset + size], strict=True))

    def test_two_loads_of_one_module(self) -> None:
        """Blocks of either load are those of the module; what is between them was not executed."""
        ran = [self.loaded(0, 0xffffffffc0100000, at, 32) for at in (64, 256, 512)]
        ran += [self.loaded(0, 0xffffffffc0340000, at, 32) for at in (1024, 2048, 4096)]
        self.index.mark(ran)
        wanted = {at + n for at in (64, 256, 512, 1024, 2048, 4096) for n in range(32)}
        self.assertEqual({n for n, hit in enumerate(self.modules[0].executed) if hit}, wanted)
        self.assertFalse(any(self.modules[1].executed))

    def test_another_module_in_the_place_of_the_first(self) -> None:
        """Blocks at the same addresses go to the module that has their bytes."""
        base = 0xffffffffc0100000
        self.index.mark([self.loaded(number, base, at, 32) for number in (0, 1) for at in (64, 256, 512)])
        for part in self.modules:
            self.assertEqual(sum(part.executed), 96)

    def test_code_of_others(self) -> None:
        """A module that is not ours is not counted."""
        foreign = module(3)
        self.index.mark([(0xffffffffc0100000 + at, foreign.text[at:at + 32]) for at in range(0, 9000, 64)])
        self.assertFalse(any(any(part.executed) for part in self.modules))

    def test_a_line_that_was_cut_off(self) -> None:
        """The last line of a machine that was killed counts if it is whole."""
        with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:
            file.write("ffffffffc0000000 90c3\nffffffffc0000010 9")
            file.flush()
            self.assertEqual(list(blocks.read(pathlib.Path(file.name))), [(0xffffffffc0000000, b"\x90\xc3")])


class Lines(unittest.TestCase):
    """Lines that are counted."""

    def test_functions(self) -> None:
        """Functions have their first and last lines; a declaration is none."""
        self.assertEqual(lines.functions(SOURCE), [("one", 2, 7), ("short", 12, 12), ("declared", 16, 20)])

    def test_lcov(self) -> None:
        """A line is reached if one of its counts is not 0; files of others are left out."""
        text = "SF:/here/b/../a.rs\nDA:1,0\nDA:2,5\nDA:1,1\nend_of_record\nSF:/usr/b.rs\nDA:1,1\n"
        self.assertEqual(lines.lcov(text, pathlib.Path("/here")), {"a.rs": {1: True, 2: True}})

    def test_either_way(self) -> None:
        """Lines are reached by the host or by machines."""
        both = lines.merged({"a.rs": {1: True, 2: False}}, {"a.rs": {2: True, 3: False}})
        self.assertEqual(both, {"a.rs": {1: True, 2: True, 3: False}})


if __name__ == "__main__":
    unittest.main()
