# SPDX-License-Identifier: GPL-2.0
"""Progress for people who wait: what runs, how far the run is, and how long it may take."""
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from vmlab.plan import Group

# Between two lines that say so.
TOLD_SECONDS = 30.0
UNKNOWN_SECONDS = 8.0       # of a test that has never run here


def minutes(seconds: float) -> str:
    """A time that is not known well."""
    return f"{max(1, round(seconds / 60))} min" if seconds >= 90 else f"{max(1, round(seconds))} s"


class Progress:
    """The progress of one run: the tests that are left, with the seconds that each took when it last ran (`before`)."""

    def __init__(self, groups: Sequence[Group], before: Mapping[str, float], labs: int) -> None:
        self._labs = max(1, labs)
        self._left = {group.label(name): (before.get(name, UNKNOWN_SECONDS), group.timed, group.waits)
                      for group in groups for name in group.names}
        self._planned = len(self._left)
        self._running: dict[int, tuple[str, float]] = {}
        self._told = time.monotonic()

    def begin(self, worker: int, name: str) -> None:
        """A worker begins with a test."""
        self._running[worker] = name, time.monotonic()

    def idle(self, worker: int) -> None:
        """Notes that a lab does nothing now."""
        self._running.pop(worker, None)

    def done(self, label: str) -> None:
        """A test has its verdict."""
        self._left.pop(label, None)

    @property
    def seconds_left(self) -> float:
        """Labs side by side share what is not timed; one more has the tests that wait. What runs has run for a part."""
        alone = sum(seconds for seconds, timed, _waits in self._left.values() if timed)
        beside = sum(seconds for seconds, timed, waits in self._left.values() if not timed and not waits)
        waiting = sum(seconds for seconds, timed, waits in self._left.values() if not timed and waits)
        if self._labs == 1:
            beside, waiting = beside + waiting, 0.0
        return alone + max(beside / self._labs, waiting)

    def line(self) -> str:
        """All of it."""
        now = time.monotonic()
        running = ", ".join(f"{name} ({now - began:.0f} s)" for name, began in self._running.values())
        return (f"{self._planned - len(self._left)} of {self._planned}, about {minutes(self.seconds_left)} left"
                f"{'; running: ' + running if running else ''}")

    def due(self) -> str:
        """The line if it was not told for a while and something is left, else nothing."""
        if not self._left or time.monotonic() - self._told < TOLD_SECONDS:
            return ""
        self._told = time.monotonic()
        return self.line()
