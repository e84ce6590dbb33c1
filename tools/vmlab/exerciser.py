# SPDX-License-Identifier: GPL-2.0
"""A file system on a disk that is exercised all the time, with a model of what it has to hold (peer/fs_exerciser.py).

    exerciser = Exerciser(lab, disk, "xfs", seed)       # makes it, mounts it, and begins
    ...                                                 # cut, freeze
    exerciser.end()                                     # all is right, also after another mount
"""
from __future__ import annotations

import json
from pathlib import Path

from vmlab import rnbd
from vmlab.checks import Failed, eq, ge
from vmlab.lab import Lab
from vmlab.people import CHECK, MADE_SECONDS, MAKE

PROGRAM = Path(__file__).with_name("peer") / "fs_exerciser.py"
IN_GUEST = "/run/fs_exerciser.py"
# Deeds of all workers together: fewer would say little.
LEAST = 400


class Exerciser:
    """One of the people of `people.py`."""

    def __init__(self, lab: Lab, disk: rnbd.Disk, kind: str, seed: int, timeout: float = 300.0) -> None:
        self.machine, self.path, self.kind = disk.machine, disk.path, kind
        self.folder, self._kept = f"/mnt/{kind}", f"/run/{kind}.kept"
        self._over = f"/run/{kind}.over"
        self.deeds: dict[str, int] = {}     # what was done how often, when it has ended
        align = int(disk.queue("logical_block_size"))
        self.machine.push(PROGRAM, IN_GUEST)
        lab.defer(self.machine.try_run, f"umount -l {self.folder}; rmmod {kind}; rm -rf {self._kept} {self._over}")
        self.machine.run(f"set -e; {MAKE[kind].format(self.path)}; mkdir -p {self.folder}; "
                         f"mount {self.path} {self.folder}", MADE_SECONDS)
        self._job = self.machine.start_job(
            f"exec python3 -I -S {IN_GUEST} run {self.folder} {self._kept} {seed} {align} {self._over}", timeout)

    @property
    def running(self) -> bool:
        """Whether it goes on; what has ended by itself has found something."""
        return self._job.running

    def end(self) -> None:
        """Ends it: the file system is sound, and all files are what they were."""
        self.machine.run(f"touch {self._over}")
        result = self._job.wait(MADE_SECONDS)
        if result.code:
            raise Failed(f"{self.kind}: {result.out.strip()[-3000:]}")
        self.deeds = json.loads(result.out.strip().rpartition("\n")[2])
        ge(sum(self.deeds.values()), LEAST, f"deeds on {self.kind}")
        checked = self.machine.run(
            f"set -e; umount {self.folder}; {CHECK[self.kind].format(self.path)} > /run/fsck 2>&1 || "
            f"{{ cat /run/fsck; exit 1; }}; mount {self.path} {self.folder}; "
            f"python3 -I -S {IN_GUEST} check {self.folder} {self._kept}; umount {self.folder}", MADE_SECONDS)
        eq(checked.strip(), "ok", f"{self.kind} after another mount")
