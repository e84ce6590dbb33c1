# SPDX-License-Identifier: GPL-2.0
"""The lines that people see while a run goes on, and of a failure at its end."""
from __future__ import annotations

import argparse
import os
import unittest
from typing import Any
from unittest import mock

from vmlab import telling
from vmlab.machine import Machine
from vmlab.plan import Planned, groups
from vmlab.progress import Progress, minutes


def planned(name: str, **more: Any) -> Planned:
    """A test that shares its lab."""
    return Planned(**{"name": name, "title": "", "file": name.partition(".")[0], "lab": "2 machines, 2 wires",
                      "spec": "a", "shares": True, "timed": False, "waits": False, "debug": False, "late": False,
                      "preempt": "", "tier": "core", "processors": 1, **more})


class ProgressTest(unittest.TestCase):
    """The number of tests that have ended, and the minutes that are left."""

    BEFORE = {"a.x": 100.0, "a.y": 60.0, "b.x": 40.0, "w.x": 30.0, "t.x": 20.0}     # noqa: RUF012

    def progress(self, labs: int) -> Progress:
        """The progress of five tests and the unloads of their groups."""
        tests = [planned("a.x"), planned("a.y"), planned("b.x"), planned("w.x", waits=True), planned("t.x", timed=True)]
        unloads = {name: 0.0 for group in groups(tests) for name in group.names if ".unload" in name}
        return Progress(groups(tests), self.BEFORE | unloads, labs)

    def test_what_is_left(self) -> None:
        """Labs share what runs side by side; one more waits; what is timed is alone."""
        self.assertEqual(self.progress(1).seconds_left, 250.0)
        progress = self.progress(2)
        self.assertEqual(progress.seconds_left, 120.0)
        progress.begin(0, "a.x")
        self.assertRegex(progress.line(), r"^0 of 9, about 2 min left; running: a\.x \(0 s\)$")
        for name in ("a.x", "a.y", "b.x"):
            progress.done(name)
        progress.idle(0)
        self.assertEqual(progress.line(), "3 of 9, about 50 s left")

    def test_it_is_told_now_and_then(self) -> None:
        """Lines do not come with each result."""
        with mock.patch("vmlab.progress.time.monotonic", side_effect=[0.0, 1.0, 31.0, 31.0, 31.0, 32.0]):
            progress = self.progress(1)
            self.assertEqual(progress.due(), "")
            self.assertIn("0 of 9", progress.due())
            self.assertEqual(progress.due(), "")
        with mock.patch("vmlab.progress.time.monotonic", return_value=1000.0):
            self.assertIn("0 of 9", progress.due())
            progress._told = 0.0
            for name in list(progress._left):
                progress.done(name)
            self.assertEqual(progress.due(), "")

    def test_minutes(self) -> None:
        """Seconds while they are few."""
        self.assertEqual([minutes(seconds) for seconds in (0, 89, 90, 600)], ["1 s", "89 s", "2 min", "10 min"])


class TellingTest(unittest.TestCase):
    """Ten lines and a command."""

    def test_the_lines_that_tell_most(self) -> None:
        """The first failure, the kernel's complaint, the last error; in their order."""
        log = [f"  rnbd_client: ordinary line {number}" for number in range(30)]
        log[3] = "  rtrs_client: connection rejected: timeout"
        text = "\n".join(["size: found 1, expected 2", "at io.py:7: eq(size, 2)", "logs: /run/x",
                          "kernel log of client:", *log, "server: kernel: WARNING: CPU: 1"])
        lines = telling.lines(text)
        self.assertEqual(len(lines), telling.LINES_MAX)
        self.assertEqual(lines[:2], ["size: found 1, expected 2", "at io.py:7: eq(size, 2)"])
        self.assertIn("rtrs_client: connection rejected: timeout", lines)
        self.assertEqual(lines[-2:], ["rnbd_client: ordinary line 29", "server: kernel: WARNING: CPU: 1"])

    def test_a_kernel_that_died(self) -> None:
        """Its death is told, where and on whose call; its registers tell nothing."""
        report = ["BUG: unable to handle page fault for address: ffffffffc0a0", "Oops: Oops: 0010 [#1] SMP",
                  *(f"R{number:02}: 0000 EFLAGS: 00000202" for number in range(12)), "RIP: 0010:0xffffffffc0a0",
                  "Call Trace:", "call_timer_fn+0x29/0x130", "Kernel panic - not syncing: Fatal exception in interrupt"]
        lines = telling.lines("\n".join(["client: the machine is gone", *report]))
        for told in ("client: the machine is gone", *report[:2], report[-4], *report[-2:]):
            self.assertIn(told, lines)
        console = [f"#     {line}" for line in ["ordinary"] * 50 + report + ["registers"] * 50]
        gone = argparse.Namespace(console_tail=lambda lines=40: "\n".join(console[-lines:]))
        self.assertEqual(Machine.last_words(gone).splitlines()[0], f"#     {report[0]}")    # type: ignore[arg-type]

    def test_the_command(self) -> None:
        """The command is told as it was run, with its seed; the end of a group is that of all its tests."""
        options = argparse.Namespace(long=True, modules="c", append="a=1 b")
        with mock.patch.dict(os.environ):
            os.environ.pop("VMLAB_DEBUG", None)
            self.assertEqual(telling.command("io.x#2", options, "# VMLAB_SEED=7\n"),
                             "VMLAB_SEED=7 python3 tools/vmlab run io.x --long --modules c --append 'a=1 b'")
            plain = argparse.Namespace(long=False, modules="ours", append="")
            self.assertEqual(telling.command("io.unload_1_machine", plain), "python3 tools/vmlab run 'io.*'")
            os.environ["VMLAB_DEBUG"] = "1"
            self.assertEqual(telling.command("io.x", plain), "python3 tools/kdir debug python3 tools/vmlab run io.x")

    def test_the_end_of_a_run(self) -> None:
        """Nothing if nothing failed."""
        self.assertEqual(telling.block([]), [])
        self.assertEqual(telling.block([("io.x", "bad", "run io.x")]),
                         [telling.WHAT_FAILED, "  io.x", "      bad", "    repeat: run io.x"])


if __name__ == "__main__":
    unittest.main()
