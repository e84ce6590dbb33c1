# SPDX-License-Identifier: GPL-2.0
"""Programs that no test runs whole: they start, and what they compile compiles."""
from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from kdir.config import REPOSITORY
from vmlab import plugin

PLUGINS = ("tools/bench/guest/count.c", "tools/coverage/translated.c")
PROGRAMS = ("tools/bench", "tools/coverage")


class ProgramsTest(unittest.TestCase):
    """The bench and the coverage, which take an hour."""

    def test_plugins_compile_for_each_qemu(self) -> None:
        """Old ones have another interface than new ones."""
        with tempfile.TemporaryDirectory() as folder:
            for source in PLUGINS:
                for interface in plugin.INTERFACES:
                    plugin.compile_for(interface, REPOSITORY / source, Path(folder) / "plugin.so")

    def test_programs_start(self) -> None:
        """All that they import is there."""
        for program in PROGRAMS:
            done = subprocess.run([sys.executable, "-B", program, "--help"], cwd=REPOSITORY, capture_output=True,
                                  text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), program)


if __name__ == "__main__":
    unittest.main()
