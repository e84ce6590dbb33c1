# SPDX-License-Identifier: GPL-2.0
"""A load that knows the history of every sector (tools/history), in place of a verifying fio.

    history = disk.history(writers=8)       # until it is told to end; or seconds=, loops=
    ...                                     # cut, restart, freeze
    history.clean()                         # ends it: it has to go on for a while, then everything is checked
"""
from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vmlab.assets import TOOLS, cache_dir
from vmlab.checks import Failed, WrongData, until
from vmlab.machine import Job, Machine

SOURCES = TOOLS / "history" / "src"
# As the scripted peer: against the libraries of the root, which the guests have.
FLAGS = ("--edition", "2021", "-C", "opt-level=2", "-C", "panic=abort", "-C", "strip=symbols")
IN_GUEST = "/run/history"
FILL_SECONDS = 60.0
REQUEST_FAILED = "error"    # the kind of fault that is none of the data
_numbers = itertools.count(1)


def program() -> Path:
    """The checker, compiled in the Debian root."""
    parts = [str(FLAGS).encode(), *(path.read_bytes() for path in sorted(SOURCES.glob("*.rs")))]
    name = f"history-{hashlib.sha256(b''.join(parts)).hexdigest()[:12]}"
    made = cache_dir() / name
    if not made.exists():
        fresh = made.with_name(f"{name}.{threading.get_native_id()}")
        subprocess.run([sys.executable, "-B", str(TOOLS / "kdir"), "run", "rustc", *FLAGS, "-o", str(fresh),
                        str(SOURCES / "main.rs")], check=True)
        fresh.rename(made)
    return made


@dataclass(frozen=True)
class Result:
    """The result of a run; the fields of tools/history/src/report.rs."""

    code: int
    out: str
    figures: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["figures"][name]
        except KeyError:
            raise AttributeError(f"the history tells no {name}: {self.complaint}") from None

    @property
    def worst_ms(self) -> float:
        """The longest request of the load."""
        return float(self.figures.get("worst_us", 0)) / 1000

    @property
    def complaint(self) -> str:
        """The faults of the run, in words."""
        if self.code == 124:
            return f"it did not end in time, so a request hangs; {self.out.strip()[-500:]}"
        return "; ".join(self.figures.get("shown", [])) or self.out.strip()[-1000:]


class History:
    """A run that goes on. Its options are those of tools/history/src/main.rs, with _ for -."""

    def __init__(self, machine: Machine, device: str, timeout: float, /, **options: int | str) -> None:
        self.machine = machine
        self._end = ""
        if not options.keys() & {"seconds", "loops", "until", "check_only"}:
            self._end = f"{IN_GUEST}.end{next(_numbers)}"
            options["until"] = self._end
        if not machine.exists(IN_GUEST):
            machine.push(program(), IN_GUEST)
            machine.run(f"chmod 755 {IN_GUEST}")
        words = " ".join(f"{name.replace('_', '-')}={value}" for name, value in options.items())
        self._said = ""
        self.job: Job = machine.start_job(f"exec {IN_GUEST} {device} {words}", timeout, self._hear)
        if not options.keys() & {"load"}:
            self.reached("filled", FILL_SECONDS)

    def _hear(self, part: str) -> None:
        self._said += part

    def reached(self, stage: str, seconds: float) -> None:
        """Waits until it has said so: `filled`, `flushed`. What ends before will be judged by its result."""
        until(lambda: stage in self._said.split() or not self.running, seconds, f"the history is {stage}")

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.job.running

    def end(self) -> None:
        """Asks it to end: after a hundred more writes, and a check of all."""
        if self._end:
            self.machine.push_bytes(b"", self._end)

    def wait(self, seconds: float | None = None) -> Result:
        """Asks it to end, and waits, however it ends."""
        self.end()
        answer = self.job.wait(seconds)
        out = self._said + answer.out
        try:
            figures = json.loads(out.strip().rpartition("\n")[2])
        except ValueError:
            figures = {}
        return Result(answer.code, out, figures)

    def clean(self, seconds: float | None = None) -> Result:
        """The same, but anything that is wrong is a failure of the test."""
        result = self.wait(seconds)
        if set(result.figures.get("kinds", [])) - {REQUEST_FAILED}:
            raise WrongData(f"the history is not clean ({result.code}): {result.complaint}")
        if result.code or not result.figures:
            raise Failed(f"the history is not clean ({result.code}): {result.complaint}")
        return result
