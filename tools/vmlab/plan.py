# SPDX-License-Identifier: GPL-2.0
"""Plans what is to be run, and in which order: tests that can share a lab and its modules are one group.

A group is the tests of one file that want the same lab. Those that share loaded modules come first; then the modules
are unloaded, which is a test of its own; then come those that load modules for themselves, and at last those that leave
the lab unfit for others. Whole groups go to the labs that run side by side; groups of timed tests run alone. Tests that
mostly wait are groups too, for one more lab beside the others.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from vmlab import tier


@dataclass(frozen=True)
class Planned:
    """One test, as a worker describes it."""

    name: str
    title: str
    file: str
    lab: str
    spec: str
    shares: bool
    timed: bool
    waits: bool
    debug: bool
    late: bool
    preempt: str
    tier: str
    processors: int


@dataclass
class Group:
    """Tests that follow each other in one lab."""

    key: tuple[str, str, bool, bool]
    tests: list[Planned] = field(default_factory=list)
    turn: int = 0

    @property
    def spec(self) -> str:
        """The lab."""
        return self.key[1]

    @property
    def timed(self) -> bool:
        """Whether nothing may run beside it."""
        return self.key[2]

    @property
    def waits(self) -> bool:
        """Whether it takes more time than processors."""
        return self.key[3]

    @property
    def light(self) -> bool:
        """Whether its machines have one processor each."""
        return self.tests[0].processors == 1

    @property
    def unload(self) -> str:
        """The name of the test at the end of those that share modules, "" if there are none."""
        if not any(test.shares and not test.debug for test in self.tests):
            return ""
        machines = self.tests[0].lab.partition(",")[0].replace(" ", "_")
        return f"{self.key[0]}.unload_{machines}{'_timed' if self.timed else ''}{'_waiting' if self.waits else ''}"

    def label(self, name: str) -> str:
        """The name under which a test is reported."""
        return f"{name}#{self.turn}" if self.turn else name

    def tier(self, name: str) -> str:
        """The tier of one of its tests; the unload counts for those of `core` if there are any."""
        tiers = {test.name: test.tier for test in self.tests}
        return tiers.get(name, tier.CORE if tier.CORE in tiers.values() else tier.ALL)

    @property
    def names(self) -> list[str]:
        """All that is reported of it, in order."""
        shared, own = self.parts()
        return [*(test.name for test in shared), *([self.unload] if self.unload else []), *(test.name for test in own)]

    def parts(self) -> tuple[list[Planned], list[Planned]]:
        """Tests before and after the unload."""
        shared = [test for test in self.tests if test.shares]
        own = [test for test in self.tests if not test.shares]
        return (sorted(shared, key=lambda test: test.preempt),
                sorted(own, key=lambda test: (test.late, test.preempt)))

    def orders(self) -> list[dict[str, object]]:
        """Orders for a worker; it answers each of them when it is done."""
        shared, own = self.parts()
        told: list[dict[str, object]] = [{"do": "tests", "names": [test.name]} for test in shared]
        if self.unload:
            told.append({"do": "unload", "name": self.unload, "tests": [test.name for test in shared]})
        return told + [{"do": "tests", "names": [test.name]} for test in own]


@dataclass(frozen=True)
class Later:
    """A test that runs again when all groups have ended; `logs` is where those of its first attempt are."""

    group: Group
    name: str
    logs: str

    def order(self) -> dict[str, object]:
        """The order to the worker."""
        return {"do": "again", "name": self.name, "logs": self.logs}


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns names the test: a file, or a shell pattern over the whole name."""
    wanted = [p.replace("/", ".").removesuffix(".py").rpartition("tests.")[2] for p in patterns]
    return any(name.partition(".")[0] == p or fnmatchcase(name, p) for p in wanted)


def select(tests: Sequence[Planned], only: Sequence[str], without: Sequence[str],
           tiers: Sequence[str] = tuple(tier.RUNS[tier.LONG])) -> list[Planned]:
    """The tests of the tiers that are asked for and not left out; all of them if there are no patterns."""
    return [test for test in tests
            if test.tier in tiers and (not only or matches(test.name, only)) and not matches(test.name, without)]


def groups(tests: Sequence[Planned], repeat: int = 1) -> list[Group]:
    """The groups, in the order of their first tests; all of them once, then once more."""
    found: list[Group] = []
    for turn in range(1, repeat + 1):
        round_of: dict[tuple[str, str, bool, bool], Group] = {}
        for test in tests:
            key = (test.file, test.spec, test.timed, test.waits)
            group = round_of.setdefault(key, Group(key, turn=turn if repeat > 1 else 0))
            group.tests.append(test)
        found += round_of.values()
    return found


def choose(left: list[Group], spec: str, weights: dict[str, float]) -> Group:
    """The next group for a lab: of its own shape if there is one; the longest first, so that all labs end together."""
    def weight(group: Group) -> float:
        return sum(weights.get(name, 8.0) for name in group.names)
    return max(left, key=lambda group: (group.spec == spec, weight(group)))
