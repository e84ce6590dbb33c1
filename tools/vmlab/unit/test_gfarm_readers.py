# SPDX-License-Identifier: GPL-2.0
"""The checker of peer/gfarm_readers.py finds each kind of fault, and its ways to read read a file of this machine."""
from __future__ import annotations

import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peer"))
import gfarm_readers as peer

REPLACED, REWRITTEN, UPDATED = peer.FILES[0], peer.FILES[2], peer.FILES[4]


class Checker(unittest.TestCase):
    """`complaint` and `is_older`."""

    def right(self, file: peer.File, seen: bytes, first: int, last: int, is_mapped: bool = False) -> None:
        """Nothing is wrong."""
        self.assertEqual(peer.complaint(file, seen, first, last, is_mapped), "")

    def wrong(self, file: peer.File, seen: bytes, first: int, last: int, is_mapped: bool = False) -> None:
        """Expects a complaint."""
        self.assertNotEqual(peer.complaint(file, seen, first, last, is_mapped), "")

    def test_whole_versions(self) -> None:
        """Right is the version that is complete, and any that may be there."""
        for file in peer.FILES:
            self.right(file, file.content(3), 3, 3)
            self.right(file, file.content(4), 3, 5)
            self.wrong(file, file.content(2), 3, 5)
            self.wrong(file, file.content(6), 3, 5)
            self.wrong(file, file.content(3), 4, 4)

    def test_two_versions(self) -> None:
        """Only a file that is written in its place may show both, and only meanwhile."""
        both = UPDATED.content(4)[:8192] + UPDATED.content(3)[8192:]
        self.right(UPDATED, both, 3, 4)
        self.wrong(UPDATED, both, 4, 4)
        self.wrong(UPDATED, both[:-16], 3, 4)
        longer, shorter = sorted((REPLACED.content(1), REPLACED.content(2)), key=len, reverse=True)
        self.wrong(REPLACED, shorter + longer[len(shorter):], 1, 2)
        self.wrong(REPLACED, longer[:len(shorter)], 1, 2)

    def test_a_file_that_is_cut_off(self) -> None:
        """While it is rewritten it is short; afterwards it is not."""
        part = REWRITTEN.content(2)[:4096]
        self.right(REWRITTEN, part, 1, 2)
        self.right(REWRITTEN, b"", 1, 2)
        self.wrong(REWRITTEN, part, 2, 2)
        self.wrong(REWRITTEN, b"", 2, 2)

    def test_zeroes_other_places_and_other_files(self) -> None:
        """None of them is ever right, but for the end of a mapped page."""
        whole = REWRITTEN.content(2)
        self.wrong(REWRITTEN, whole[:4096] + bytes(4096) + whole[8192:], 1, 2)
        self.wrong(REWRITTEN, whole[:4096] + bytes(16) + whole[4112:], 1, 2, is_mapped=True)
        self.right(REWRITTEN, whole[:4112] + bytes(4080), 1, 2, is_mapped=True)
        self.wrong(REWRITTEN, whole[:4112] + bytes(4080), 1, 2)
        self.wrong(REWRITTEN, whole[:4096] + bytes(4096), 1, 2, is_mapped=True)
        self.right(REWRITTEN, whole + bytes(-len(whole) % 4096), 2, 2, is_mapped=True)
        self.wrong(REWRITTEN, whole + bytes(-len(whole) % 4096 + 4096), 2, 2, is_mapped=True)
        self.wrong(REWRITTEN, whole[:8192] + whole[4096:8192], 1, 2)
        self.wrong(REWRITTEN, peer.FILES[3].content(2), 1, 2)
        self.wrong(REWRITTEN, bytes(256) + whole[256:], 1, 2)

    def test_what_is_older(self) -> None:
        """Any cell; not one that is not there any more."""
        old, new = UPDATED.content(3), UPDATED.content(4)
        self.assertTrue(peer.is_older(new, old))
        self.assertTrue(peer.is_older(new, new[:-16] + old[-16:]))
        self.assertFalse(peer.is_older(old, new))
        self.assertFalse(peer.is_older(new, new[:4096]))


class Ways(unittest.TestCase):
    """All ways to read give the bytes of a file of this machine."""

    def test_io_uring(self) -> None:
        """The one way that the host may have switched off."""
        try:
            ring = peer.Ring()
        except OSError as why:
            self.skipTest(f"io_uring: {why}")
        self.read_by({"io_uring": ring})

    def test_all_other_ways(self) -> None:
        """A file in memory has no page cache to go past."""
        with mock.patch.object(peer, "Ring", lambda: None):
            ways = peer.ways()
        self.read_by({name: way for name, way in ways.items() if name not in ("direct", "io_uring")})

    def read_by(self, ways: dict[str, peer.Way | None]) -> None:
        """Also of a file that ends in a page."""
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            path, text = f"{folder}/file", UPDATED.content(1)[:100_000]
            Path(path).write_bytes(text)
            os.chmod(path, 0o755)
            for name, way in ways.items():
                fd = os.open(path, os.O_RDONLY)
                seen = peer.by_exec(path) if way is None else way(fd)
                os.close(fd)
                self.assertEqual((seen[:len(text)], any(seen[len(text):])), (text, False), name)


if __name__ == "__main__":
    unittest.main()
