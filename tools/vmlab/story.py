# SPDX-License-Identifier: GPL-2.0
"""A story that machines tell: numbered chapters, commands with what they answer, sentences with figures."""
from __future__ import annotations

import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vmlab import oracle
from vmlab.checks import Failed
from vmlab.lab import Lab
from vmlab.machine import Machine

WIDTH = 100
INDENT = "    "
LOG_LINES = 25


class Story:
    """Prints numbered chapters, each with its time, on a terminal in colour."""

    def __init__(self) -> None:
        self._number = 0
        self._marks: dict[str, int] = {}
        self._bold, self._dim, self._plain = (("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty()
                                              else ("", "", ""))

    @contextmanager
    def chapter(self, title: str) -> Iterator[None]:
        """One step; says how long it took."""
        self._number += 1
        print(f"\n{self._bold}{self._number}. {title}{self._plain}", flush=True)
        began = time.monotonic()
        yield
        print(f"{INDENT}{self._dim}({time.monotonic() - began:.1f} s){self._plain}", flush=True)

    def tell(self, text: str) -> None:
        """A sentence of the story."""
        print(textwrap.fill(text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT,
                            break_long_words=False, break_on_hyphens=False), flush=True)

    def command(self, prompt: str, command: str) -> None:
        """A command as the user would type it. Printed before it runs, so it can be seen what is waited for."""
        print(f"{INDENT}{self._dim}{prompt}#{self._plain} {command}", flush=True)

    def answer(self, out: str) -> None:
        """Tells the answer of a command."""
        for line in out.strip().splitlines():
            print(f"{INDENT}  {line}")
        sys.stdout.flush()

    def do(self, machine: Machine, command: str, shown: bool = True, timeout: float = 180.0) -> str:
        """Runs a command and shows it, with its output unless it is not to be `shown`."""
        self.command(machine.name, command)
        out = machine.run(command, timeout)
        self.answer(out if shown else "")
        return out

    def begin(self, machine: Machine) -> None:
        """Leaves out what the kernel of a machine has said before: it is not of this story, others may have had it."""
        self._marks[machine.name] = machine.log_mark()

    def part(self, baselines: list[oracle.Baseline]) -> None:
        """Nothing is loaded any more: asks the kernels whether all is well; fails if not."""
        wrong = [text for baseline in baselines
                 for text in (*oracle.unload(baseline), *self._examine(baseline))]
        for text in wrong:
            self.tell(text)
        if wrong:
            raise Failed(f"the machines are not clean: {'; '.join(wrong)}")

    def _examine(self, baseline: oracle.Baseline) -> list[str]:
        return oracle.examine(baseline, self._marks.get(baseline.machine.name, -1), None).wrong


def up_seconds(machine: Machine) -> float:
    """The time that a machine has been up, by its own clock."""
    return float(re.split(r"\s", machine.read("/proc/uptime"))[0])


def tell(lab: Lab, chapters: Callable[[Story], None]) -> None:
    """A story in a lab of its own, which is closed afterwards; what the kernels said follows if it ends badly."""
    story = Story()
    try:
        chapters(story)
        lab.take_cleanups()
    except BaseException:
        for machine in lab.machines:
            if machine.alive:
                for text in oracle.complaints(machine, -1):
                    story.tell(f"{machine.name}: {text}")
                print("\n".join(f"#   {text}" for _n, text in machine.kernel_log()[-LOG_LINES:]))
        raise
    finally:
        lab.close()
    lab.forget()


def perform(told: Callable[[], None], closing: Callable[[float], str]) -> int:
    """Tells a story to its end: its last line, and 0 if it ended well."""
    began = time.monotonic()
    try:
        told()
    except Exception as why:    # the last line says what went wrong, for every error
        print(f"\nThe demo failed after {time.monotonic() - began:.0f} s: {why}", flush=True)
        return 1
    print(closing(time.monotonic() - began), flush=True)
    return 0
