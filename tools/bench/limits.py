# SPDX-License-Identifier: GPL-2.0
"""Limits of the cost of an IO, and of Gfarm's mount: the figures of events.py against `limits.toml`.

A figure above its limit by more than the tolerance fails, and the functions of the sources that grew most are named.
One that has fallen well below asks to lower the limit. `--set-limits` writes the file anew: a change of what an IO
costs is in the diff of the commit that makes it.
"""
from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import attribution
import events
import gfarm_limits
import setups

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "limits.toml"
SETUPS = ("Rust Y", "Rust N")
# Over two paths, at depth 1: what is above the cells of one path is the choice of a path, and the server's fence.
TWO_PATHS = ("Rust round-robin", "Rust min-inflight")
DEEP = ", depth 16"
# Of the limit. Runs of the same modules differ by 0.4 % at most at depth 1. Deeper it depends on the host which
# completions come together: by 0.7 % in five runs.
ABOVE, ABOVE_DEEP, BELOW = 0.005, 0.01, 0.02
# Locked instructions, each; likewise 0.55 deeper.
LOCKED_ABOVE, LOCKED_ABOVE_DEEP, LOCKED_BELOW = 0.5, 0.8, 1.5
# Calls, each: they are few, and a heartbeat falls into one run or not.
CALLS_ABOVE, CALLS_BELOW = 0.03, 0.10
# Of many calls.
MANY_ABOVE = 0.01
# Posts of both sides for requests that are submitted eight at a time: an answer each, and for the client less than 0.3.
# How many a task has ready when it submits is another in each run; by 0.14 in three.
POSTS_ABOVE_DEEP = 0.17
# Of Gfarm's cells, of all figures: what datagrams come together is another in each run, by 3.5 % in three.
GFARM, GFARM_ABOVE, GFARM_BELOW, GFARM_CALLS_ABOVE = "Gfarm, ", 0.05, 0.1, 0.2
GREW_MAX = 10
# Functions of the sources with less an IO in each cell are not in the file.
LEAST = 5.0
HEAD = """# SPDX-License-Identifier: GPL-2.0
# What an IO of 4 KiB may cost, a file of Gfarm's mount, and a page from a node. `python3 tools/bench --set-limits`
# writes this file; `python3 tools/bench --limits`, a part of `make test`, fails at more than 0.5 % above a figure, 1 %
# at depth 16. `functions` are instructions by function of the sources in the cells but those of depth 16, in that
# order; they are compared only to say what has grown.
"""

# Instructions an IO by cell, then by function of the sources.
Functions = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Limits:
    """The content of the file: figures by cell, and instructions by cell and function of the sources."""

    cells: dict[str, dict[str, float]]
    functions: Functions

    @classmethod
    def read(cls, text: str) -> Limits:
        """Parses the file."""
        told = tomllib.loads(text)
        rows = told["functions"]
        return cls(told["cells"], {cell: {name: counts[column] for name, counts in rows.items()}
                                   for column, cell in enumerate(cell for cell in told["cells"] if _is_depth_1(cell))})

    def write(self) -> str:
        """The file's text."""
        lines = [HEAD]
        for cell, figures in self.cells.items():
            lines.append(f"[cells.{json.dumps(cell)}]")
            lines += [*(f"{json.dumps(name)} = {value:.2f}" for name, value in figures.items()), ""]
        lines.append("[functions]")
        rows = {name: [found.get(name, 0.0) for found in self.functions.values()]
                for name in {name for found in self.functions.values() for name in found}}
        for name in sorted(rows, key=lambda name: (-max(rows[name]), name)):
            if max(rows[name]) >= LEAST:
                lines.append(f"{json.dumps(name)} = [{', '.join(f'{count:.1f}' for count in rows[name])}]")
        return "\n".join(lines) + "\n"


def _depth_1(cell: str) -> str:
    """The cell whose functions are told for a cell."""
    return cell.removesuffix(DEEP) + ", depth 1" if cell.endswith(DEEP) else cell


def _is_depth_1(cell: str) -> bool:
    return cell == _depth_1(cell)


def room(cell: str, name: str, limit: float) -> tuple[float, float]:
    """The distances by which a figure may be above its limit, and below it before the limit is too high."""
    if cell.startswith(GFARM):
        return max(GFARM_CALLS_ABOVE, limit * GFARM_ABOVE), max(GFARM_CALLS_ABOVE, limit * GFARM_BELOW)
    if name == events.LOCKED:
        return LOCKED_ABOVE if _is_depth_1(cell) else LOCKED_ABOVE_DEEP, LOCKED_BELOW
    if name == events.POSTS and not _is_depth_1(cell):
        return POSTS_ABOVE_DEEP, POSTS_ABOVE_DEEP
    if name in events.CALLS:
        return max(CALLS_ABOVE, limit * MANY_ABOVE), max(CALLS_BELOW, limit * BELOW)
    return limit * (ABOVE if _is_depth_1(cell) else ABOVE_DEEP), limit * BELOW


def judge(cell: str, limits: Mapping[str, float], found: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """The figures above their limits, and those so far below that the limit has to follow."""
    above, below = [], []
    for name in events.FIGURES:
        if name not in limits:
            above.append(f"{cell}: {name} have no limit: python3 tools/bench --set-limits")
            continue
        more, less = room(cell, name, limits[name])
        if found[name] > limits[name] + more:
            above.append(f"{cell}: {found[name]:.2f} {name} an IO, the limit is {limits[name]:.2f}")
        elif found[name] < limits[name] - less:
            below.append(f"{cell}: {found[name]:.2f} {name} an IO, the limit is {limits[name]:.2f}: lower it by "
                         "python3 tools/bench --set-limits")
    return above, below


def grown(before: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    """The functions that have grown most, in words."""
    more = {name: now[name] - before.get(name, min(now[name], LEAST)) for name in now}
    most = sorted(more, key=lambda name: -more[name])[:GREW_MAX]
    return [f"{more[name]:+7.1f} to {now[name]:6.1f}  {name}" for name in most if more[name] >= 0.5]


def _measure(say: Callable[[str], None]) -> Limits:
    """The file's content as it would be now."""
    cells, symbols = events.measure(say, [setup for setup in setups.SETUPS if setup.name in SETUPS])
    more, their_symbols = events.measure(say, [setup for setup in setups.TWO_PATHS if setup.name in TWO_PATHS], [1])
    cells, symbols = cells | more, symbols | their_symbols
    more, their_symbols = events.measure(say, [setups.REVOKED], [1], ["randwrite"])
    cells, symbols = cells | more, symbols | their_symbols
    gfarm, gfarm_symbols = gfarm_limits.measure(say)
    paths = json.loads(subprocess.run([sys.executable, "-B", "tools/kdir", "paths", "--json"], check=True, text=True,
                                      cwd=HERE.parents[1], capture_output=True).stdout)
    modules = pathlib.Path(paths["modules"])
    costs = [(str(cell), cost, symbols[cell.setup]) for cell, cost in cells.items()]
    costs += [(cell, cost, gfarm_symbols) for cell, cost in gfarm.items()]
    functions = {cell: attribution.by_source(cost.by_address, of_cell, modules) | cost.by_helper
                 for cell, cost, of_cell in costs if _is_depth_1(cell)}
    return Limits({cell: cost.figures for cell, cost, _ in costs}, functions)


def set_limits(say: Callable[[str], None]) -> None:
    """Measures and writes the file."""
    FILE.write_text(_measure(say).write(), encoding="utf-8")
    say(f"{FILE.relative_to(HERE.parents[1])} is written; its diff is what an IO costs more or less")


def check(say: Callable[[str], None]) -> int:
    """Measures, compares, and closes with a line that counts cells."""
    limits = Limits.read(FILE.read_text(encoding="utf-8"))
    found = _measure(say)
    failed = 0
    for cell, figures in found.cells.items():
        above, below = judge(cell, limits.cells.get(cell, {}), figures)
        for line in (*above, *below):
            print(f"# {line}")
        if above:
            failed += 1
            for line in grown(limits.functions.get(_depth_1(cell), {}), found.functions[_depth_1(cell)]):
                print(f"#     {line}")
        print(f"{'not ok' if above else 'ok'} speed.{cell.replace(', ', '.').replace(' ', '-')}")
    print(f"{len(found.cells) - failed} passed, {failed} failed")
    return 1 if failed else 0
