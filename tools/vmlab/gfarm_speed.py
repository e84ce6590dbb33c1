# SPDX-License-Identifier: GPL-2.0
"""The kernel's mount and gfarm2fs read the same files in turns: ABAB, in one guest.

    figure = gfarm_speed.compare(gfarm, Pair(mount.at, fuse), gfarm_speed.COLD_READ, "big", turns=3)
    figure.ratio        # how many times as fast the kernel is
"""
from __future__ import annotations

import shlex
import statistics
from dataclasses import dataclass, field

from vmlab.gfarm import Gfarm

PROGRAM = "gfarm_speed.py"
SECONDS = 900.0


@dataclass(frozen=True)
class Job:
    """The job that is measured, one of peer/gfarm_speed.py, with a page cache that was dropped before (`cold`) or has
    all."""

    name: str
    title: str
    cold: bool
    arguments: tuple[str, ...] = ()

    @property
    def reads(self) -> bool:
        """Whether it counts bytes, not files."""
        return self.name in ("read", "calls", "map")

    @property
    def unit(self) -> str:
        """The unit of its rate."""
        return "MB/s" if self.reads else "files/s"


COLD_READ = Job("read", "sequential read, cold", True)
WARM_READ = Job("read", "sequential read, in the page cache", False)
COLD_STAT = Job("stat", "attributes of small files, cold", True)
COLD_SCAN = Job("scan", "attributes and contents of small files, cold", True)
WARM_SCAN = Job("scan", "attributes and contents of small files, in the page cache", False)


def by_calls(what: str, call: int) -> Job:
    """Files read by calls of so many KiB, cold; 0: mapped."""
    if not call:
        return Job("map", f"{what}, mapped, cold", True)
    return Job("calls", f"{what} by calls of {call} KiB, cold", True, (str(call << 10),))


@dataclass(frozen=True)
class Pair:
    """The two places of the same files: in the kernel's mount, and in that of gfarm2fs."""

    kernel: str
    fuse: str


@dataclass
class Figure:
    """Rates of one job, of each turn."""

    job: Job
    kernel: list[float] = field(default_factory=list)
    fuse: list[float] = field(default_factory=list)

    @property
    def medians(self) -> tuple[float, float]:
        """The kernel's and that of gfarm2fs."""
        return statistics.median(self.kernel), statistics.median(self.fuse)

    @property
    def ratio(self) -> float:
        """The kernel's rate, in rates of gfarm2fs."""
        kernel, fuse = self.medians
        return kernel / fuse


def run(gfarm: Gfarm, job: str, *arguments: str) -> tuple[int, float]:
    """One job: how much was done, and the seconds that it took by the guest's clock."""
    words = shlex.join([gfarm.push(PROGRAM), job, *arguments])
    done, seconds = gfarm.run(f"python3 -I -S {words}", SECONDS).split()
    return int(done), float(seconds)


def make(gfarm: Gfarm, folder: str, count: int) -> None:
    """Small files in a folder of gfarm2fs."""
    run(gfarm, "make", folder, str(count))


def fill(gfarm: Gfarm, folder: str, count: int, size: int) -> None:
    """Files of random bytes in a folder of gfarm2fs."""
    run(gfarm, "fill", folder, str(count), str(size))


def rate(gfarm: Gfarm, job: Job, path: str) -> float:
    """Runs a job once: MB/s or files/s."""
    if job.cold:
        gfarm.machine.write("/proc/sys/vm/drop_caches", "3")
    done, seconds = run(gfarm, job.name, path, *job.arguments)
    return done / seconds / (1e6 if job.reads else 1)


def compare(gfarm: Gfarm, pair: Pair, job: Job, name: str, turns: int) -> Figure:
    """The kernel's mount, gfarm2fs, and so on; a warm job begins with a turn that does not count."""
    figure = Figure(job)
    if not job.cold:
        for at in (pair.kernel, pair.fuse):
            rate(gfarm, job, f"{at}/{name}")
    for _turn in range(turns):
        figure.kernel.append(rate(gfarm, job, f"{pair.kernel}/{name}"))
        figure.fuse.append(rate(gfarm, job, f"{pair.fuse}/{name}"))
    return figure
