# SPDX-License-Identifier: GPL-2.0
"""Budgets of the tests, in seconds of the host's processors: of each file, and of all tests of a tier.

Seconds of processors depend on the host, and on what else it does. So a file is compared with the others of the same
run: by how many times they exceed what was measured once is the run's pace (the median of the files), and a file is
over its budget only if it has grown against the others. The sum of a tier is compared with what it costs in the same
run to wake a machine from its saved state, which no test changes; a slower host may use as many times more. A file
that is over its budget is measured a second time, with nothing beside it.

The kept times of complete runs (durations.py) become the table below by `python3 tools/vmlab budgets`.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from vmlab import durations, tier
from vmlab.ktap import Report
from vmlab.patience import WAKE_SECONDS, is_debug_kernel

# Seconds of processors of the tests of `core`, and of those of `all`: medians, on two cores by emulation, two labs side
# by side.
MEASURED: dict[str, tuple[float, float]] = {
    "address_change": (0, 9), "addresses": (0, 3), "administration": (21, 11), "against_c": (8, 0),
    "allocations": (10, 10), "connections": (14, 6), "crc32_umr": (0, 62), "dma": (12, 6), "documentation": (0, 47),
    "drain": (21, 7), "ec": (3, 57), "ec_by_hand": (0, 22), "ec_demo": (0, 47), "ec_events": (0, 7), "engines": (8, 0),
    "ec_members": (7, 72), "ec_memory": (0, 26), "ec_power": (0, 5), "ec_queues": (0, 23), "ec_replay": (0, 33),
    "ec_servers": (0, 28),
    "ec_sysfs_fuzz": (0, 12), "ec_use": (0, 29), "failover": (24, 45), "failover_c": (0, 47), "full_queues": (7, 24),
    "gfarm": (25, 28),
    "gfarm_cache": (34, 7), "gfarm_cache_addresses": (0, 21), "gfarm_cache_damage": (0, 14),
    "gfarm_cache_devices": (0, 63), "gfarm_cache_fragments": (1, 16), "gfarm_cache_history": (6, 34),
    "gfarm_cache_holders": (0, 64), "gfarm_cache_hostile": (28, 7), "gfarm_cache_machines": (0, 78),
    "gfarm_cache_options": (0, 30), "gfarm_cache_readers": (0, 69), "gfarm_cache_subnet": (0, 38),
    "gfarm_cache_waits": (0, 67), "gfarm_demo": (0, 50), "gfarm_documentation": (0, 5), "gfarm_faults": (48, 35),
    "gfarm_hostile": (31, 17), "gfarm_memory": (0, 69), "gfarm_mounting": (25, 0), "gfarm_names": (33, 0),
    "gfarm_open_files": (0, 31), "gfarm_readers": (0, 17), "gfarm_rights": (12, 0), "gfarm_statistics": (0, 18),
    "history": (5, 14), "hostile": (26, 24), "hostile_server": (41, 46), "identity": (13, 9), "interop": (14, 37),
    "io": (25, 0), "kernel_ext": (9, 0), "lab": (5, 11), "libioc": (6, 20), "lifecycle": (21, 18), "limits": (3, 23),
    "load": (7, 3), "map_errors": (6, 0), "memory": (0, 20), "net": (1, 2), "on_the_wire": (8, 0), "paths": (37, 64),
    "paths_server": (76, 23), "pi": (36, 20), "pi_damage": (15, 4), "pi_devices": (14, 17), "pi_grow": (0, 92),
    "pi_scrub": (9, 0), "pi_sectors": (0, 30), "pi_shared": (13, 0), "pi_store": (46, 6), "pi_use": (0, 122),
    "power": (15, 35), "preemption": (0, 23), "processors": (0, 15), "quarantine": (17, 13), "rdma": (6, 3),
    "recovery": (25, 0), "replay": (2, 0), "rioc": (66, 20), "rioc_backing": (44, 25), "rioc_demo": (0, 14),
    "rioc_paths": (0, 7), "rioc_power": (8, 10), "rioc_tool": (0, 38), "routes": (3, 0), "server_admin": (0, 32),
    "server_exports": (0, 34), "session_names": (0, 18), "silent_disks": (4, 3), "soak": (0, 82), "stack": (0, 68),
    "sysfs": (9, 0), "sysfs_fuzz": (0, 14), "teardown": (4, 21), "testdevice": (60, 18), "together": (14, 0),
    "vfs": (35, 10),
}
# A file that is not among them has just been written: these are its budgets. More is earned by moving or merging tests.
NEW = {tier.CORE: 90.0, tier.ALL: 110.0}
MARGIN = 1.3                # a budget is so many times what was measured
OVER = 1.5                  # and a file fails at so many times its budget
SMALL_SECONDS = 10.0        # the least budget: a boot more or less says nothing
FASTEST = 0.85              # the least pace that makes a limit smaller
PACE_FILES_MIN = 8          # the median of fewer files says nothing
SUM = {tier.CORE: 1060.0, tier.ALL: 3000.0}     # of all: with those of core

# Runs all tests of these files once more, and answers what each used, as Durations.rows.
Measure = Callable[[set[str]], list[dict[str, Any]]]


@dataclass(frozen=True)
class Cost:
    """Seconds of the host's processors that the tests of one file and one tier have used."""

    file: str
    tier: str
    seconds: float

    @property
    def measured(self) -> float:
        """Seconds that they used when measured; 0 if they were not."""
        return MEASURED.get(self.file, (0.0, 0.0))[self.tier != tier.CORE]

    @property
    def budget(self) -> float:
        """Seconds that they may use."""
        return max(self.measured * MARGIN, SMALL_SECONDS) if self.file in MEASURED else NEW[self.tier]

    def limit(self, now: float) -> float:
        """The limit at which they fail, at this pace; a file that is new was not measured on a faster host, and loads
        that go on for a time that is given do not get cheaper there."""
        return self.budget * OVER * max(FASTEST if self.file in MEASURED else 1.0, now)


def costs(rows: Iterable[dict[str, Any]]) -> list[Cost]:
    """The costs of the tests of a run, by file and tier."""
    sums: dict[tuple[str, str], float] = {}
    for row in rows:
        key = (row["file"], row["tier"])
        sums[key] = sums.get(key, 0.0) + row["cpu"]
    return [Cost(*key, seconds) for key, seconds in sorted(sums.items())]


def pace(found: Sequence[Cost]) -> float:
    """The factor by which everything is dearer than where it was measured."""
    ratios = [cost.seconds / cost.measured for cost in found if cost.measured * MARGIN > SMALL_SECONDS]
    return median(ratios) if len(ratios) >= PACE_FILES_MIN else max([1.0, *ratios])


def grown(found: Sequence[Cost]) -> list[Cost]:
    """The files that are over their budget."""
    now = pace(found)
    return [cost for cost in found if cost.seconds > cost.limit(now)]


def over(found: Sequence[Cost]) -> list[str]:
    """The same in words."""
    return [f"{cost.file}, tests of {cost.tier}: {cost.seconds:.0f} s of processors; the budget is {cost.budget:.0f}, "
            f"the pace of this run {pace(found):.2f}. Make them cheaper, merge them or move them to another tier"
            for cost in grown(found)]


def cheaper(found: Sequence[Cost], measure: Measure) -> list[Cost]:
    """`found`, where files over their budget count what they cost in a second measurement, if that is less: what ran
    beside a file may have made it dearer."""
    files = {cost.file for cost in grown(found)}
    second = {(cost.file, cost.tier): cost.seconds for cost in costs(measure(files))} if files else {}
    return [Cost(cost.file, cost.tier, min(cost.seconds, second.get((cost.file, cost.tier), cost.seconds)))
            for cost in found]


def total_over(found: Sequence[Cost], wakes: Sequence[float], of_tier: str) -> str:
    """Whether all tests of a tier are too dear together, in words."""
    host = max(1.0, median(wakes) / WAKE_SECONDS)
    used = sum(cost.seconds for cost in found if of_tier in (cost.tier, tier.ALL))
    if used <= SUM[of_tier] * host:
        return ""
    return (f"all tests of {of_tier}: {used:.0f} s of processors; they may use {SUM[of_tier]:.0f} where a machine "
            f"wakes in {WAKE_SECONDS} s, here it takes {median(wakes):.2f}")


def names(options: argparse.Namespace) -> list[str]:
    """The results that a run has of its costs: none unless it is all tests of a tier, each once."""
    some = [*options.tests, *options.only, *options.without] or options.append or options.modules != "ours"
    if some or options.tier == tier.LONG or options.repeat > 1 or options.long or is_debug_kernel():
        return []
    return ["budgets.files", *(f"budgets.{name}" for name in tier.RUNS[options.tier])]


def judge(report: Report, planned: Sequence[str], times: durations.Durations, measure: Measure) -> None:
    """Reports these results."""
    found = costs(times.rows)
    has_core = any(cost.tier == tier.CORE for cost in found)
    everything = found if has_core else found + costs(durations.latest_of(tier.CORE))
    for name in planned:
        _file, _dot, what = name.partition(".")
        if not times.wakes:
            report.skip(name, "no machine was woken here, which is what costs are compared with")
            continue
        wrong = over(cheaper(found, measure)) if what == "files" else [total_over(everything, times.wakes, what)]
        if any(wrong):
            report.not_ok(name, 0.0, "\n".join(wrong))
        else:
            report.ok(name, 0.0)


def table(runs: Sequence[Sequence[dict[str, Any]]]) -> str:
    """`MEASURED` by these runs."""
    seconds: dict[str, dict[str, list[float]]] = {}
    for rows in runs:
        for cost in costs(row for row in rows if "tier" in row):
            seconds.setdefault(cost.file, {}).setdefault(cost.tier, []).append(cost.seconds)
    return "\n".join(f'    "{file}": ({", ".join(f"{median(found.get(name, [0])):.0f}" for name in SUM)}),'
                     for file, found in sorted(seconds.items()))


def run(_options: argparse.Namespace) -> int:
    """Prints the table by the kept times."""
    runs = durations.complete_runs()
    print(table([run["tests"] for run in runs]))
    if wakes := [seconds for run in runs for seconds in run.get("wakes", [])]:
        print(f"# to wake a machine of one processor: {median(wakes):.2f} s")
    return 0
