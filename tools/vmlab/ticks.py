# SPDX-License-Identifier: GPL-2.0
"""Checks how fast a guest's clock runs.

An emulated guest reads the host's time stamp counter as its own. A kernel that measures the rate of that counter while
it boots measures wrongly if the host is busy at that moment: one found a twentieth of it, so all its timeouts came
twenty times too soon, and so did those of all labs that woke the machine once it was saved. Therefore the guest is told
the rate, and each machine that has booted is compared with the host.
"""
from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
TOLERANCE = 0.1
READING_SECONDS = 0.05      # /proc/uptime has hundredths of a second


class Host:
    """The words of the host about its counter."""

    is_believed = True      # until a guest that was told has a clock that is wrong: then guests measure for themselves

    @classmethod
    def mhz(cls, cpuinfo: str | None = None) -> int | None:
        """The rate at which its processors count, in MHz; None if it does not say, or is not believed. The kernel of a
        PC derives twice this number, as bogomips, from the rate of the counter."""
        text = CPUINFO.read_text(encoding="utf-8") if cpuinfo is None else cpuinfo
        found = re.search(r"^bogomips\s*:\s*([\d.]+)", text, re.MULTILINE)
        return round(float(found[1]) / 2) if found and cls.is_believed else None


@dataclass(frozen=True)
class Reading:
    """The guest's clock, and the host's before and after it was read; in seconds."""

    before: float
    guest: float
    after: float

    @classmethod
    def take(cls, run: Callable[[str], str]) -> Reading:
        """Reads both; `run` runs a command in the guest and returns its output."""
        before = time.monotonic()
        guest = float(run("cat /proc/uptime").split()[0])
        return cls(before, guest, time.monotonic())

    def wrong_by(self, later: Reading) -> float | None:
        """The seconds that the guest's clock counts in one of the host's from this reading to a later one, if that is
        certainly not one; None if it may be."""
        passed = later.guest - self.guest
        least, most = later.before - self.after, later.after - self.before
        if passed > most * (1 + TOLERANCE) + READING_SECONDS:
            return passed / most
        if passed < least * (1 - TOLERANCE) - READING_SECONDS:
            return passed / least
        return None
