# SPDX-License-Identifier: GPL-2.0
"""The exerciser of file systems: one of this machine is right, and what is changed behind its back is found."""
from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from vmlab.assets import cache_dir

PEER = Path(__file__).resolve().parents[1] / "peer"
sys.path.insert(0, str(PEER))
import fs_exerciser as peer

STEPS = 400


class Exerciser(unittest.TestCase):
    """Programs and workers."""

    def setUp(self) -> None:
        """A folder on a disk: others have no direct IO."""
        folder = tempfile.TemporaryDirectory(dir=cache_dir())
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def _program(self, *words: object) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-I", "-S", PEER / "fs_exerciser.py", *map(str, words)], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_a_run_and_its_check(self) -> None:
        """All is right; then one byte of a file, and a name, are changed."""
        top, kept, over = self.folder / "top", self.folder / "kept", self.folder / "over"
        top.mkdir()
        running = self._program("run", top, kept, 1, 4096, over)
        time.sleep(1)
        over.touch()
        said, _ = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 0, said)
        checked = self._program("check", top, kept)
        self.assertEqual((checked.communicate(timeout=60)[0].strip(), checked.returncode), ("ok", 0))
        (top / "0/file").write_bytes(b"another content")
        checked = self._program("check", top, kept)
        self.assertIn("bytes at 0", checked.communicate(timeout=60)[0])
        self.assertNotEqual(checked.returncode, 0)

    def test_a_changed_byte_is_found(self) -> None:
        """The worker of one file finds it, and that of a tree."""
        for kind in (peer.OneFile, peer.Tree):
            (self.folder / kind.__name__).mkdir()
            worker = kind(str(self.folder / kind.__name__), random.Random(1), 4096)
            for _ in range(STEPS):
                worker.step()
            worker.check()
            file = next(path for path in (self.folder / kind.__name__).rglob("*")
                        if path.is_file() and not path.is_symlink() and path.stat().st_size)
            changed = bytearray(file.read_bytes())
            changed[-1] ^= 1
            file.write_bytes(changed)
            with self.assertRaisesRegex(peer.Wrong, "1 wrong bytes"):
                worker.check()

    def test_a_name_that_came_back_is_found(self) -> None:
        """A file that nobody has made."""
        worker = peer.Tree(str(self.folder), random.Random(2), 4096)
        for _ in range(STEPS):
            worker.step()
        (self.folder / "stranger").touch()
        with self.assertRaisesRegex(peer.Wrong, "stranger"):
            worker.check()


if __name__ == "__main__":
    unittest.main()
