# SPDX-License-Identifier: GPL-2.0
"""Questions to every machine after every test, unasked for.

1. Did the kernel complain since the test began?
2. Are the RDMA resources back, and is no session and no device left in sysfs? While modules stay loaded for the next
   test that means: as many as when they had just been loaded.
3. Do our modules unload, and are the RDMA resources back where they were after boot? Asked when a group of tests
   ends, and after each test that loads modules for itself.
4. In a debug kernel, then too: does kmemleak know of memory that nobody refers to any more?

Completion queues are not counted exactly: ib_core keeps a pool of shared ones for each device, which grows at
the first use and is freed with the device, not with its users.
"""
from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from vmlab.channel import MachineGone
from vmlab.machine import Machine
from vmlab.patience import scaled

COMPLAINT = re.compile(
    r"WARN(ING)?\b|\bBUG\b|\bOops\b|refcount|Call Trace|hung task|blocked for more than|soft lockup|"
    r"rcu: INFO: .*(detected|stall)|general protection fault|KASAN|UBSAN|list_(add|del) corruption|"
    r"[Kk]ernel panic|lockdep is turned off|scheduling while atomic|sleeping function called")
EXACT = ("pd", "qp", "cm_id", "mr", "ctx", "srq")
SETTLE_SECONDS = 5.0        # objects are freed by RCU and work queues, a moment after rmmod

# kmemleak takes what it has seen twice, some seconds apart, for lost. Its objects from before the test are forgotten.
KMEMLEAK = "/sys/kernel/debug/kmemleak"
_HAS_KMEMLEAK = f"mount -t debugfs none /sys/kernel/debug 2>/dev/null; [ -e {KMEMLEAK} ] && echo clear > {KMEMLEAK}"
_SCAN = f"""
for i in 1 2; do sleep 3; echo scan > {KMEMLEAK}; done
cat {KMEMLEAK}
echo clear > {KMEMLEAK}
"""

Resources = Mapping[str, Mapping[str, int]]


# Folders that are empty when no session and no device is left; no process is needed to look into them.
PLACES = ("/sys/class/rtrs-client", "/sys/class/rtrs-server", "/sys/devices/virtual/rnbd-client/ctl/devices",
          "/sys/class/rnbd-server/ctl/devices")
_LOOK = (f"shopt -s nullglob; for file in {' '.join(f'{place}/*' for place in PLACES)}; do echo \"$file\"; done; "
         "rdma -j resource show")


def resources(machine: Machine) -> Resources:
    """Counts of RDMA objects for each device."""
    return _counts(machine.run("rdma -j resource show"))


def _counts(text: str) -> Resources:
    return {row["ifname"]: {key: row[key] for key in EXACT if key in row} for row in json.loads(text)}


def remains(machine: Machine, idle: Resources) -> list[str]:
    """What a test has left in a machine whose modules stay loaded, in words."""
    deadline = time.monotonic() + scaled(SETTLE_SECONDS)
    while True:
        said = machine.run(_LOOK)
        at = said.index("[")
        now, files = _counts(said[at:]), [line for line in said[:at].split() if not line.endswith("/ctl")]
        if (now == idle and not files) or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return [f"left behind, {file}" for file in files] + [
        f"left behind, {device}: {was} before, {now.get(device)} now"
        for device, was in idle.items() if now.get(device) != was]


def unreferenced(machine: Machine) -> list[str]:
    """What kmemleak has found, an object a line with where it was allocated."""
    objects = machine.run(_SCAN, 120).split("unreferenced object")[1:]
    return ["unreferenced object" + " | ".join(line.strip() for line in text.splitlines()) for text in objects]


def complaints(machine: Machine, after: int) -> list[str]:
    """Kernel log lines since a mark that no test may leave behind."""
    return [text for _sequence, text in machine.kernel_log(after) if COMPLAINT.search(text)]


@dataclass(frozen=True)
class Baseline:
    """One machine's RDMA resources, taken after boot and before any module under test."""

    machine: Machine
    at_boot: Resources
    has_kmemleak: bool

    @classmethod
    def take(cls, machine: Machine) -> Baseline:
        """Takes it now."""
        return cls(machine, resources(machine), machine.try_run(_HAS_KMEMLEAK).code == 0)

    def leaks(self) -> list[str]:
        """What is there that was not there after boot, in words."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while (now := resources(self.machine)) != self.at_boot and time.monotonic() < deadline:
            time.sleep(0.25)
        return [f"{device}: {was} after boot, {now.get(device)} now"
                for device, was in self.at_boot.items() if now.get(device) != was]


def examine(machine: Machine, mark: int, idle: Resources | None) -> list[str]:
    """After each test: the kernel log since its beginning, and what is left if modules stay loaded; `idle` is what they
    have then."""
    try:
        wrong = [] if idle is None else remains(machine, idle)
        wrong += [f"kernel: {text}" for text in complaints(machine, mark)]
    except MachineGone as why:
        wrong = [str(why)]
    return [f"{machine.name}: {text}" for text in wrong]


def unload(baseline: Baseline) -> list[str]:
    """Unloads all modules under test of a machine; what is wrong then, in words."""
    machine = baseline.machine
    wrong: list[str] = []
    try:
        result = machine.try_run("mods -r", 60)
        if result.code:
            wrong.append(f"modules do not unload: {result.out.strip()}")
        wrong += [f"left behind, {leak}" for leak in baseline.leaks()]
        wrong += unreferenced(machine) if baseline.has_kmemleak else []
    except MachineGone as why:
        wrong.append(str(why))
    return [f"{machine.name}: {text}" for text in wrong]
