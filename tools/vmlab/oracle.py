# SPDX-License-Identifier: GPL-2.0
"""Questions to every machine after every test, unasked for.

1. Did the kernel complain since the oracle last looked? No line is left out: it looks after each test, after each
   unload, before each test and before a machine loses its power (kernel_log.py).
2. Are the RDMA resources back, and is no session and no device left in sysfs? While modules stay loaded for the next
   test that means: as many as when they had just been loaded.
3. Have the drivers done what their state machines have decided? (replay.py) Asked whenever the log is looked at.
4. Do our modules unload, and are the RDMA resources back where they were after boot? Asked when a group of tests
   ends, and after each test that loads modules for itself.
5. In a debug kernel, then too: does kmemleak report unreferenced memory?

Completion queues are not counted exactly: ib_core keeps a pool of shared ones for each device, which grows at
the first use and is freed with the device, not with its users.
"""
from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vmlab import replay
from vmlab.channel import MachineGone
from vmlab.machine import Examination, Machine
from vmlab.patience import scaled

COMPLAINT = re.compile(
    r"WARN(ING)?\b|\bBUG\b|\bOops\b|refcount|Call Trace|hung task|blocked for more than|soft lockup|"
    r"rcu: INFO: .*(detected|stall)|general protection fault|KASAN|UBSAN|list_(add|del) corruption|"
    r"[Kk]ernel panic|lockdep is turned off|scheduling while atomic|sleeping function called")
# Of these, what a processor says that stood still because its timer's interrupt was lost (`machine.is_lost_timer`).
STOOD_STILL = re.compile(r"kernel: .*(rcu: INFO: \w+ self-detected stall|Call Trace)")
KERNEL = re.compile(r"^\w+: (kernel|replay): ")
EXACT = ("pd", "qp", "cm_id", "mr", "ctx", "srq")
SETTLE_SECONDS = 5.0        # objects are freed by RCU and work queues, a moment after rmmod

# kmemleak takes what it has seen twice, some seconds apart, for lost. Its objects from before the test are forgotten.
KMEMLEAK = "/sys/kernel/debug/kmemleak"
_SCAN = f"""
for i in 1 2; do sleep 3; echo scan > {KMEMLEAK}; done
cat {KMEMLEAK}
echo clear > {KMEMLEAK}
"""
NO_LOG = 2**62      # a mark after all that a kernel will ever say

Resources = Mapping[str, Mapping[str, int]]


# Folders that are empty, but for the control files, when no session, no device and no mount is left.
PLACES = ("/sys/class/rtrs-client", "/sys/class/rtrs-server", "/sys/devices/virtual/rnbd-client/ctl/devices",
          "/sys/class/rnbd-server/ctl/devices", "/proc/fs/gfarm")


def resources(machine: Machine) -> Resources:
    """Counts of RDMA objects for each device."""
    return counts(machine.examine(NO_LOG))


def counts(state: Examination) -> Resources:
    """The same, of a machine that was examined."""
    return {row["ifname"]: {key: row[key] for key in EXACT if key in row} for row in state.rdma}


def remains(state: Examination, idle: Resources) -> list[str]:
    """Things that a test has left in a machine whose modules stay loaded, in words."""
    files = [f"{place}/{name}" for place, names in state.folders.items() for name in names if name != "ctl"]
    now = counts(state)
    return [f"left behind, {file}" for file in files] + [
        f"left behind, {device}: {was} before, {now.get(device)} now"
        for device, was in idle.items() if _has_grown(was, now.get(device))]


def _has_grown(was: Mapping[str, int], now: Mapping[str, int] | None) -> bool:
    """Whether there is more of anything. Less is no leak: objects of the group before may have been ending when `was`
    was counted. What hides behind them is found at the unload, which is compared with the machine as it booted."""
    return now is None or any(count > was.get(kind, 0) for kind, count in now.items())


def unreferenced(machine: Machine) -> list[str]:
    """Objects that kmemleak has found, one a line with where it was allocated."""
    objects = machine.run(_SCAN, 120).split("unreferenced object")[1:]
    return ["unreferenced object" + " | ".join(line.strip() for line in text.splitlines()) for text in objects]


def complaints(machine: Machine, after: int) -> list[str]:
    """Kernel log lines since a mark that no test may leave behind."""
    return _complaints(machine.kernel_log(after))


def _complaints(log: list[tuple[int, str]]) -> list[str]:
    return [text for _sequence, text in log if COMPLAINT.search(text)]


def is_of_the_kernel(text: str) -> bool:
    """Whether something that is wrong, in words, is a complaint of a kernel or a deed of a driver that was not decided;
    but for the report of a processor that stood still."""
    return KERNEL.search(text) is not None and STOOD_STILL.search(text) is None


@dataclass(frozen=True)
class Heard:
    """Returns the complaints in a part of a kernel log, in words, and the sequence number of its newest line."""

    wrong: list[str]
    newest: int


def _judge(log: list[tuple[int, str]], is_over: bool = True) -> list[str]:
    """Returns the complaints in a part of a kernel log."""
    wrong = [f"replay: {text}" for text in replay.judge((text for _sequence, text in log), is_over)[1]]
    return wrong + [f"kernel: {text}" for text in _complaints(log)]


def _newest(log: list[tuple[int, str]], after: int) -> int:
    return log[-1][0] if log else after


def listen(machine: Machine, after: int, is_over: bool = True) -> Heard:
    """Judges a kernel log from a mark on. Unless it is over with what the drivers do, what was decided and is not done
    yet is no fault. Raises MachineGone if the machine does not answer."""
    deadline = time.monotonic() + scaled(SETTLE_SECONDS)
    while True:
        log = machine.whole_log(after)
        wrong = _judge(log, is_over)
        if not wrong or not is_over or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return Heard([f"{machine.name}: {text}" for text in wrong], _newest(log, after))


@dataclass(frozen=True)
class Baseline:
    """One machine's RDMA resources, taken after boot and before any module under test (`under_test`, by name)."""

    machine: Machine
    at_boot: Resources
    has_kmemleak: bool
    under_test: frozenset[str] = frozenset()

    @classmethod
    def take(cls, machine: Machine, under_test: Iterable[str] = ()) -> Baseline:
        """Takes it now."""
        has_kmemleak = machine.exists(KMEMLEAK) and machine.write(KMEMLEAK, "clear") == ""
        return cls(machine, resources(machine), has_kmemleak, frozenset(under_test))

    def is_idle(self, state: Examination) -> bool:
        """Whether nothing needs to be unloaded, and all is as it was after boot."""
        return not (self.has_kmemleak or self.under_test & set(state.modules)) and counts(state) == self.at_boot

    def leaks(self) -> list[str]:
        """Resources that are there and were not after boot, in words."""
        deadline = time.monotonic() + scaled(SETTLE_SECONDS)
        while (now := resources(self.machine)) != self.at_boot and time.monotonic() < deadline:
            time.sleep(0.25)
        return [f"{device}: {was} after boot, {now.get(device)} now"
                for device, was in self.at_boot.items() if now.get(device) != was]


@dataclass(frozen=True)
class Findings:
    """The faults in a machine after a test, in words; `at_rest`: all modules are loaded that are to stay loaded, or
    none is; `newest`: the sequence number of the newest line of the log that was judged."""

    wrong: list[str]
    at_rest: bool
    newest: int = field(default=-1, compare=False)


def examine(baseline: Baseline, mark: int, idle: Resources | None, loaded: Iterable[str] = ()) -> Findings:
    """After each test: the kernel log since a mark, and what is left. Modules of these names stay `loaded`, with
    as many objects as in `idle`; or none is to be loaded, and `idle` is None."""
    machine, newest = baseline.machine, mark
    try:
        deadline = time.monotonic() + scaled(SETTLE_SECONDS)
        while True:
            state = machine.examine(mark, PLACES)
            stays = idle is not None and set(loaded) <= set(state.modules)
            wrong = remains(state, idle) if stays and idle is not None else []
            # What has just been decided may not be done yet.
            wrong += _judge(state.log)
            if not wrong or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        newest, at_rest = _newest(state.log, mark), stays or baseline.is_idle(state)
    except MachineGone as why:
        wrong, at_rest = [str(why)], True
    return Findings([f"{machine.name}: {text}" for text in wrong], at_rest, newest)


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
