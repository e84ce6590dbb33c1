# SPDX-License-Identifier: GPL-2.0
"""The report: KTAP lines, a line that counts the tests that ran a second time, and one closing line that nothing but
counters makes.

The report knows the plan. Tests that were planned and never reported count as failed, so a harness that
dies half way can not look like success.
"""
from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from vmlab import telling

GREEN, RED, YELLOW, PLAIN = "\033[32m", "\033[31m", "\033[33m", "\033[0m"


# Tests of a run that may run a second time before the run has failed.
AGAIN_MAX = 3


def again_line(names: Sequence[str]) -> str:
    """The line above the closing line: how many tests have run a second time, and which."""
    return f"# again: {len(names)}{' (' + ', '.join(names) + ')' if names else ''}"


class Report:
    """One run's report. Use as a context manager: leaving it prints what is missing and the closing line."""

    def __init__(self, plan: list[str], out: TextIO = sys.stdout, again_max: int = AGAIN_MAX) -> None:
        self._left = list(plan)
        self._planned = len(plan)
        self._out = out
        self._colour = out.isatty()
        self._number = 0
        self._closed = False
        self._extra = 0     # failures of the run, not of a test
        self.passed = self.failed = self.skipped = 0
        self._again: list[str] = []
        self._failures: list[tuple[str, str, str]] = []
        self._again_max = again_max
        self._say("KTAP version 1")
        self._say(f"1..{self._planned}")

    def note(self, text: str) -> None:
        """A diagnostic line, or several."""
        for line in text.splitlines():
            self._say(f"# {line}")

    def ok(self, name: str, seconds: float) -> None:
        """A test that passed."""
        self.passed += 1
        self._result("ok", GREEN, name, f"# {seconds:.1f} s")

    def not_ok(self, name: str, seconds: float, why: str = "", repeat: str = "") -> None:
        """A test that failed, with the reason beneath it. At the end of the run it is told once more, in short, with
        the command that repeats it."""
        self.failed += 1
        self._failures.append((name, why, repeat))
        self._result("not ok", RED, name, f"# {seconds:.1f} s")
        for line in why.splitlines():
            self._say(f"#   {line}")

    def again(self, name: str) -> None:
        """The verdict of this test is that of a second attempt. More such tests than may be fail the run."""
        self._again.append(name)

    def skip(self, name: str, why: str) -> None:
        """A test that was not made."""
        self.skipped += 1
        self._result("ok", YELLOW, name, f"# SKIP {why}")

    def close(self) -> int:
        """Counts what never ran as failed and prints the closing line; returns the exit status."""
        if not self._closed:
            self._closed = True
            for name in list(self._left):
                self.not_ok(name, 0.0, "never ran: the harness ended before it")
            for line in telling.block(self._failures):
                self.note(line)
            self._say(again_line(self._again))
            if len(self._again) > self._again_max:
                self._extra = 1
                self.failed += 1
                self._say(f"not ok: at most {self._again_max} tests may run again")
            skipped = f", {self.skipped} skipped" if self.skipped else ""
            self._say(f"{self.passed} passed, {self.failed} failed{skipped}")
        complete = self.passed + self.failed + self.skipped == self._planned + self._extra
        return 0 if complete and self.passed and not self.failed else 1

    def __enter__(self) -> Report:
        return self

    def __exit__(self, *_why: object) -> None:
        self.close()

    def _result(self, word: str, colour: str, name: str, remark: str) -> None:
        self._left.remove(name)     # a name that was not planned is an error of the harness
        self._number += 1
        word = f"{colour}{word}{PLAIN}" if self._colour else word
        self._say(f"{word} {self._number} {name} {remark}")

    def _say(self, line: str) -> None:
        print(line, file=self._out, flush=True)
