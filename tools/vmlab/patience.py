# SPDX-License-Identifier: GPL-2.0
"""Time limits are meant for a host that has nothing else to do; a busy one gets more."""
from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

FACTOR_MAX = 6.0
# Seconds of processors that a machine of one processor takes to wake from its saved state where budgets were measured.
WAKE_SECONDS = 0.6
# A share of all processors; the harness itself uses a few hundredths.
BUSY_SHARE = 0.15
USED = (0, 1, 2, 5, 6, 7)   # user, nice, system, irq, softirq, steal: the columns of /proc/stat


class Pace:
    """The pace of this host: by how many times it is slower than the one whose times are in the tests; 1 as long as
    nothing tells."""

    now = 1.0

    @classmethod
    def learn(cls, wakes: Sequence[float]) -> None:
        """Takes the seconds of processors that machines have taken to wake, which no test changes."""
        cls.now = max(1.0, median(wakes) / WAKE_SECONDS) if wakes else 1.0


def factor() -> float:
    """The factor by which things may take longer than usual now: the load of each processor, on a slow host its pace if
    that is more, or `VMLAB_PATIENCE`."""
    given = os.environ.get("VMLAB_PATIENCE")
    if given:
        return float(given)
    return min(FACTOR_MAX, max(Pace.now, os.getloadavg()[0] / (os.cpu_count() or 1)))


def is_debug_kernel() -> bool:
    """Whether the machines have the debug kernel (`kdir debug`): limits of the product are not judged there."""
    return bool(os.environ.get("VMLAB_DEBUG"))


def scaled(seconds: float) -> float:
    """A time limit for the host as it is now."""
    return seconds * factor()


class HostLoad:
    """The work of the host's processors, from the creation of this on."""

    def __init__(self) -> None:
        self._began, self._used = time.monotonic(), self._used_seconds()

    @staticmethod
    def _used_seconds() -> float:
        ticks = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        return sum(int(ticks[column]) for column in USED) / os.sysconf("SC_CLK_TCK")

    def share(self, own_seconds: float) -> float:
        """The share of all processors that others have used; `own_seconds` is what the lab has used meanwhile."""
        passed = max(time.monotonic() - self._began, 0.01) * (os.cpu_count() or 1)
        return max(0.0, self._used_seconds() - self._used - own_seconds) / passed


def wait_until_quiet(seconds: float) -> bool:
    """Waits until others leave the host's processors alone, at most so long; whether they do. The lab of the caller has
    nothing to do meanwhile."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        load = HostLoad()
        time.sleep(2)
        if load.share(0) < BUSY_SHARE:
            return True
    return False
