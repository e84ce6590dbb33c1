# SPDX-License-Identifier: GPL-2.0
"""Gfarm's two clients in one guest, the kernel's mount and gfarm2fs: rates of each, and the questions to gfmd.

Rates are taken twice. Under -icount every guest instruction takes 4 ns: the sum of all that client, servers and kernel
do, whatever the host does beside. By the clock the guest's two processors run side by side, so what a client does while
its server works costs no time; these figures depend on the host.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vmlab import gfarm_mount, gfarm_speed
from vmlab.gfarm import Gfarm
from vmlab.gfarm_mount import Mount, mounted, put_random
from vmlab.gfarm_speed import COLD_READ, COLD_SCAN, COLD_STAT, WARM_READ, WARM_SCAN, Figure, Pair
from vmlab.lab import Lab, Spec

# In files, and a count of small ones; for --quick.
BIG_MIB, SMALL_FILES = 64, 200
QUICK_MIB, QUICK_FILES = 16, 50
JOBS = ((COLD_READ, "big"), (WARM_READ, "big"), (COLD_STAT, "small"), (COLD_SCAN, "small"), (WARM_SCAN, "small"))
# Files of so many KiB, so many of each, read by calls of so many KiB (0: mapped).
KIB_AND_FILES = {4: 24, 16: 24, 64: 12, 256: 6, 1024: 4, 4096: 2}
CALLS_KIB = (4, 128, 0)
CLOCKS = {"clock": "", "guest time": "shift=2,sleep=off"}
# Files in the folder that is listed to count questions.
LISTED = 100
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Size:
    """The amount that is read."""

    mib: int
    files: int


def size(quick: bool) -> Size:
    """The usual one, or a small one."""
    return Size(QUICK_MIB, QUICK_FILES) if quick else Size(BIG_MIB, SMALL_FILES)


@contextmanager
def both(lab: Lab) -> Iterator[tuple[Gfarm, Mount, Pair]]:
    """Servers, module and both mounts in a lab of one machine."""
    gfarm = gfarm_mount.start(lab)
    with gfarm.fuse() as folder, mounted(gfarm) as mount:
        yield gfarm, mount, Pair(mount.at, folder)


def _round(say: Say, clock: str, wanted: Size, turns: int) -> list[Figure]:
    figures = []
    with (Lab(Spec(machines=1, smp=2, icount=CLOCKS[clock])) as lab,
          both(lab) as (gfarm, _mount, pair)):
        say(f"{clock}: making {wanted.mib} MiB and {wanted.files} small files")
        put_random(gfarm, "big", wanted.mib << 20)
        gfarm_speed.make(gfarm, f"{pair.fuse}/small", wanted.files)
        for job, name in JOBS:
            figure = gfarm_speed.compare(gfarm, pair, job, name, turns)
            kernel, fuse = figure.medians
            say(f"{clock}: {job.title}: {kernel:.1f} and {fuse:.1f} {job.unit}: {figure.ratio:.2f}")
            figures.append(figure)
        figures += _calls(say, clock, gfarm, pair, turns)
    return figures


def _calls(say: Say, clock: str, gfarm: Gfarm, pair: Pair, turns: int) -> Iterator[Figure]:
    """Files of several sizes by small calls, by large ones, and mapped."""
    for kib, files in KIB_AND_FILES.items():
        gfarm_speed.fill(gfarm, f"{pair.fuse}/kib{kib}", files, kib << 10)
        for call in CALLS_KIB:
            job = gfarm_speed.by_calls(f"files of {kib} KiB", call)
            figure = gfarm_speed.compare(gfarm, pair, job, f"kib{kib}", turns)
            kernel, fuse = figure.medians
            say(f"{clock}: {job.title}: {kernel:.1f} and {fuse:.1f} {job.unit}: {figure.ratio:.2f}")
            yield figure


def rates(say: Say, wanted: Size, turns: int) -> dict[str, list[Figure]]:
    """{clock: a figure for each job}; each in a guest of its own, in which the clients take turns."""
    return {clock: _round(say, clock, wanted, turns) for clock in CLOCKS}


# -- questions -----------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Deed:
    """A task with files, the least number of questions to gfmd that it needs, and why so many."""

    title: str
    command: str
    least: int
    why: str


DEEDS = (
    Deed("attributes of a file three directories deep, no name known", "stat deep/er/est/file", 4,
         "the VFS asks for one name after the other"),
    Deed("the same again, within actimeo", "stat deep/er/est/file", 0, "known"),
    Deed("attributes of a file in a directory that is known", "stat deep/er/est/other", 1, "its name"),
    Deed("a name that is not there", "test ! -e deep/er/est/none", 1, "its name"),
    Deed("the same again, within actimeo", "test ! -e deep/er/est/none", 0, "known"),
    Deed("open, read and close of a file that is in no cache", "cat deep/er/est/file", 2, "open, close"),
    Deed("open, read and close of a file in the page cache", "cat deep/er/est/file", 2,
         "open, close: gfmd alone knows whether there is another generation"),
    Deed(f"ls -l of {LISTED} files, no name known", "ls -l listed", 3, "the folder's name, its files, their end"),
    Deed(f"attributes of {LISTED} files that were listed", "stat listed/*", 2, "the files for the shell, their end"),
)


@dataclasses.dataclass(frozen=True)
class Asked:
    """The requests of a task, by kind: its cost."""

    deed: Deed
    kinds: dict[str, int]

    def of(self, server: str) -> dict[str, int]:
        """The requests to one kind of server."""
        return {kind.removeprefix(f"{server}_"): count for kind, count in self.kinds.items() if kind.startswith(server)}

    @property
    def gfmd(self) -> int:
        """Questions to gfmd, a round trip each."""
        return sum(self.of("gfmd").values())


def _kinds(mount: Mount) -> dict[str, int]:
    """The mount's counters by kind of request: those that have a longest time."""
    counters = mount.stats()
    return {name: count for name, count in counters.items() if f"{name}_us_max" in counters}


def questions(say: Say) -> list[Asked]:
    """Counts them by the mount's own statistics."""
    found = []
    with Lab(Spec(machines=1, smp=2)) as lab:
        gfarm = gfarm_mount.start(lab)
        with gfarm.fuse() as folder:
            gfarm.run(f"mkdir -p {folder}/deep/er/est; echo text | tee {folder}/deep/er/est/{{file,other}} > /dev/null")
            gfarm_speed.make(gfarm, f"{folder}/listed", LISTED)
        with mounted(gfarm, "actimeo=600") as mount:
            gfarm.run(f"ls -d {mount.at}/.")
            for deed in DEEDS:
                before = _kinds(mount)
                # A close is not waited for.
                gfarm.run(f"cd {mount.at} && {{ {deed.command}; }} > /dev/null && sleep 0.5")
                more = {kind: count - before.get(kind, 0) for kind, count in _kinds(mount).items()}
                found.append(Asked(deed, {kind: count for kind, count in more.items() if count}))
                say(f"{deed.title}: {found[-1].gfmd} questions, {deed.least} at least")
    return found
