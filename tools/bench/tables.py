# SPDX-License-Identifier: GPL-2.0
"""Turns measurements into Markdown tables."""
import statistics

import memory as memory_use
import rates as guest_time
import setups
import wires as wire_use
from counting import Counts


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table: its first column is text, the others are figures."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def instructions(results: Counts, wanted: list[setups.Setup]) -> str:
    """Instructions per IO in the modules of each setup, and ours relative to the C driver's."""
    cases = list(dict.fromkeys((pattern, size) for _, pattern, size in results))
    rows = []
    for pattern, size in cases:
        row = [f"{pattern} {size}"]
        sums = {s.name: _in_modules(results[s.name, pattern, size], s) for s in wanted}
        row += [f"{value:.0f}" for value in sums.values()]
        for mode in "YN":
            c, rust = sums.get(f"C {mode}"), sums.get(f"Rust {mode}")
            row.append(f"{rust / c:.2f}" if c and rust else "-")
        rows.append(row)
    return markdown(["instructions per IO", *(s.name for s in wanted), "Rust/C Y", "Rust/C N"], rows)


def policies(results: Counts) -> str:
    """Instructions per 4 KiB IO over two paths, by policy, and ours relative to the C driver's."""
    by_name = {setup.name: setup for setup in setups.TWO_PATHS}
    rows = []
    for policy in setups.POLICIES:
        for case in dict.fromkeys((pattern, size) for _, pattern, size in results):
            c, rust = (_in_modules(results[name, *case], by_name[name]) for name in (f"C {policy}", f"Rust {policy}"))
            rows.append([f"{policy}, {' '.join(case)}", f"{c:.0f}", f"{rust:.0f}", f"{rust / c:.2f}"])
    return markdown(["instructions per IO, two paths", "C Y", "Rust Y", "Rust/C"], rows)


def _in_modules(counts: dict[tuple[str, str], float], setup: setups.Setup) -> float:
    return sum(value for (module, _), value in counts.items() if module in setup.modules)


def by_module(results: Counts, wanted: list[setups.Setup], case: tuple[str, str] = ("randread", "4k")) -> str:
    """The same for one case, module by module, with the transport below."""
    names = list(dict.fromkeys(m for s in wanted for m in s.modules)) + ["ib_core", "rdma_rxe"]
    rows = []
    for setup in wanted:
        counts = results.get((setup.name, *case), {})
        sums = {name: sum(v for (m, _), v in counts.items() if m == name) for name in names}
        rows.append([setup.name, *(f"{sums[name]:.0f}" if sums[name] else "" for name in names)])
    return markdown([" ".join(case), *names], rows)


# What the kernel's checksums call: they use the vector registers.
VECTORS = ("kernel_fpu_begin_mask", "kernel_fpu_end", "irq_fpu_usable")


def checksums(counts: dict[tuple[str, str], float]) -> float:
    """Instructions in the kernel's checksums, whoever calls them."""
    return sum(value for (module, name), value in counts.items()
               if module == "kernel" and (name.startswith("crc") or name in VECTORS))


def hottest(results: Counts, setup: setups.Setup, case: tuple[str, str], most: int = 30) -> str:
    """The functions of a setup's modules that cost most."""
    counts = [(value, module, name) for (module, name), value in results[setup.name, *case].items()
              if module in setup.modules]
    rows = [[f"{value:.1f}", module, name] for value, module, name in sorted(counts, reverse=True)[:most]]
    return markdown([f"{setup.name} {' '.join(case)}", "module", "function"], rows)


def rates(results: dict[tuple[str, guest_time.Cell], list[float]], wanted: list[setups.Setup]) -> str:
    """IOPS in guest time and ours relative to the C driver's and to nvme-rdma's."""
    rows = []
    for cell in dict.fromkeys(cell for _, cell in results):
        values = {s.name: statistics.median(results[s.name, cell]) for s in wanted}
        row = [f"{cell[0]} {cell[1]} qd {cell[2]} x {cell[3]}"]
        row += [f"{value:.0f}" if value else "-" for value in values.values()]
        for ours, theirs in (("Rust Y", "C Y"), ("Rust N", "C N"), ("Rust Y", "nvme-rdma"), ("Rust Y", "Rust N")):
            a, b = values.get(ours), values.get(theirs)
            row.append(f"{a / b:.2f}" if a and b else "-")
        rows.append(row)
    table = markdown(["IOPS in guest time", *(s.name for s in wanted), "Rust/C Y", "Rust/C N", "Rust Y/nvme",
                    "Rust Y/N"], rows)
    usual, worst = guest_time.spread(results)
    return f"{table}\n\nDistance of a cell's rounds: {usual:.1%} in the median, {worst:.1%} at most."


def memory(results: dict[tuple[str, str], tuple[memory_use.Use, memory_use.Use]]) -> str:
    """KiB a session on either side, the server's also without the chunks themselves."""
    rows = []
    for (name, invalidate), sides in results.items():
        for side, use in zip(("client", "server"), sides, strict=True):
            rest = use.total - (memory_use.CHUNKS_KIB if side == "server" else 0)
            figures = (use.total, rest, use.slab, use.vmalloc, use.percpu)
            rows.append([f"{name} {invalidate} {side}", *(f"{figure:.0f}" for figure in figures)])
    return markdown(["KiB a session", "all", "without chunks", "in slabs", "in vmalloc", "per CPU"], rows)


def wires(results: dict[tuple[str, str, int, str], float]) -> str:
    """MB/s over one wire and over two, and how many times as much that is."""
    rows = []
    for name, policy in dict.fromkeys((name, policy) for name, policy, _, _ in results):
        row = [f"{name}, {policy}"]
        for pattern in wire_use.PATTERNS:
            # With one path there is nothing to choose: measured once for all policies.
            one = next(rate for key, rate in results.items() if (key[0], *key[2:]) == (name, 1, pattern))
            two = results[name, policy, 2, pattern]
            row += [f"{one:.2f}", f"{two:.2f}", f"{two / one:.2f}"]
        rows.append(row)
    head = [f"{pattern} {what}" for pattern in wire_use.PATTERNS for what in ("1 wire", "2 wires", "ratio")]
    return markdown(["MB/s, 4 KiB, queue depth 8", *head], rows)
