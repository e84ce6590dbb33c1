# SPDX-License-Identifier: GPL-2.0
"""Guest-time rates under -icount: every guest instruction takes 4 ns of guest time, idle time is skipped.

fio's IOPS then count instructions (and timers), and do not depend on the host's load. They compare
implementations in one guest; they are no absolute speeds. A cell repeats within a few per cent only,
since where the pages of fio's buffers are and who wakes whom first differs: so each is measured in
several machines, in each with the setups in another order, and the median counts.
"""
import concurrent.futures
import json
import os
import statistics
from collections.abc import Callable

import setups

from vmlab.lab import Lab, Spec
from vmlab.machine import Machine

PATTERNS = ("randread", "randwrite")
SIZES = ("4k", "64k", "128k")
DEPTHS = (1, 16, 64)
JOBS = (1, 4)
QUICK = (("randread", "4k", 1, 1), ("randread", "4k", 16, 1), ("randwrite", "4k", 16, 1), ("randread", "128k", 16, 1))
GUEST_SECONDS = 1
ICOUNT = "shift=2,sleep=off"    # 4 ns an instruction

Cell = tuple[str, str, int, int]


def cells(quick: bool, cases: list[tuple[str, ...]]) -> tuple[Cell, ...]:
    """(pattern, size, depth, jobs) of every cell that is measured; all that begin as one of `cases`, if any."""
    every = tuple((p, s, d, j) for p in PATTERNS for s in SIZES for d in DEPTHS for j in JOBS)
    if cases:
        return tuple(cell for cell in every if any(tuple(map(str, cell))[:len(case)] == case for case in cases))
    return QUICK if quick else every


def _run(machine: Machine, device: str, cell: Cell) -> float:
    pattern, size, depth, jobs = cell
    text = machine.run(
        f"fio --name=x --filename={device} --rw={pattern} --bs={size} --iodepth={depth} --numjobs={jobs} "
        "--group_reporting --direct=1 --ioengine=io_uring --time_based "
        f"--runtime={GUEST_SECONDS} --norandommap --randrepeat=1 --output-format=json", 900)
    job = json.loads(text[text.index("{"):])["jobs"][0]
    if job["error"]:
        raise RuntimeError(f"fio on {device} {cell}: error {job['error']}")
    return float(job["read" if pattern == "randread" else "write"]["iops"])


def _round(say: Callable[[str], None], wanted: list[setups.Setup],
           chosen: tuple[Cell, ...]) -> dict[tuple[str, Cell], float]:
    results = {}
    with Lab(Spec(machines=1, smp=2, memory_mib=2048, icount=ICOUNT)) as lab:
        machine = lab.client
        machine.run(setups.BACKING)
        for setup in wanted:
            setups.bring_up(machine, setup)
            for cell in chosen:
                results[setup.name, cell] = _run(machine, setup.device, cell)
                say(f"{setup.name:9} {cell[0]:9} {cell[1]:>4} qd {cell[2]:2} jobs {cell[3]}: "
                    f"{results[setup.name, cell]:8.0f} IOPS (guest time)")
            setups.take_down(machine, setup)
    return results


def _order(wanted: list[setups.Setup], number: int) -> list[setups.Setup]:
    """Every other round goes backwards: what comes later in a machine finds its memory in smaller pieces."""
    return wanted if number % 2 == 0 else wanted[::-1]


def measure(say: Callable[[str], None], wanted: list[setups.Setup], chosen: tuple[Cell, ...],
            repeat: int) -> dict[tuple[str, Cell], list[float]]:
    """{(setup, cell): IOPS in guest time, of each round}. The rounds run side by side."""
    with concurrent.futures.ThreadPoolExecutor(min(repeat, os.cpu_count() or 1)) as pool:
        rounds = list(pool.map(lambda number: _round(say, _order(wanted, number), chosen), range(repeat)))
    return {key: [one[key] for one in rounds] for key in rounds[0]}


def spread(results: dict[tuple[str, Cell], list[float]]) -> tuple[float, float]:
    """The median and the largest distance of the rounds of one cell, relative to its median."""
    spreads = [(max(values) - min(values)) / statistics.median(values) for values in results.values()]
    return statistics.median(spreads), max(spreads)
