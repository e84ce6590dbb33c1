# SPDX-License-Identifier: GPL-2.0
"""Guest-time rates under -icount: every guest instruction takes 4 ns of guest time, idle time is skipped.

fio's IOPS then count instructions (and timers), repeat within about 1 %, and do not depend on the
host's load. They compare implementations in one guest; they are no absolute speeds.
"""
import json

import setups
from vmlab.lab import Lab, Spec
from vmlab.machine import Machine

PATTERNS = ("randread", "randwrite")
SIZES = ("4k", "64k", "128k")
DEPTHS = (1, 16, 64)
JOBS = (1, 4)
QUICK = (("randread", "4k", 1, 1), ("randread", "4k", 16, 1), ("randwrite", "4k", 16, 1), ("randread", "128k", 16, 1))
GUEST_SECONDS = 1

Cell = tuple[str, str, int, int]


def cells(quick: bool) -> tuple[Cell, ...]:
    """(pattern, size, depth, jobs) of every cell that is measured."""
    if quick:
        return QUICK
    return tuple((p, s, d, j) for p in PATTERNS for s in SIZES for d in DEPTHS for j in JOBS)


def _run(machine: Machine, device: str, cell: Cell) -> float:
    pattern, size, depth, jobs = cell
    text = machine.run(
        f"fio --name=x --filename={device} --rw={pattern} --bs={size} --iodepth={depth} --numjobs={jobs} "
        "--group_reporting --direct=1 --ioengine=io_uring --time_based "
        f"--runtime={GUEST_SECONDS} --norandommap --randrepeat=1 --output-format=json", 900)
    job = json.loads(text[text.index("{"):])["jobs"][0]
    if job["error"]:
        raise RuntimeError(f"fio on {device} {cell}: error {job['error']}")
    return job["read" if pattern == "randread" else "write"]["iops"]


def measure(say, wanted: list[setups.Setup], quick: bool) -> dict[tuple[str, Cell], float]:
    """{(setup, cell): IOPS in guest time}."""
    results = {}
    with Lab(Spec(machines=1, smp=2, memory_mib=2048, icount="shift=2,sleep=off")) as lab:
        machine = lab.client
        machine.run(setups.BACKING)
        for setup in wanted:
            setups.bring_up(machine, setup)
            for cell in cells(quick):
                results[setup.name, cell] = _run(machine, setup.device, cell)
                say(f"{setup.name:9} {cell[0]:9} {cell[1]:>4} qd {cell[2]:2} jobs {cell[3]}: "
                    f"{results[setup.name, cell]:8.0f} IOPS (guest time)")
            setups.take_down(machine, setup)
    return results
