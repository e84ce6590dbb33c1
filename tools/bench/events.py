# SPDX-License-Identifier: GPL-2.0
"""Events per IO, counted in one run of the guest under the plugin: instructions, locked instructions, and calls.

A function is called as often as the block at its first instruction is executed. Locked instructions are counted with
the kernel argument `noreplace-smp`: on one processor the kernel would replace those of C. Guest time is instructions,
so what timers and interrupts bring together is the same in each run.
"""
from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import counting
import setups
from counting import Counted, Symbols
from rates import ICOUNT

from vmlab.lab import Lab, Spec
from vmlab.machine import Machine

POSTS = "send posts"
# Functions of the kernel and of rxe whose calls are an event.
CALLS = {
    POSTS: ("rxe_post_send",),
    "receive posts": ("rxe_post_recv",),
    "completions": ("rxe_cq_post",),
    "completion events": ("ib_cq_completion_softirq", "ib_cq_completion_workqueue", "ib_cq_completion_direct"),
    "registrations": ("rxe_reg_fast_mr",),
    "invalidations": ("rxe_invalidate_mr",),
    "packets": ("rxe_xmit_packet",),
    # Of the whole machine: most are packets of rxe.
    "allocations": ("kmem_cache_alloc_noprof", "kmem_cache_alloc_node_noprof", "kmem_cache_alloc_lru_noprof",
                    "__kmalloc_noprof", "__kmalloc_cache_noprof", "__kmalloc_node_noprof",
                    "__kmalloc_node_track_caller_noprof"),
}
INSTRUCTIONS, LOCKED = "instructions", "locked instructions"
FIGURES = (INSTRUCTIONS, LOCKED, *CALLS)
HELPER = "rust_helper_"
# fio's options by queue depth; at 16 it submits 8 at a time.
DEPTHS = {1: "--iodepth=1",
          16: "--iodepth=16 --iodepth_batch_submit=8 --iodepth_batch_complete_min=8 --iodepth_batch_complete_max=16"}
PATTERNS = ("randread", "randwrite")
IOS = (200, 2200)


@dataclass(frozen=True, order=True)
class Cell:
    """One load on one setup, 4 KiB an IO."""

    setup: str
    pattern: str
    depth: int

    def __str__(self) -> str:
        return f"{self.setup}, {self.pattern} 4k, depth {self.depth}"


@dataclass(frozen=True)
class PerIo:
    """The cost of an IO of a cell."""

    figures: dict[str, float]
    # Executions of each instruction of the modules that are counted, by module, then by address.
    by_address: dict[str, dict[int, float]]
    # Instructions of each of the kernel's helpers for Rust.
    by_helper: dict[str, float]


def _is_helper(module: str, function: str) -> bool:
    """Whether it is one of the kernel's helpers for Rust: what is an inline function for C."""
    return module == "kernel" and function.startswith(HELPER)


def per_io(short: Counted, long: Counted, more: int, symbols: Symbols, modules: Sequence[str]) -> PerIo:
    """The difference of two runs, the second with `more` IOs more."""
    def difference(a: dict[int, int], b: dict[int, int]) -> dict[int, float]:
        return {at: (b.get(at, 0) - a.get(at, 0)) / more for at in a.keys() | b.keys()}

    instructions = difference(short.instructions, long.instructions)
    figures = dict.fromkeys(FIGURES, 0.0)
    by_helper: dict[str, float] = {}
    for at, count in instructions.items():
        module, function = symbols.of(at)
        if _is_helper(module, function):
            by_helper[function] = by_helper.get(function, 0.0) + count
        if _is_helper(module, function) or module in modules:
            figures[INSTRUCTIONS] += count
    for at, count in difference(short.locked, long.locked).items():
        module, function = symbols.of(at)
        if _is_helper(module, function) or module in modules:
            figures[LOCKED] += count
    event_of = {function: event for event, functions in CALLS.items() for function in functions}
    for at, count in difference(short.times, long.times).items():
        if event := event_of.get(symbols.starting_at(at)):
            figures[event] += count
    by_address: dict[str, dict[int, float]] = {}
    for at, count in difference(short.passed, long.passed).items():
        if (module := symbols.of(at)[0]) in modules:
            by_address.setdefault(module, {})[at] = count
    return PerIo(figures, by_address, by_helper)


def measure(say: Callable[[str], None], wanted: Sequence[setups.Setup],
            depths: Iterable[int] = DEPTHS,
            patterns: Iterable[str] = PATTERNS) -> tuple[dict[Cell, PerIo], dict[str, Symbols]]:
    """The cells of some setups, and the guest's symbols while each was up."""
    cells: dict[Cell, PerIo] = {}
    symbols: dict[str, Symbols] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        base = pathlib.Path(name) / "counts"
        count, mark = counting.compile_tools(pathlib.Path(name))
        spec = Spec(machines=1, smp=1, memory_mib=2048, accel="tcg,thread=single", icount=ICOUNT,
                    append="nokaslr noreplace-smp", qemu_args=("-plugin", f"file={count},out={base},detail=1"))
        with Lab(spec) as lab:
            lab.client.push(mark, "/tmp/mark")
            lab.client.run(f"chmod 755 /tmp/mark; {setups.BACKING}")
            counter = counting.Counter(lab.client, base, IOS)
            for setup in wanted:
                loads = [(pattern, depth) for pattern in patterns for depth in depths]
                cells |= _measure_setup(say, lab.client, counter, setup, loads, symbols)
    return cells, symbols


def _measure_setup(say: Callable[[str], None], machine: Machine, counter: counting.Counter, setup: setups.Setup,
                   loads: Sequence[tuple[str, int]], symbols: dict[str, Symbols]) -> dict[Cell, PerIo]:
    setups.bring_up(machine, setup)
    symbols[setup.name] = Symbols(machine.run("cat /proc/kallsyms", 120))
    cells = {}
    for pattern, depth in loads:
        cell = Cell(setup.name, pattern, depth)
        say(f"counting {cell}")
        short, long = counter.runs(setup, pattern, "4k", DEPTHS[depth])
        cells[cell] = per_io(short, long, IOS[1] - IOS[0], symbols[setup.name], setup.modules)
    setups.take_down(machine, setup)
    return cells
